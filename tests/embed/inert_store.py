"""`tests/golden/store-inert`: a directory of the build that took `type: queue` and `replicated: true`, and did nothing
of either. Later versions refuse both by name, and must open, read and reconfigure what stands there:

    jobs    type="queue", dead_letter="jobs", cap_records=5: records 1 (priority 7) and 2 (delay_ms 60 000)
    copied  replicated=True: one record, "here"
    plain   one record, "there"

It was made once, by that build, and is never made again.
"""

import pathlib

from topics.testing.simdisk import SimDisk

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "store-inert"


def inert_disk() -> SimDisk:
    """The directory on a simulated disk."""
    disk = SimDisk(1)
    for file in sorted(GOLDEN.rglob("*")):
        path = str(file.relative_to(GOLDEN))
        if file.is_dir():
            disk.make_dir(path)
        else:
            content = file.read_bytes()
            disk.create(path, len(content))
            disk.write(path, 0, [content])
    return disk
