"""Sessions: functions called from Python, whose calls outlive this process.

    from treadle.client import session

    with session("pricing") as s:
        f = s.submit(price, book, day=3)
        fs = s.map(price, books)
        print(f.result(), list(fs.results()))

A session is a run. Its calls are written before they count, and a driver runs them whether or not this process lives;
`attach` finds them again from another process. After PyWren (SoCC 2017), with the futures of `concurrent.futures`.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from treadle.primitives.errors import UsageError

if TYPE_CHECKING:
    from treadle.orchestrator.run_store.run_files import Submission

    from .connection import ClientConnection
    from .environment import ClientEnvironment
    from .open_session import Session
    from .submission import Prepared


def session(
    name: str = "session",
    *,
    id: str | None = None,
    executor: str | None = None,
    detach: bool = False,
    show: bool | None = None,
    reuse: bool = False,
    profile: str | None = None,
    home: str | PathLike[str] | None = None,
) -> Session:
    """Open a session: a new run, or the one with this `id` if there is one.

    - `name`: the beginning of the run's id.
    - `executor`: of calls that name none; default: that of the profile.
    - `detach`: leave the `with` block without waiting for the calls. They go on.
    - `show`: draw the progress of the calls, and print their output. Default: in a notebook, and in a script on a
      terminal.
    - `reuse`: take the results of equal calls of this session, for example after the kernel of a notebook was killed.
      A call is equal if its function, the values that this uses, and its arguments are; one that failed is not.
    - `profile`, `home`: as of `Client`.

    Raises UsageError for an id that belongs to the run of a workflow, Unreachable, StoreError.
    """
    from .connection import ClientConnection
    from .open_session import Session
    from .sync_client import wait_for

    connection = ClientConnection(profile, home)
    run = wait_for(_begun(connection, name, id, executor))
    return Session(connection, run, detach=detach, show=show, reuse=reuse)


def attach(
    run: str, *, show: bool | None = None, profile: str | None = None, home: str | PathLike[str] | None = None
) -> Session:
    """Open a session that was begun before, here or by another process.

    - `run`: its id, or as of `Client.attach`.
    - `show`, `profile`, `home`: as of `session`.

    On the embedded default, a driver is started if the calls need one. Raises NoSuchRun, and UsageError for the run of
    a workflow.
    """
    from treadle.orchestrator.run_store.run_files import Submission

    from .connection import ClientConnection
    from .open_session import Session
    from .sync_client import wait_for

    connection = ClientConnection(profile, home)
    found = wait_for(_found(connection, run))
    _check(connection.environment.files(found).load(Submission, "spec"))
    found_session = Session(connection, found, detach=True, show=show)
    found_session.look()
    return found_session


async def _found(connection: ClientConnection, run: str) -> str:
    from .run_lookup import find_to_read

    return await find_to_read(await connection.runs(), run)


async def _begun(connection: ClientConnection, name: str, id: str | None, executor: str | None) -> str:
    from treadle.orchestrator.run_store.call_log import session_submission
    from treadle.orchestrator.run_store.run_files import Submission

    from .submission import run_id

    run, env = run_id(id, name), connection.environment
    await connection.runs()
    known = env.files(run).find(Submission, "spec") if id else None
    if known is not None:
        _check(known)
    submission = session_submission(run, name, executor or env.profile.executor)
    await connection.start(_prepared(env, submission), "use" if id else "fail")
    return run


def _prepared(env: ClientEnvironment, submission: Submission) -> Prepared:
    """Raises UsageError for an executor that the profile does not have."""
    from treadle.orchestrator.plan.plan import session_plan

    from .submission import Prepared

    plan = session_plan("", submission.executor, env.capabilities(submission.executor))
    return Prepared(submission, b"", plan)


def _check(submission: Submission) -> None:
    """Raises UsageError for the run of a workflow."""
    from treadle.orchestrator.run_store.call_log import SESSION

    if SESSION not in submission.memo:
        text = f"run {submission.run} is the run of a workflow, not a session"
        raise UsageError(text, "Read it with Client().attach, or choose another id.")
