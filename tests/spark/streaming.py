"""A process that streams a directory to Parquet until killed: `python -m tests.spark.streaming HOME TOPICS [now]`.

TOPICS is a pattern. What is lost is left out, and told in the log. It says each batch that it has done, a number a
line. With `now` it ends when all that is there is done.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.conftest import CONFS
from topics.spark.session import session


def main(home: Path, topics: str, now: bool) -> None:
    confs = {**CONFS, "spark.driver.memory": "700m", "spark.local.dir": str(home / "local")}
    spark = session("streaming", master="local[2]", confs=confs)
    frame = spark.readStream.format("topics").options(
        path=str(home / "data"), subscribePattern=topics, startingOffsets="earliest", maxOffsetsPerTrigger="600",
        failOnDataLoss="false",
    )  # fmt: skip
    writer = frame.load().select("topic", "offset", "value").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(home / "checkpoint"))
    writer = writer.trigger(availableNow=True) if now else writer.trigger(processingTime="100 milliseconds")
    query = writer.start(str(home / "out"))
    done = -1
    while not query.awaitTermination(0.1):
        progress = query.lastProgress
        if progress is not None and progress.batchId != done:
            done = progress.batchId
            print(done, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], now="now" in sys.argv[3:])
