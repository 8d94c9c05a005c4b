"""Names of the simulated disk: directories as they read now, as the platter has them, and the changes between.

Theory. A change of a name stays pending until its directory is synced; a crash keeps or loses each pending change by
itself. A rename is one change, so it is never half done, and a name that survives points to the file it was made for.
A directory that has not survived takes everything in it along, synced or not. A rename between two directories is
durable once either is synced, except that syncing the target's alone may leave the old name as well.

A folder of the root may be a mount: a file system of its own, there from the beginning. It cannot be removed, and no
rename crosses its border.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from topics.testing.simfile import SimFile

PATHS_KEPT: Final = 1 << 14  # a simulated disk is asked for the same few paths, hundreds of times a start


class SimDir:
    """One directory."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = SimFile | SimDir


class NodeKind(Enum):
    LINK = "link"
    UNLINK = "unlink"
    MOVE = "move"


class NameChange(NamedTuple):
    order: int
    kind: NodeKind
    parent: SimDir
    name: str
    node: Node
    source_parent: SimDir | None = None
    source_name: str = ""


class SimTree:
    """All names below one root. `mounts`: its folders that are file systems of their own."""

    __slots__ = ("mounts", "pending", "root")

    def __init__(self, mounts: Sequence[str] = ()) -> None:
        self.mounts = tuple(mounts)
        self.root = SimDir()
        self.pending: list[NameChange] = []
        for name in self.mounts:
            assert "/" not in name, name
            self.root.entries[name] = self.root.durable[name] = SimDir()

    def copy(self) -> SimTree:
        twins: dict[int, Node] = {}
        tree = SimTree()
        tree.mounts = self.mounts
        tree.root = _copy_dir(self.root, twins)
        tree.pending = [_copy_change(change, twins) for change in self.pending]
        return tree

    def mount_of(self, path: str) -> str:
        """The mount that has the path, `""` if it is the root's file system."""
        top = path.partition("/")[0]
        return top if top in self.mounts else ""

    def find(self, path: str) -> Node | None:
        """What is there now."""
        return _find(self.root, path)

    def find_durable(self, path: str) -> Node | None:
        """What a crash that keeps nothing unsynced would leave there."""
        return _find(self.root, path, durable=True)

    def file(self, path: str) -> SimFile:
        """Raises OSError as a kernel would."""
        node = self.find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, SimDir):
            raise _error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> SimDir:
        node = self.find(path) if path else self.root
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, SimFile):
            raise _error(errno.ENOTDIR, path)
        return node

    def link(self, order: int, path: str, node: Node) -> None:
        parent, name = self._place(path)
        assert name not in parent.entries
        parent.entries[name] = node
        self.pending.append(NameChange(order, NodeKind.LINK, parent, name, node))

    def unlink(self, order: int, path: str) -> None:
        """An absent file is fine."""
        node = self.find(path)
        if isinstance(node, SimDir):
            raise _error(errno.EISDIR, path)
        parent, name = self._place(path)
        if node is not None:
            del parent.entries[name]
            self.pending.append(NameChange(order, NodeKind.UNLINK, parent, name, node))

    def remove_dir(self, order: int, path: str) -> None:
        """An empty directory; an absent one is fine."""
        node = self.find(path)
        if node is None:
            return
        if path in self.mounts:
            raise _error(errno.EBUSY, path)
        if self.directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        parent, name = self._place(path)
        del parent.entries[name]
        self.pending.append(NameChange(order, NodeKind.UNLINK, parent, name, node))

    def move(self, order: int, source: str, target: str) -> None:
        if self.mount_of(source) != self.mount_of(target):
            raise _error(errno.EXDEV, source)
        node = self.file(source)
        if isinstance(self.find(target), SimDir):
            raise _error(errno.EISDIR, target)
        source_parent, source_name = self._place(source)
        parent, name = self._place(target)
        del source_parent.entries[source_name]
        parent.entries[name] = node
        self.pending.append(NameChange(order, NodeKind.MOVE, parent, name, node, source_parent, source_name))

    def sync(self, path: str) -> None:
        """Make the directory's names durable."""
        synced = [self.directory(path)]
        for change in self.pending:  # names that left for another directory arrive there with this sync
            source = change.source_parent
            if source is not None and _among(source, synced) and not _among(change.parent, synced):
                synced.append(change.parent)
        pending, self.pending = self.pending, []
        for change in pending:
            if not _among(change.parent, synced):
                self.pending.append(change)
                continue
            _settle(change, source_too=change.source_parent is None or _among(change.source_parent, synced))
            if change.source_parent is not None and not _among(change.source_parent, synced):
                old = NameChange(
                    change.order, NodeKind.UNLINK, change.source_parent, change.source_name, change.node
                )
                self.pending.append(old)
        gone = [change.node for change in pending if change.kind is NodeKind.UNLINK]
        self.pending = [change for change in self.pending if all(change.parent is not node for node in gone)]
        assert synced[0].durable == synced[0].entries

    def lose_power(self, keeps: Callable[[int], bool]) -> None:
        """Keep those pending changes that `keeps` answers for; what is durable then is all there is."""
        for change in self.pending:
            if keeps(change.order):
                _settle(change, source_too=True)
        self.pending = []
        _forget_unsynced(self.root)

    def files(self) -> Iterator[SimFile]:
        """Every file that has a name, in the order of the names."""
        return _files(self.root)

    def files_of(self, mount: str) -> Iterator[SimFile]:
        """Those on one file system."""
        for name, node in sorted(self.root.entries.items()):
            if self.mount_of(name) == mount:
                yield from _files(node) if isinstance(node, SimDir) else (node,)

    def _place(self, path: str) -> tuple[SimDir, str]:
        parent, _, name = path.rpartition("/")
        return self.directory(parent), name


