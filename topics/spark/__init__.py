"""Spark over topics: `format("topics")` for batch, stream and sink (spark 1 to 3).

Nothing of it is imported by the rest of the package, and pyspark only by what needs it: everything else works without.
"""

from topics.spark.session import losses, register

__all__ = ["losses", "register"]
