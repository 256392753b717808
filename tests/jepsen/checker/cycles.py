"""Cycles of dependencies between committed transactions: G0 and G1c.

    write-write  T1 sent a value, T2 the next one of the same key
    write-read   T1 sent a value that T2 polled
    process      T2 is the next operation of T1's process
    real time    T1 completed before T2 was invoked

A cycle of write-write dependencies is a G0, one with a write-read dependency a G1c; with edges of the process or of
real time they have names of their own. A strongly connected component is reported once, under the kind that needs the
weakest edges. Kafka does not isolate writes, so every G0 is allowed, and a G1c that needs a write-write dependency.

Real time has a node for each completion, in a chain, instead of an edge for each pair of transactions.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.jepsen.checker.findings import Finding
from tests.jepsen.checker.graph import Edges, components, shortest_cycle
from tests.jepsen.checker.versions import Analysis

ORDERS = ("", "-process", "-realtime")
"""Orders of operations, the weakest first, as they are named in anomalies."""


def find_cycles(analysis: Analysis) -> Iterator[Finding]:
    graph = DependencyGraph(analysis)
    reported: set[int] = set()
    for order in ORDERS:
        yield from graph.find("G0" + order, ("ww",), order, reported, is_allowed=True)
    reported = set()
    for order in ORDERS:
        yield from graph.find("G1c" + order, ("wr",), order, reported, is_allowed=False)
    for order in ORDERS:
        yield from graph.find("G1c" + order, ("wr", "ww"), order, reported, is_allowed=True)


class DependencyGraph:
    """The dependencies between the committed transactions, by kind."""

    def __init__(self, analysis: Analysis):
        self._nodes = [transaction for transaction in analysis.transactions if transaction.has_committed]
        number = {id(transaction): node for node, transaction in enumerate(self._nodes)}
        self._edges: dict[str, set[tuple[int, int]]] = {"ww": set(), "wr": set(), "": set(), "-process": set()}
        for key, order in analysis.orders.items():
            writers = analysis.writer_of.get(key, {})
            for first, second in pairwise(order.by_index):
                if first in writers and second in writers:
                    self._add("ww", number.get(id(writers[first])), number.get(id(writers[second])))
        for node, transaction in enumerate(self._nodes):
            for key, pairs in transaction.reads.items():
                writers = analysis.writer_of.get(key, {})
                for _, value in pairs:
                    if value in writers:
                        self._add("wr", number.get(id(writers[value])), node)
        last: dict[int, int] = {}
        for node, transaction in enumerate(self._nodes):
            if transaction.op.process in last:
                self._add("-process", last[transaction.op.process], node)
            last[transaction.op.process] = node
        self._edges["-realtime"] = set(self._real_time())

    def _add(self, kind: str, source: int | None, target: int | None) -> None:
        if source is not None and target is not None and source != target:
            self._edges[kind].add((source, target))

    def _real_time(self) -> Iterator[tuple[int, int]]:
        """Nodes from `len(self._nodes)` on are completions; a transaction without a known end has none."""
        events: list[tuple[int, bool, int]] = []
        for node, transaction in enumerate(self._nodes):
            events.append((transaction.op.invoked_at, False, node))
            if transaction.op.type == "ok":
                events.append((transaction.op.index, True, node))
        completion = -1
        moment = len(self._nodes)
        for _, has_completed, node in sorted(events):
            if has_completed:
                if completion >= 0:
                    yield completion, moment
                yield node, moment
                completion = moment
                moment += 1
            elif completion >= 0:
                yield completion, node

    def find(
        self, anomaly: str, kinds: tuple[str, ...], order: str, reported: set[int], *, is_allowed: bool
    ) -> Iterator[Finding]:
        """Finds components with dependencies of all these kinds and edges of this order, and adds their transactions to
        `reported`. Components with a reported transaction are left out."""
        chosen: Edges = [[] for _ in range(2 * len(self._nodes) if order == "-realtime" else len(self._nodes))]
        for kind in (*kinds, order):
            for source, target in self._edges[kind]:
                chosen[source].append(target)
        found = components(chosen)
        has_all = self._with_all(kinds, found)
        for position, component in enumerate(found):
            inside = set(component)
            if position not in has_all or not reported.isdisjoint(inside):
                continue
            cycle = shortest_cycle(chosen, component, self._through(kinds[0], inside))
            reported.update(node for node in inside if node < len(self._nodes))
            yield Finding(anomaly, self._describe(cycle, kinds), is_allowed=is_allowed)

    def _with_all(self, kinds: tuple[str, ...], found: list[list[int]]) -> set[int]:
        """Returns the positions of the components that contain edges of all these kinds."""
        position_of = {node: position for position, component in enumerate(found) for node in component}
        with_kind = [
            {
                position_of[source]
                for source, target in self._edges[kind]
                if source in position_of and position_of[source] == position_of.get(target)
            }
            for kind in kinds
        ]
        return set.intersection(*with_kind)

    def _through(self, kind: str, inside: set[int]) -> Iterator[int]:
        return (source for source, target in self._edges[kind] if source in inside and target in inside)

    def _describe(self, cycle: list[int], kinds: tuple[str, ...]) -> str:
        steps = []
        for source, target in pairwise([*cycle, cycle[0]]):
            if source < len(self._nodes):
                how = next((kind for kind in kinds if (source, target) in self._edges[kind]), "before")
                steps.append(f"{self._nodes[source]} --{how}-->")
        return " ".join(steps)
