"""The embedded store against a plain dictionary, with several sessions, restarts and kills.

`HEADRACE_MODEL_EXAMPLES` sets the number of histories.
"""

import asyncio
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.cluster.embedded_store import EmbeddedStore
from headrace.cluster.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    StoreError,
)
from headrace.testing.clock import ManualClock

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VERSIONS = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
DATA = st.binary(max_size=20)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.just(False)),
    st.builds(Set, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


@dataclass
class ModelNode:
    data: bytes
    version: int = 0
    owner: int = 0
    sequence: int = 0


def parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


class Model:
    """ZooKeeper's rules in their simplest form."""

    def __init__(self) -> None:
        self.nodes: dict[str, ModelNode] = {"/": ModelNode(b"")}

    def copy(self) -> "Model":
        made = Model()
        made.nodes = {path: ModelNode(**vars(node)) for path, node in self.nodes.items()}
        return made

    def children(self, path: str) -> list[str]:
        return sorted(one.rsplit("/", 1)[1] for one in self.nodes if one != "/" and parent(one) == path)

    def do(self, operation: Operation, session: int) -> None:
        if isinstance(operation, Create):
            above = self.nodes.get(parent(operation.path))
            if above is None:
                raise NoNode("")
            if above.owner:
                raise NoChildrenForEphemerals("")
            if operation.path in self.nodes:
                raise NodeExists("")
            self.nodes[operation.path] = ModelNode(operation.data, owner=session if operation.ephemeral else 0)
            return
        node = self.nodes.get(operation.path)
        if node is None:
            raise NoNode("")
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersion("")
        if isinstance(operation, Set):
            node.data = operation.data
            node.version += 1
        elif isinstance(operation, Delete):
            if self.children(operation.path):
                raise NotEmpty("")
            del self.nodes[operation.path]

    def end_session(self, session: int) -> None:
        self.nodes = {path: node for path, node in self.nodes.items() if node.owner != session}


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.model = Model()
        self.stores: list[EmbeddedStore] = []

    @initialize()
    def begin(self) -> None:
        self._open()

    def _open(self) -> None:
        store = EmbeddedStore(self.directory / "coordination.db", ManualClock())
        self.stores = [store, store.new_session()]

    def _crash(self) -> None:
        """Simulates a kill: nothing is closed."""
        shared = self.stores[0]._shared
        assert shared.journal is not None
        if shared._thread is not None:
            shared._thread.shutdown()
        # Copy the file: closing SQLite's connection would clean it up.
        copy = self.directory.with_name(self.directory.name + "-copy")
        shutil.copytree(self.directory, copy)
        shared.journal.close()
        shutil.rmtree(self.directory)
        copy.rename(self.directory)

    @rule(operations=st.lists(OPERATIONS, min_size=1, max_size=4), which=st.integers(0, 1))
    def change(self, operations: list[Operation], which: int) -> None:
        store = self.stores[which]
        after = self.model.copy()
        expected: tuple[type[StoreError], int] | None = None
        for index, operation in enumerate(operations):
            try:
                after.do(operation, store.session_id)
            except StoreError as error:
                expected = type(error), index
                break
        happened: tuple[type[StoreError], int] | None = None
        try:
            self.loop.run_until_complete(store.multi(operations))
        except StoreError as error:
            happened = type(error), error.index
        assert happened == expected
        if happened is None:
            self.model = after

    @rule(path=PATHS, which=st.integers(0, 1))
    def sequential(self, path: str, which: int) -> None:
        above = self.model.nodes.get(parent(path))
        if above is None or above.owner:
            return
        made = self.loop.run_until_complete(self.stores[which].create(path, sequential=True))
        assert made == f"{path}{above.sequence:010}"
        above.sequence += 1
        self.model.nodes[made] = ModelNode(b"")

    @rule()
    def close_and_reopen(self) -> None:
        for store in self.stores:
            self.loop.run_until_complete(store.close())
            self.model.end_session(store.session_id)
        self._open()

    @rule()
    def kill_and_reopen(self) -> None:
        self._crash()
        for store in self.stores:
            self.model.end_session(store.session_id)
        self._open()

    @rule(which=st.integers(0, 1))
    def expire(self, which: int) -> None:
        self.model.end_session(self.stores[which].session_id)
        self.loop.run_until_complete(self.stores[which].expire_session())

    @invariant()
    def store_equals_model(self) -> None:
        if self.stores:
            self.loop.run_until_complete(self._compare())

    async def _compare(self) -> None:
        for store in self.stores:
            for path, node in self.model.nodes.items():
                data, stat = await store.get(path)
                assert (data, stat.version, stat.ephemeral_owner) == (node.data, node.version, node.owner)
                assert await store.children(path) == self.model.children(path)
                assert stat.num_children == len(self.model.children(path))
                assert stat.czxid <= stat.mzxid
        assert len(self.stores[0]._shared.tree._nodes) == len(self.model.nodes)

    def teardown(self) -> None:
        for store in self.stores:
            self.loop.run_until_complete(store.close())
        self.loop.close()
        shutil.rmtree(self.directory)


StoreMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("HEADRACE_MODEL_EXAMPLES", "60")), stateful_step_count=30, deadline=None
)
TestStore = StoreMachine.TestCase
