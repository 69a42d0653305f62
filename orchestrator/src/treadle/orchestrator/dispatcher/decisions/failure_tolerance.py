"""Finally failed records, compared with a stage's tolerance. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from treadle.executors.program import Outcome

from ...plan.plan import Tolerance


class FailedRecords:
    """Record counts of the committed partitions, by stage."""

    def __init__(self, tolerated: Mapping[str, Tolerance]) -> None:
        self._tolerated = tolerated
        self._entered: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, outcome: Outcome) -> bool:
        """Count an outcome. Returns whether it exceeds a limit that is checked at once."""
        self._first = {**outcome.first_failed, **self._first}
        for stage, count in outcome.counts.items():
            self._entered[stage] += count.entered
            self._failed[stage] += count.failed
        return any(0 <= tolerance.count < self._failed[stage] for stage, tolerance in self._tolerated.items())

    def problem(self) -> str:
        """The exceeded limit, percentages included; empty: none."""
        for stage, tolerance in self._tolerated.items():
            failed, entered = self._failed[stage], self._entered[stage]
            first = f"; the first: {self._first[stage]}" if stage in self._first else ""
            if 0 <= tolerance.count < failed:
                return f"{stage}: {failed} failed records are more than toleratedFailures: {tolerance.count}{first}"
            if tolerance.percent >= 0 and failed * 100 > tolerance.percent * entered:
                share = f"{tolerance.percent:g}%"
                return f"{stage}: {failed} of {entered} records failed, more than toleratedFailures: {share}{first}"
        return ""
