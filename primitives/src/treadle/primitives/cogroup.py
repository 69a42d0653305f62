"""The values that a reduce receives from a shuffle with several inputs, by the name of the input."""

from __future__ import annotations

from typing import Any, TypeVar

V = TypeVar("V")


class JointValues(dict[str, V]):
    """{input: values}, by the text of the input in the document (`orders`, `inputs.prices`, `state.ranks`).

    Unambiguous endings (`prices`, `ranks`) work as well. Another name raises KeyError, which lists the names.
    """

    def __missing__(self, name: str) -> V:
        found = self._full(name)
        if found is None:
            raise KeyError(f"{name!r} is no input of the shuffle; there is {', '.join(map(repr, self))}")
        return self[found]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._full(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def _full(self, name: object) -> str | None:
        ending = [full for full in self if full.rpartition(".")[2] == name]
        return ending[0] if len(ending) == 1 else None
