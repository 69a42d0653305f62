"""Start runs from Python, wait for them, read their results, and steer them (docs/client.md).

    from treadle.client import Client

    with Client() as client:
        run = client.run("wordcount.yaml", {"corpus": "books/*.txt"})
        print(run.outputs)

General layout: `async_client` and `sync_client` (the public classes), `client` (the verbs on Temporal and the store),
`environment` (home, profile, embedded server), `connection`, `documents`, `input_data`, `preparation` and
`submission` (from a workflow to a run that can start), `resumption`, `run_lookup` (from a name to a run), `progress`
and `run_status` (a run at one moment), `sessions`, `open_session`, `session_calls`, `call_sending`,
`session_executor`, `session_link`, `call_results`, `argument_values`, `session_display`, `map_reduction`,
`call_content`, `argument_futures`, `futures` and `project_modules` (functions that are called from Python),
`joblib_registration` and `joblib_backend` (joblib's batches as calls of a session), `attempt_logs`, `stage_data`,
`stage_checkpoints`, `garbage_collection`, `testing` (whole runs inside one process).
"""

from typing import TYPE_CHECKING

from treadle.primitives.lazy_import import late

if TYPE_CHECKING:
    from treadle.dsl.document.document import InvalidDocument
    from treadle.dsl.validation.inputs import InvalidInputs
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.environment.connection_errors import Unreachable
    from treadle.orchestrator.run_requests.requests import NoSuchRun
    from treadle.orchestrator.run_requests.run_views import RunEnd, RunFailure, RunView

    from .async_client import AsyncClient, AsyncRun, AsyncStage
    from .client import RunConflict
    from .errors import RunFailed, WorkerError
    from .futures import CallFailed, CallOutOfMemory, CallTimedOut, Future, Futures, SessionEnded, WorkerTraceback
    from .joblib_registration import register_joblib
    from .open_session import Session
    from .progress import StageView
    from .run_status import RunStatus
    from .session_calls import SessionCalls
    from .sessions import attach, session
    from .stage_checkpoints import StageCheckpoint
    from .sync_client import Client, Run, Stage

__all__ = [
    "AsyncClient",
    "AsyncRun",
    "AsyncStage",
    "AttemptRecord",
    "CallFailed",
    "CallOutOfMemory",
    "CallTimedOut",
    "Client",
    "Future",
    "Futures",
    "InvalidDocument",
    "InvalidInputs",
    "NoSuchRun",
    "Run",
    "RunConflict",
    "RunEnd",
    "RunFailed",
    "RunFailure",
    "RunStatus",
    "RunView",
    "Session",
    "SessionCalls",
    "SessionEnded",
    "Stage",
    "StageCheckpoint",
    "StageView",
    "Unreachable",
    "WorkerError",
    "WorkerTraceback",
    "attach",
    "register_joblib",
    "session",
]

__getattr__ = late(
    __name__,
    {
        **dict.fromkeys(("AsyncClient", "AsyncRun", "AsyncStage"), ".async_client"),
        **dict.fromkeys(("Client", "Run", "Stage"), ".sync_client"),
        "RunConflict": ".client",
        "NoSuchRun": "treadle.orchestrator.run_requests.requests",
        **dict.fromkeys(("RunFailed", "WorkerError"), ".errors"),
        **dict.fromkeys(("RunEnd", "RunFailure", "RunView"), "treadle.orchestrator.run_requests.run_views"),
        **dict.fromkeys(("CallFailed", "CallOutOfMemory", "CallTimedOut", "Future", "Futures"), ".futures"),
        **dict.fromkeys(("SessionEnded", "WorkerTraceback"), ".futures"),
        "Session": ".open_session",
        "SessionCalls": ".session_calls",
        **dict.fromkeys(("attach", "session"), ".sessions"),
        "register_joblib": ".joblib_registration",
        "RunStatus": ".run_status",
        "StageCheckpoint": ".stage_checkpoints",
        "StageView": ".progress",
        "AttemptRecord": "treadle.orchestrator.dispatcher.ledger.attempt_records",
        "InvalidDocument": "treadle.dsl.document.document",
        "InvalidInputs": "treadle.dsl.validation.inputs",
        "Unreachable": "treadle.orchestrator.environment.connection_errors",
    },
)
