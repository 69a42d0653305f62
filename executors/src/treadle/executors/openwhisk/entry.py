"""The code that runs in the action: the package's `__main__.py` has `main = ready()`, called for each activation.

The runtime starts the action with its `init` parameters as its whole environment (actions-new.md, `env`). It sets
`__OW_DEADLINE` before each call (actions.md, "Accessing action metadata").
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ..function_handler import Handler, hide_memory
from ..functions.payload import Request

MEMORY_VARIABLE = "TREADLE_FUNCTION_MEMORY"
"""Megabytes of this action, set at deployment because OpenWhisk does not report it."""
RESERVED_MEMORY = 192 << 20
"""Bytes of an action that tasks cannot use. The limit covers the whole container (DockerContainer.scala, `--memory`),
including the proxy of openwhisk-runtime-python. Proxy and treadle's processes were measured at 150 to 180 MB."""
_DEADLINE_VARIABLE = "__OW_DEADLINE"
"""Milliseconds since the epoch."""


def ready() -> Callable[[dict[str, Any]], Any]:
    """Return the action's function after starting a worker process: initialisation is not part of a call's time."""
    hide_memory()
    memory = int(os.environ.get(MEMORY_VARIABLE, "0")) << 20
    handler = Handler(reserve=RESERVED_MEMORY)
    handler.start(memory)

    def main(params: dict[str, Any]) -> Any:
        """Serve one call. The runtime decodes the parameters from JSON and encodes the result."""
        request = msgspec.convert(params, Request)
        left = int(os.environ[_DEADLINE_VARIABLE]) / 1000 - time.time()
        return msgspec.to_builtins(handler.handle(request, left, memory))

    return main
