"""Parts of a sharded array, and the rules by which pushed values change them."""

from __future__ import annotations

from typing import Any, Protocol

from ..definitions import merges, read, shared

Place = bytes | tuple[int, int]
"""Rows of a part: their numbers as 32-bit integers, or the first one and the one after the last."""
_Rows = Any
"""Rows as NumPy takes them: an array of their numbers, or a slice."""


class UpdateRule(Protocol):
    """How pushed values change an array. It must be deterministic, and picklable.

    `kept`: the number of arrays, of the shape of the values and zero at first, that the rule keeps beside them.
    """

    kept: int

    def change(self, pushed: Any, *kept: Any) -> Any:
        """Return the change to add to the rows. `kept`: the rows of the kept arrays, to be changed in place."""


class Addition:
    """Pushed values are added."""

    kept = 0

    def change(self, pushed: Any) -> Any:
        """See `UpdateRule`."""
        return pushed


class GradientDescent:
    """Pushed values are gradients: `rate` times each is subtracted."""

    kept = 0

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def change(self, pushed: Any) -> Any:
        """See `UpdateRule`."""
        return -self.rate * pushed


class Adagrad:
    """Gradient descent whose rate falls with the sum of the squares (Duchi, Hazan and Singer, JMLR 2011)."""

    kept = 1

    def __init__(self, rate: float, epsilon: float = 1e-8) -> None:
        self.rate, self.epsilon = rate, epsilon

    def change(self, pushed: Any, squares: Any) -> Any:
        """See `UpdateRule`."""
        squares += pushed**2
        return -self.rate * pushed / (squares**0.5 + self.epsilon)


class Adam:
    """Gradient descent with moments (Kingma and Ba, ICLR 2015). A row's steps are those in which it was pushed."""

    kept = 3

    def __init__(self, rate: float = 0.001, first: float = 0.9, second: float = 0.999, epsilon: float = 1e-8) -> None:
        self.rate, self.first, self.second, self.epsilon = rate, first, second, epsilon

    def change(self, pushed: Any, mean: Any, squares: Any, steps: Any) -> Any:
        """See `UpdateRule`."""
        steps += 1
        mean += (1 - self.first) * (pushed - mean)
        squares += (1 - self.second) * (pushed**2 - squares)
        unbiased = squares / (1 - self.second**steps)
        return -self.rate * mean / (1 - self.first**steps) / (unbiased**0.5 + self.epsilon)


@shared
class ArrayPart:
    """Rows of a sharded array. Values travel as bytes in the machine's order."""

    def __init__(self, shape: tuple[int, ...], dtype: str, fill: float, rule: UpdateRule) -> None:
        import numpy as np

        self.rule = rule
        self.values = np.full(shape, fill, dtype)
        self.kept = [np.zeros_like(self.values) for _ in range(rule.kept)]

    @merges
    def push(self, place: Place, pushed: bytes) -> None:
        """Change rows, each at most once, by the rule."""
        rows = _rows(place)
        kept = [one[rows] for one in self.kept]
        self.values[rows] += self.rule.change(self._array(pushed), *kept)
        for whole, changed in zip(self.kept, kept, strict=True):
            whole[rows] = changed

    @merges
    def put(self, place: Place, values: bytes) -> None:
        """Replace rows."""
        self.values[_rows(place)] = self._array(values)

    @read
    def pull(self, place: Place) -> bytes:
        """Return rows."""
        found: bytes = self.values[_rows(place)].tobytes()
        return found

    @read
    def layout(self) -> tuple[tuple[int, ...], str, str]:
        """Return the shape, the type of an element, and the name of the rule."""
        return self.values.shape, self.values.dtype.str, type(self.rule).__name__

    def _array(self, data: bytes) -> Any:
        import numpy as np

        return np.frombuffer(data, self.values.dtype).reshape(-1, *self.values.shape[1:])


def _rows(place: Place) -> _Rows:
    if isinstance(place, bytes):
        import numpy as np

        return np.frombuffer(place, np.int32)
    return slice(*place)
