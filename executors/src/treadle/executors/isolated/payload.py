"""What an isolated attempt is given and gives back: JSON documents of bounded size, sealed under the run's key."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from treadle.primitives import trust
from treadle.primitives.errors import UsageError
from treadle.primitives.store import Store

from ..program import Failure, Outcome, Report, Task

PAYLOAD_LIMIT = 6 << 20
"""Bytes of a request or a response: what providers of functions allow."""

KEY_VARIABLE = "TREADLE_KEY_FILE"
"""Names the file with the deployment key, mode 0600."""
MEMORY_VARIABLE = "TREADLE_MEMORY"
"""Bytes an attempt may allocate when its task does not say; 0 or absent: no limit."""

SECRET_PREFIX = "TREADLE_SECRET_"
"""Before the upper-case name of a secret, in the environment of workers."""

_TASK = "task"


class Request(Struct, frozen=True):
    run: str
    """Tells which key the task is sealed with."""
    task: str
    """Base64 of the sealed task."""


class Response(Struct, frozen=True):
    """The sealed reports: here in Base64, or in the store when they are too long for that."""

    reports: str = ""
    stored: str = ""


_reports = msgspec.msgpack.Decoder(list[Outcome | Failure])


def encode_request(task: Task, key: bytes) -> bytes:
    """Raises UsageError when the task does not fit into a payload."""
    sealed = trust.seal(key, _TASK, msgspec.msgpack.encode(task))
    request = msgspec.json.encode(Request(task.job.run, base64.b64encode(sealed).decode()))
    if len(request) > PAYLOAD_LIMIT:
        raise UsageError(
            f"task {task.id} is {len(request)} bytes as a payload; {PAYLOAD_LIMIT} are allowed",
            "Put fewer partitions into a task, keep large items in files, or lower the inline limit of blocks.",
        )
    return request


def decode_request(request: Request, key: bytes) -> Task:
    """Raises CorruptError unless a holder of the key sealed it."""
    sealed = base64.b64decode(request.task)
    return msgspec.msgpack.decode(trust.unseal(key, _TASK, sealed), type=Task)


def encode_response(task: Task, reports: list[Report], key: bytes) -> bytes:
    """The response; reports that are too long for one are put in the store of the task. May raise StoreError."""
    sealed = trust.seal(key, _reports_of(task), msgspec.msgpack.encode(reports))
    response = msgspec.json.encode(Response(reports=base64.b64encode(sealed).decode()))
    if len(response) <= PAYLOAD_LIMIT:
        return response
    name = f"runs/{task.job.run}/responses/{secrets.token_hex(12)}"
    Store.open(task.job.store).put(name, sealed)
    return msgspec.json.encode(Response(stored=name))


def decode_response(task: Task, response: bytes, key: bytes) -> list[Report]:
    """The reports; an object in the store is read and removed. Raises CorruptError, MissingError or StoreError."""
    answer = msgspec.json.decode(response, type=Response)
    if answer.stored:
        store = Store.open(task.job.store)
        sealed = store.get(answer.stored)
        store.delete([answer.stored])
    else:
        sealed = base64.b64decode(answer.reports)
    return list(_reports.decode(trust.unseal(key, _reports_of(task), sealed)))


def secrets_of(task: Task, environment: Mapping[str, str]) -> dict[str, str]:
    """Secrets of the task by name; what the environment lacks is left out."""
    variables = {name: SECRET_PREFIX + re.sub("[-.]", "_", name).upper() for name in task.program.secrets}
    return {name: environment[variable] for name, variable in variables.items() if variable in environment}


def _reports_of(task: Task) -> str:
    """Ties the reports to one attempt: those of another must not be taken for them."""
    return f"reports of {task.id}: {' '.join(f'{one.index}.{one.attempt}' for one in task.partitions)}"
