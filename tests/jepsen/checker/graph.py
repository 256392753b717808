"""Directed graphs of numbered nodes: strongly connected components, and a short cycle in one."""

from collections import deque
from collections.abc import Collection, Iterable

Edges = list[list[int]]
"""The successors of each node."""


def components(edges: Edges) -> list[list[int]]:
    """Returns the strongly connected components with more than one node (Tarjan's algorithm, without recursion)."""
    count = len(edges)
    number = [0] * count  # 0: not visited
    low = [0] * count
    on_stack = bytearray(count)
    stack: list[int] = []
    found: list[list[int]] = []
    counter = 0
    for root in range(count):
        if number[root]:
            continue
        counter += 1
        number[root] = low[root] = counter
        stack.append(root)
        on_stack[root] = 1
        path = [(root, iter(edges[root]))]
        while path:
            node, successors = path[-1]
            for successor in successors:
                if not number[successor]:
                    counter += 1
                    number[successor] = low[successor] = counter
                    stack.append(successor)
                    on_stack[successor] = 1
                    path.append((successor, iter(edges[successor])))
                    break
                if on_stack[successor]:
                    low[node] = min(low[node], number[successor])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == number[node]:
                    component: list[int] = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = 0
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found


def shortest_cycle(edges: Edges, component: Collection[int], starts: Iterable[int], tries: int = 20) -> list[int]:
    """Returns a shortest cycle within a component through one of the first `tries` nodes of `starts`."""
    inside = set(component)
    best: list[int] = []
    for start, _ in zip(starts, range(tries), strict=False):
        cycle = _cycle_through(edges, inside, start)
        if cycle and (not best or len(cycle) < len(best)):
            best = cycle
    return best


def _cycle_through(edges: Edges, inside: set[int], start: int) -> list[int]:
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for successor in edges[node]:
            if successor == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return cycle[::-1]
            if successor in inside and successor not in came_from:
                came_from[successor] = node
                queue.append(successor)
    return []
