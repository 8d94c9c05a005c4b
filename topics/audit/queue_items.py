"""All that the log and the archive tell of one queue, frame by frame: for who counts what happened to its jobs."""

from __future__ import annotations

from collections.abc import Iterator

from topics.audit.checks.archived import archive_tasks
from topics.audit.checks.queue_logs import LogItem, read_items
from topics.audit.recovery import read, wal_tasks
from topics.audit.scan.walscan import scan_wal
from topics.kernel.config import TopicType
from topics.kernel.errors import Code, Rejected, not_a_queue
from topics.kernel.ports import Disk


def queue_items(disk: Disk, where: str, queue: str) -> Iterator[LogItem]:
    """In the log's order.

    Raises:
        Rejected: topic_not_found, not_a_queue.
        CannotOpen: no data directory, or one of a newer version.
        OSError: the disk failed, or a file went away.
    """
    topics = read(disk, where, same_boot=False).topics.values()
    topic = next((topic for topic in topics if topic.name == queue), None)
    if topic is None:
        raise Rejected(Code.TOPIC_NOT_FOUND, f"there is no topic {queue!r} in {where}", topic=queue)
    if topic.config.type is not TopicType.QUEUE:
        raise not_a_queue(queue)
    tasks = (*archive_tasks(disk), *wal_tasks(disk))
    rows = [row for task in tasks if (row := scan_wal(disk, task)) is not None]
    return (at for at in read_items(disk, rows) if at.item.topic_id == topic.topic_id)
