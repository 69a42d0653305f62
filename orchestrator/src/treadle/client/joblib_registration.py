"""treadle as a backend of joblib, which comes with an extra."""

from __future__ import annotations

from treadle.primitives.errors import UsageError


def register_joblib() -> None:
    """Make `treadle` a backend of joblib in this process: `parallel_config(backend="treadle")`.

    Parameters of the backend:

    - `session`: a session, or its `with_options(...)`. Default: each `Parallel` call has a session of its own.
    - `name`, `executor`, `profile`, `home`: settings of such a session, as of `session`.

    Raises UsageError without joblib.
    """
    try:
        from joblib import register_parallel_backend

        from .joblib_backend import SessionBackend
    except ModuleNotFoundError as error:
        if error.name != "joblib":
            raise
        raise UsageError("joblib is not installed", "pip install 'treadle-orchestrator[joblib]'") from error
    register_parallel_backend("treadle", SessionBackend)
