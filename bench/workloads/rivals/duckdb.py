"""DuckDB in one process, a thread for each processor."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workloads import data
from workloads.rivals.base import Base
from workloads.settings import LIBRARIES

sys.path.append(str(LIBRARIES))
import duckdb  # type: ignore[import-not-found]  # in LIBRARIES


class Rival(Base):
    def start(self) -> None:
        self._database = duckdb.connect(
            config={"threads": os.cpu_count(), "temp_directory": str(self.folder / "spilled")}
        )

    def stop(self) -> None:
        self._database.close()

    def words(self, variant: str, target: Path) -> None:  # noqa: ARG002
        words = f"SELECT unnest(string_split(line, ' ')) AS word FROM {_lines(data.text(self.sizes), 'text-')}"
        counts = f"SELECT word, count(*) FROM ({words}) WHERE word <> '' GROUP BY word"
        self._database.execute("SET preserve_insertion_order = false")
        self._database.execute(f"COPY ({counts}) TO '{target}/counts.csv' (FORMAT csv, DELIMITER '\t', HEADER false)")

    def sort(self, variant: str, target: Path) -> None:  # noqa: ARG002
        """Sort once into a table in memory, and then write its slices."""
        lines = _lines(data.records(self.sizes), "rec-")
        self._database.execute("SET preserve_insertion_order = true")
        self._database.execute(f"CREATE OR REPLACE TEMP TABLE ordered AS FROM {lines} ORDER BY line[1:10]")
        [(count,)] = self._database.execute("SELECT count(*) FROM ordered").fetchall()
        for part in range(self.sizes.tasks):
            begin, end = count * part // self.sizes.tasks, count * (part + 1) // self.sizes.tasks
            rows = f"SELECT line FROM ordered WHERE rowid >= {begin} AND rowid < {end}"
            options = "FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01'"
            self._database.execute(f"COPY ({rows}) TO '{target}/part-{part}' ({options})")

    def after(self) -> None:
        self._database.execute("DROP TABLE IF EXISTS ordered")


def _lines(folder: Path, name: str) -> str:
    """Files as a table of lines, with a delimiter that does not occur in them, and no quotes."""
    shape = (
        "columns = {'line': 'VARCHAR'}, header = false, delim = '\x01', quote = '', escape = '', auto_detect = false"
    )
    return f"read_csv('{folder}/{name}*', {shape})"