def _find(root: SimDir, path: str, *, durable: bool = False) -> Node | None:
    node: Node | None = root
    for part in _parts(path):
        if not isinstance(node, SimDir):
            if node is None:
                return None
            raise _error(errno.ENOTDIR, path)
        node = (node.durable if durable else node.entries).get(part)
    return node


@lru_cache(maxsize=PATHS_KEPT)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("/"))


def _settle(change: NameChange, *, source_too: bool) -> None:
    """Carry the change out on the platter."""
    if change.kind is NodeKind.UNLINK:
        _drop(change.parent, change.name, change.node)
        return
    if change.source_parent is not None and source_too:
        _drop(change.source_parent, change.source_name, change.node)
    change.parent.durable[change.name] = change.node


def _drop(parent: SimDir, name: str, node: Node) -> None:
    if parent.durable.get(name) is node:
        del parent.durable[name]


def _among(directory: SimDir, directories: list[SimDir]) -> bool:
    return any(directory is other for other in directories)


def _forget_unsynced(directory: SimDir) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, SimDir):
            _forget_unsynced(node)


def _files(directory: SimDir) -> Iterator[SimFile]:
    for _, node in sorted(directory.entries.items()):
        if isinstance(node, SimDir):
            yield from _files(node)
        else:
            yield node


def _copy_node(node: Node, twins: dict[int, Node]) -> Node:
    if id(node) not in twins:
        if isinstance(node, SimDir):
            return _copy_dir(node, twins)
        twins[id(node)] = node.copy()
    return twins[id(node)]


def _copy_dir(directory: SimDir, twins: dict[int, Node]) -> SimDir:
    twin = twins.get(id(directory))
    if twin is None:
        twin = twins[id(directory)] = SimDir()
        twin.entries = {name: _copy_node(node, twins) for name, node in directory.entries.items()}
        twin.durable = {name: _copy_node(node, twins) for name, node in directory.durable.items()}
    assert isinstance(twin, SimDir)
    return twin


def _copy_change(change: NameChange, twins: dict[int, Node]) -> NameChange:
    source = change.source_parent
    return change._replace(
        parent=_copy_dir(change.parent, twins),
        node=_copy_node(change.node, twins),
        source_parent=None if source is None else _copy_dir(source, twins),
    )


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
