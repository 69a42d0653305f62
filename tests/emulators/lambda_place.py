"""A deployment target for tests: the emulated Lambda with treadle's function in several sizes, and its executors."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emulators.lambda_code import linked
from emulators.lambda_emulator import REGION, LambdaEmulator

from treadle.executors.aws.invoker import LambdaInvoker, function_name
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives import sealing

FUNCTION = "treadle"
SIZES = (512, 1024, 2048)
"""Megabytes."""
PROFILE = """
[{name}]
executor = "lambda"
slots = 1
[{name}.executors.lambda]
region = "{region}"
sizes = {sizes}
timeout = "60s"
concurrency = {concurrency}
endpoint = "{endpoint}"
files = true
"""


class LambdaPlace:
    """An emulator to which treadle is deployed with a key, and the parts to call it."""

    def __init__(self, emulator: LambdaEmulator, folder: Path) -> None:
        self.emulator = emulator
        self.code = linked(folder)

    def deploy(
        self,
        key_file: str,
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60,
        code: list[str] | None = None,
    ) -> None:
        """Deploy each size in place of the earlier functions. `environment`: secrets and the store's variables."""
        key = base64.b64encode(sealing.load_or_create_key(key_file)).decode()
        variables = {KEY_VARIABLE: key, "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
        for size in SIZES:
            name = function_name(FUNCTION, size)
            self.emulator.deploy(name, code or self.code, memory=size, environment=variables, timeout=timeout)

    def invoker(self, **options: Any) -> LambdaInvoker:
        """Credentials come from the environment (see `credentials`)."""
        options = {"region": REGION, "concurrency": 16, "seconds": 60, "endpoint": self.emulator.endpoint, **options}
        return LambdaInvoker(FUNCTION, SIZES, **options)

    def executor(self, key_file: str, *, slots: int = 2, **options: Any) -> FunctionExecutor:
        rate = Rate(200, least=100)
        return FunctionExecutor("lambda", self.invoker(**options), key_file=key_file, slots=slots, rate=rate)

    def profile(self, name: str = "functions", *, sizes: Sequence[int] = (512,), concurrency: int = 2) -> str:
        """A table for `profiles.toml`, whose runs call the functions."""
        return PROFILE.format(
            name=name, region=REGION, sizes=list(sizes), concurrency=concurrency, endpoint=self.emulator.endpoint
        )


@contextmanager
def lambda_place(folder: Path, *, concurrency: int = 4) -> Iterator[LambdaPlace]:
    """A place that ends with the block, including its sandboxes."""
    emulator = LambdaEmulator(folder / "emulator", concurrency=concurrency).start()
    try:
        yield LambdaPlace(emulator, folder)
    finally:
        emulator.stop()
