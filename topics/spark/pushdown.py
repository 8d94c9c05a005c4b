"""Whether filters are pushed down to a source in Python: only where Spark keeps the plans of two scans apart.

Spark 4.3 keeps the plan that pushed filters gave in the relation, not in the scan. All that one query, or a later one,
reads of the same frame or view then follows the plan of the last filter: a union of two ranges gives one of them
twice, and a count of everything counts what was left of it before. Nothing tells the source. So there no filter is
pushed, and Spark filters by itself, unless the user says that each frame is for one query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONF: Final = "spark.sql.python.filterPushdown.enabled"
_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
_SHARES: Final = "setReadInfo"  # puts the plan of a scan where all scans of the relation find it


def keeps_plans_apart(spark: SparkSession) -> bool:
    """Whether each scan of this Spark has a plan of its own."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 -- Spark tells it nowhere else
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return _SHARES not in {method.getName() for method in loader.loadClass(_RELATION).getMethods()}
