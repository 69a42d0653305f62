"""One rival in its own environment: carries out the orders on stdin, and answers on stdout, one JSON line each.

python -m workloads.child MODULE SIZES FOLDER
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from workloads.settings import Sizes, Workload, own


def own_streams() -> tuple[Any, Any]:
    """The streams of the runner. All other output goes to stderr, and all other reads find nothing."""
    commands, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return commands, answers


class Child:
    def __init__(self, module: str, sizes: Sizes, folder: Path) -> None:
        self._module, self._sizes, self._folder = module, sizes, folder
        self._rival: Any = None
        self._rounds = 0

    def do(self, what: str, **details: Any) -> dict[str, Any]:
        """Carry out an order. Raises the rival's errors."""
        answer: dict[str, Any] = getattr(self, what)(**details)
        return answer

    def start(self) -> dict[str, Any]:
        began = time.perf_counter()
        module = importlib.import_module(self._module)
        own(self._folder).mkdir()
        self._rival = module.Rival(self._sizes, own(self._folder))
        self._rival.start()
        return {"seconds": time.perf_counter() - began}

    def prepare(self, workload: Workload) -> dict[str, Any]:
        self._rival.prepare(workload)
        return {}

    def round(self, workload: Workload, variant: str) -> dict[str, Any]:
        """A timed round. Then its answer is checked, and all that it left is removed."""
        from workloads.checks import check

        self._rounds += 1
        target = self._folder / f"round-{self._rounds}"
        target.mkdir()
        try:
            began = time.perf_counter()
            answer = getattr(self._rival, workload)(variant, target)
            seconds = time.perf_counter() - began
            check(workload, self._sizes, answer, target)
            return {"seconds": seconds, "spent": self._rival.spent()}
        finally:
            self._rival.after()
            shutil.rmtree(target, ignore_errors=True)

    def stop(self) -> dict[str, Any]:
        self._rival.stop()
        return {}


def main(module: str, sizes: str, folder: str) -> None:
    commands, answers = own_streams()
    child = Child(module, Sizes(**json.loads(sizes)), Path(folder))
    for line in commands:
        try:
            answer = child.do(**json.loads(line))
        except BaseException as error:  # noqa: BLE001  every error is reported
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".strip()[:400]}
        answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
    sys.stderr.flush()
    os._exit(0)  # libraries with their own threads may not end
