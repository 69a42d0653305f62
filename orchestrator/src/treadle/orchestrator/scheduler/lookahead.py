"""Finds a node that alone comes next after another. It may follow without a decision of the scheduler. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..plan.plan import Graph, Node


class Ahead:
    """The nodes of a graph, each with a bit for every node that it needs directly or indirectly."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        self._place = {node.id: index for index, node in enumerate(graph.nodes)}
        self._above: list[int] = []
        for node in graph.nodes:
            needs = [self._place[need] for need in (*node.data, *node.after) if need in self._place]
            above = 0
            for need in needs:
                above |= self._above[need] | 1 << need
            self._above.append(above)

    def next_of(self, node: str, status: Mapping[str, str]) -> Node | None:
        """The node that everything waiting for `node` needs. None: several could start independently.

        Running it at once delays no other node. (It dominates the nodes below, as in flow graphs.)
        """
        place = self._place[node]
        below = [
            index
            for index in range(place + 1, len(self._nodes))
            if self._above[index] >> place & 1 and status[self._nodes[index].id] == "waiting"
        ]
        if not below or not all(self._above[index] >> below[0] & 1 for index in below[1:]):
            return None
        return self._nodes[below[0]]
