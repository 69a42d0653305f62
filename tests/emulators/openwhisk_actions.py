"""The state of the emulated OpenWhisk: actions with their limits, activation records, counts per minute. No I/O.

Texts come from ErrorResponse.scala of apache/openwhisk, limits from docs/reference.md.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from treadle.executors.bundle.build import python_version

KINDS = tuple(dict.fromkeys(["python:3.10", "python:3.11", "python:3.12", f"python:{python_version()}"]))
"""The kinds of apache/openwhisk-runtime-python, and the Python that runs the actions here."""
MEGABYTE = 1 << 20


class Rejected(Exception):
    """The answer to a request: this status and {"error": ..., "code": ...}."""

    def __init__(self, status: int, error: str) -> None:
        super().__init__(error)
        self.status = status


@dataclass(frozen=True)
class SystemLimits:
    """docs/reference.md, "System limits". Smaller limits make tests short."""

    concurrent: int = 100
    per_minute: int = 120
    blocking_seconds: float = 60.0
    payload: int = MEGABYTE
    result: int = MEGABYTE
    code: int = 48 * MEGABYTE
    memory: tuple[int, int] = (128, 512)
    """Megabytes."""
    milliseconds: tuple[int, int] = (100, 300_000)


class Given(NamedTuple):
    """Parameters of a call, merged with the action's."""

    environment: dict[str, Any]
    """Parameters marked `init`, which count at the start of the container."""
    arguments: dict[str, Any]


@dataclass(eq=False)
class Action:
    name: str
    document: dict[str, Any]
    version: int = 1

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self.document["limits"]["memory"]) * MEGABYTE

    @property
    def seconds(self) -> float:
        return float(self.document["limits"]["timeout"]) / 1000

    @property
    def bound(self) -> dict[str, Any]:
        """The action's own parameters."""
        return {each["key"]: each["value"] for each in self.document.get("parameters", [])}

    def given(self, payload: dict[str, Any]) -> Given:
        """The parameters of a call (PrimitiveActions.scala, ContainerProxy.partitionArguments). Raises Rejected when
        the call replaces a `final` one (annotations.md)."""
        final = any(each["key"] == "final" and each["value"] is True for each in self.document.get("annotations", []))
        if final and self.bound.keys() & payload.keys():
            raise Rejected(400, "Request defines parameters that are not allowed (e.g., reserved properties).")
        init = {each["key"] for each in self.document.get("parameters", []) if each.get("init")}
        merged = self.bound | payload
        return Given(
            {key: value for key, value in merged.items() if key in init},
            {key: value for key, value in merged.items() if key not in init},
        )


DEFAULTS = {"timeout": 60_000, "memory": 256, "logs": 10, "concurrency": 1}


def put_action(
    name: str, given: dict[str, Any], before: Action | None, overwrite: bool, limits: SystemLimits
) -> Action:
    """Actions.scala: `create`. Keys missing in an update keep their values."""
    if before is not None and not overwrite:
        raise Rejected(409, "resource already exists")
    old = before.document if before else {"limits": DEFAULTS, "annotations": [], "parameters": []}
    document = old | {key: given[key] for key in ("exec", "annotations", "parameters") if key in given}
    document["limits"] = old["limits"] | given.get("limits", {})
    if "exec" not in document:
        raise Rejected(400, "exec undefined")
    _check_limits(document["limits"], limits)
    kind = document["exec"].get("kind", "")
    if kind != "blackbox" and kind not in KINDS:
        valid = ", ".join(f"'{each}'" for each in KINDS)
        raise Rejected(
            400, f"The specified runtime '{kind}' is not supported by this platform. Valid values are: {valid}."
        )
    size = len(document["exec"].get("code", ""))
    if size > limits.code:
        raise Rejected(413, f"exec larger than allowed: {size} > {limits.code} bytes.")
    return Action(name, document, before.version + 1 if before else 1)


def _check_limits(asked: dict[str, Any], limits: SystemLimits) -> None:
    least, most = limits.memory
    if not least <= asked["memory"] <= most:
        raise Rejected(400, f"memory size {asked['memory']} MB exceeds allowed threshold of {most} MB")
    least, most = limits.milliseconds
    if not least <= asked["timeout"] <= most:
        raise Rejected(400, f"timeout {asked['timeout']} milliseconds exceeds allowed threshold of {most} milliseconds")


@dataclass
class Minute:
    """RateThrottler.scala: calls are counted by the minute of the clock, refused ones included."""

    number: int = 0
    count: int = 0

    def charge(self, allowed: int, now: float) -> None:
        if int(now // 60) != self.number:
            self.number, self.count = int(now // 60), 0
        self.count += 1
        if self.count > allowed:
            raise Rejected(429, f"Too many requests in the last minute (count: {self.count}, allowed: {allowed}).")


@dataclass
class Activation:
    """One call; `docs/actions.md`, "Understanding the activation record"."""

    action: Action
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    begun: float = field(default_factory=time.time)
    ended: float = 0.0
    code: int = 0
    result: Any = None
    logs: list[str] = field(default_factory=list)
    init_milliseconds: int = 0
    """0: the container was warm."""
    waited_milliseconds: int = 0
    """Wait for a container (annotations.md, `waitTime`)."""

    def end(self, code: int, result: Any) -> None:
        self.code, self.result, self.ended = code, result, time.time()

    def record(self, with_logs: bool = True) -> dict[str, Any]:
        words = ("success", "application error", "action developer error", "whisk internal error")
        notes: list[dict[str, Any]] = [
            {"key": "path", "value": f"guest/{self.action.name}"},
            {"key": "kind", "value": self.action.document["exec"]["kind"]},
            {"key": "limits", "value": self.action.document["limits"]},
        ]
        if self.waited_milliseconds:
            notes.append({"key": "waitTime", "value": self.waited_milliseconds})
        if self.init_milliseconds:
            notes.append({"key": "initTime", "value": self.init_milliseconds})
        return {
            "activationId": self.id,
            "namespace": "guest",
            "name": self.action.name,
            "version": f"0.0.{self.action.version}",
            "start": int(self.begun * 1000),
            "end": int(self.ended * 1000),
            "duration": int((self.ended - self.begun) * 1000),
            "annotations": notes,
            "logs": self.logs if with_logs else [],
            "publish": False,
            "response": {
                "status": words[self.code],
                "statusCode": self.code,
                "success": self.code == 0,
                "result": self.result,
            },
        }

    def interpret(self, status: int, body: bytes, most: int, initialising: bool) -> None:
        """ActivationResult.scala: classifies the container's answer."""
        if status == 0:
            said = "The action did not initialize and exited unexpectedly."
            if not initialising:
                said = "The action did not produce a valid response and exited unexpectedly."
            return self.end(2, {"error": said})
        if len(body) > most:
            allowed = f"{len(body)} > {most} bytes."
            return self.end(1, {"error": f"The action produced a response that exceeded the allowed length: {allowed}"})
        value = json.loads(body)
        if status != 200:
            return self.end(2, {"error": value["error"]})
        if isinstance(value, dict) and "error" in value:
            return self.end(1, {"error": value["error"]})
        return self.end(0, value)
