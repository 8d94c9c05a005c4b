"""Strategies for queue states: honest ones (cut from one log) and hostile ones (anything that has the form)."""

from hypothesis import strategies as st

from topics.codec.cell import CellMap
from topics.lattice.queues.entries import Entries
from topics.lattice.queues.fence import Lease
from topics.lattice.queues.metadata import Metadata
from topics.lattice.queues.queue_state import LatticeQueueState
from topics.lattice.queues.record import QueueRecord


def record(value, *, key=None, timestamp=0, headers=None):
    return QueueRecord((key, value, timestamp, headers))


def state(start, values, *, timestamp=0, meta=None, stamps=None, lease=None):
    """A state of records with these values, as the page writes them: `(start, [b, c])`."""
    return LatticeQueueState(
        entries=Entries.empty(start).extend([record(value) for value in values]),
        metadata=Metadata.from_cells(meta or {}, stamps or {}),
        timestamp=timestamp,
        lease=lease or Lease(),
    )


def shown(queue_state):
    """Start offset and values: what the page's examples compare."""
    return queue_state.start, [found.value for found in queue_state.entries.between(0, queue_state.stop)]


def canon(queue_state):
    """The state without its tree: what must be equal byte for byte."""
    return CellMap({"q": queue_state.to_cell()})


metadatas = st.builds(
    Metadata.from_cells,
    st.dictionaries(
        st.sampled_from(["a", "b", 1, True, b"b"]), st.sampled_from([None, 1, 1.0, True, "x"]), max_size=3
    ),
    st.dictionaries(st.sampled_from(["a", "b", 1, b"b"]), st.integers(0, 3), max_size=3),
)
leases = st.just(Lease()) | st.builds(Lease, st.integers(1, 2), st.sampled_from("ab"), st.integers(0, 3))

hostile = st.builds(
    LatticeQueueState,
    entries=st.builds(
        lambda start, values: Entries.empty(start).extend([record(value) for value in values]),
        st.integers(0, 6),
        st.lists(st.sampled_from("abc"), max_size=6),
    ),
    metadata=metadatas,
    timestamp=st.integers(0, 3),
    lease=leases,
)


@st.composite
def honest(draw):
    """An interval of the one log in which offset n holds n."""
    start = draw(st.integers(0, 200))
    stop = start + draw(st.integers(0, 200))
    return state(start, range(start, stop), timestamp=stop)
