"""The calls around CreateFunction, for functions on the emulated Lambda.

By the AWS Lambda API reference: CreateFunction (201; 409 ResourceConflictException if it exists), GetFunction,
GetFunctionConfiguration, ListFunctions, UpdateFunctionCode, UpdateFunctionConfiguration, DeleteFunction (204),
Put/Get/DeleteFunctionConcurrency, Put/GetFunctionEventInvokeConfig, ListTags and TagResource (GetFunction shows the
tags, FunctionConfiguration the `VpcConfig`). "Lambda function states" (developer guide): `State` is `Pending`, then
`Active`; `LastUpdateStatus` is `InProgress`, then `Successful`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

from emulators.lambda_code import runtime
from emulators.lambda_http import Reply, Request
from emulators.lambda_sandbox import Deployed, arn

ZIPPED_LIMIT, UNZIPPED_LIMIT = 50 << 20, 250 << 20
"""Developer guide, "Lambda quotas": deployment package, direct upload; and unzipped, with layers."""


RESERVED = {
    *("_HANDLER", "_X_AMZN_TRACE_ID", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EXECUTION_ENV"),
    *("AWS_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_LAMBDA_RUNTIME_API"),
}
"""Developer guide, "Defined runtime environment variables": some of the reserved ones."""


class Refused(Exception):
    """An error of the API."""

    def __init__(self, kind: str, message: str, status: int, reason: str = "") -> None:
        super().__init__(message)
        said = {"Type": "User" if status < 500 else "Service", "Message": message, "message": message}
        headers = {"x-amzn-ErrorType": kind}
        if reason:
            said["Reason"] = reason
        self.reply = Reply.json(said, status, headers)


class Functions:
    """The deployed functions by name."""

    def __init__(self, region: str, folder: Path) -> None:
        """`folder`: for the functions' code."""
        self.known: dict[str, Deployed] = {}
        self.tags: dict[str, dict[str, str]] = {}
        self.role_environment: dict[str, str] = {}
        """The environment of functions created from now on."""
        self.calls: list[tuple[str, str]] = []
        """(method, path) of every call, so that a test can check that nothing changed."""
        self._pending: dict[str, int] = {}
        """Function -> number of further answers that it is not ready."""
        self._region, self._folder = region, folder

    def of(self, name: str) -> Deployed:
        name = name.rpartition(":")[2] if name.startswith("arn:") else name
        if name not in self.known:
            raise Refused("ResourceNotFoundException", f"Function not found: {arn(name, self._region)}", 404)
        return self.known[name]

    async def answer(self, request: Request) -> Reply:
        self.calls.append((request.method, request.path))
        parts = request.path.strip("/").split("/")
        said = json.loads(request.body) if request.body else {}
        try:
            if parts[1] == "tags":
                return self._tagging(request.method, "/".join(parts[2:]), said)
            if len(parts) == 2:
                return self._create(said) if request.method == "POST" else self._list()
            what = f"{request.method} {parts[3]}" if len(parts) > 3 else request.method
            answers = {
                "GET": self._get,
                "DELETE": self._delete,
                "GET configuration": self._configuration,
                "PUT configuration": self._configure,
                "PUT code": self._update_code,
                "GET concurrency": self._concurrency,
                "PUT concurrency": self._reserve,
                "DELETE concurrency": self._release,
                "GET event-invoke-config": self._events,
                "PUT event-invoke-config": self._configure_events,
            }
            if what not in answers:
                raise Refused("UnknownOperationException", f"{what} {request.path} is not emulated", 404)
            return answers[what](self.of(parts[2]), said)
        except Refused as refused:
            return refused.reply

    # -- the function

    def _create(self, said: dict[str, Any]) -> Reply:
        name = said["FunctionName"]
        if name in self.known:
            raise Refused("ResourceConflictException", f"Function already exist: {name}", 409)
        function = Deployed(name, [], said["Handler"], 128, 3, {}, said["Runtime"], said["Role"])
        function.role_environment = dict(self.role_environment)
        self._take_code(function, said["Code"])
        self._settings(function, said)
        self.known[name], self._pending[name] = function, 1
        self.tags[arn(name, self._region)] = dict(said.get("Tags", {}))
        return Reply.json(self._described(function, "Pending"), 201)

    def _get(self, function: Deployed, said: dict[str, Any]) -> Reply:
        about: dict[str, Any] = {"Configuration": self._described(function)}
        about["Tags"] = self.tags.get(arn(function.name, self._region), {})
        if function.reserved is not None:
            about["Concurrency"] = {"ReservedConcurrentExecutions": function.reserved}
        return Reply.json(about)

    def _configuration(self, function: Deployed, said: dict[str, Any]) -> Reply:
        return Reply.json(self._described(function))

    def _configure(self, function: Deployed, said: dict[str, Any]) -> Reply:
        self._settle(function)
        self._settings(function, said)
        return self._updating(function)

    def _update_code(self, function: Deployed, said: dict[str, Any]) -> Reply:
        self._settle(function)
        self._take_code(function, said)
        return self._updating(function)

    def _delete(self, function: Deployed, said: dict[str, Any]) -> Reply:
        del self.known[function.name]
        self.tags.pop(arn(function.name, self._region), None)
        return Reply(204)

    def _list(self) -> Reply:
        return Reply.json({"Functions": [self._described(self.known[name]) for name in sorted(self.known)]})

    def _settle(self, function: Deployed) -> None:
        """A function cannot be changed before it is ready (UpdateFunctionCode, ResourceConflictException)."""
        if self._pending.get(function.name):
            text = "The operation cannot be performed at this time. An update is in progress for resource: "
            raise Refused("ResourceConflictException", text + arn(function.name, self._region), 409)

    def _updating(self, function: Deployed) -> Reply:
        function.revision += 1
        self._pending[function.name] = 1
        return Reply.json(self._described(function, update="InProgress"))

    def _settings(self, function: Deployed, said: dict[str, Any]) -> None:
        function.memory = said.get("MemorySize", function.memory)
        function.timeout = said.get("Timeout", function.timeout)
        function.handler = said.get("Handler", function.handler)
        function.role = said.get("Role", function.role)
        function.runtime = said.get("Runtime", function.runtime)
        function.network = said.get("VpcConfig", function.network)
        function.storage = said.get("EphemeralStorage", {}).get("Size", function.storage)
        if "Environment" in said:
            if taken := RESERVED & said["Environment"].get("Variables", {}).keys():
                text = "Lambda was unable to configure your environment variables because the environment variables "
                text += f"you have provided contains reserved keys that are currently not supported: {', '.join(taken)}"
                raise Refused("InvalidParameterValueException", text, 400)
            function.environment = dict(said["Environment"].get("Variables", {}))
        if not 128 <= function.memory <= 10_240 or not 1 <= function.timeout <= 900:
            raise Refused("InvalidParameterValueException", "MemorySize or Timeout is out of bounds", 400)
        if sum(len(name) + len(value) for name, value in function.environment.items()) > 4096:
            raise Refused("InvalidParameterValueException", "Environment variables exceed 4 KB", 400)

    def _take_code(self, function: Deployed, said: dict[str, Any]) -> None:
        data = base64.b64decode(said["ZipFile"])
        if len(data) > ZIPPED_LIMIT:
            raise Refused("RequestEntityTooLargeException", "Request must be smaller than 70167211 bytes", 413)
        digest = hashlib.sha256(data)
        folder = self._folder / digest.hexdigest()
        if not folder.is_dir():
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if sum(info.file_size for info in archive.infolist()) > UNZIPPED_LIMIT:
                    text = f"Unzipped size must be smaller than {UNZIPPED_LIMIT} bytes"
                    raise Refused("InvalidParameterValueException", text, 400)
                archive.extractall(folder / "task")
            runtime(folder)
        function.code = [str(folder / "task"), str(folder / "runtime")]
        function.zipped, function.digest = len(data), base64.b64encode(digest.digest()).decode()

    def _described(self, function: Deployed, state: str = "", update: str = "") -> dict[str, Any]:
        """FunctionConfiguration. A new or changed function reports once that it is not ready."""
        if not (state or update) and self._pending.get(function.name):
            self._pending[function.name] -= 1
            update = "InProgress"
        return {
            "FunctionName": function.name,
            "FunctionArn": arn(function.name, self._region),
            "Runtime": function.runtime,
            "Role": function.role,
            "Handler": function.handler,
            "CodeSize": function.zipped,
            "CodeSha256": function.digest,
            "Timeout": function.timeout,
            "MemorySize": function.memory,
            "Version": "$LATEST",
            "Environment": {"Variables": function.environment},
            "EphemeralStorage": {"Size": function.storage},
            **({"VpcConfig": {**function.network, "VpcId": "vpc-1"}} if function.network.get("SubnetIds") else {}),
            "RevisionId": str(function.revision),
            "State": state or "Active",
            "LastUpdateStatus": update or "Successful",
            "PackageType": "Zip",
            "Architectures": ["x86_64"],
        }

    # -- further settings

    def _concurrency(self, function: Deployed, said: dict[str, Any]) -> Reply:
        found = {} if function.reserved is None else {"ReservedConcurrentExecutions": function.reserved}
        return Reply.json(found)

    def _reserve(self, function: Deployed, said: dict[str, Any]) -> Reply:
        function.reserved = said["ReservedConcurrentExecutions"]
        return Reply.json({"ReservedConcurrentExecutions": function.reserved})

    def _release(self, function: Deployed, said: dict[str, Any]) -> Reply:
        function.reserved = None
        return Reply(204)

    def _events(self, function: Deployed, said: dict[str, Any]) -> Reply:
        if function.events_unset:
            raise Refused("ResourceNotFoundException", "The function doesn't have an EventInvokeConfig", 404)
        return Reply.json(self._event_config(function))

    def _configure_events(self, function: Deployed, said: dict[str, Any]) -> Reply:
        function.retries = said.get("MaximumRetryAttempts", 2)
        function.age = said.get("MaximumEventAgeInSeconds", 21_600)
        function.events_unset = False
        return Reply.json(self._event_config(function))

    def _event_config(self, function: Deployed) -> dict[str, Any]:
        return {
            "FunctionArn": f"{arn(function.name, self._region)}:$LATEST",
            "MaximumRetryAttempts": function.retries,
            "MaximumEventAgeInSeconds": function.age,
        }

    def _tagging(self, method: str, resource: str, said: dict[str, Any]) -> Reply:
        tags = self.tags.setdefault(resource, {})
        if method == "GET":
            return Reply.json({"Tags": tags})
        tags.update(said.get("Tags", {}))
        return Reply(204)
