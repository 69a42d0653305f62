"""AWS Secrets Manager and the parameters of Systems Manager, limited to one value each.

By the API references: both use JSON 1.1, a POST to `/` whose `X-Amz-Target` names the operation. Secrets Manager:
CreateSecret (`ResourceExistsException` if it exists), PutSecretValue, GetSecretValue (`ResourceNotFoundException`).
Systems Manager: PutParameter (`ParameterAlreadyExists` without Overwrite), GetParameter (`ParameterNotFound`; without
WithDecryption a SecureString's value stays encrypted).
"""

from __future__ import annotations

import json
from typing import Any

from emulators.lambda_emulator import REGION
from emulators.lambda_http import Reply, Request
from emulators.threaded import ThreadedServer


class KeyServices(ThreadedServer):
    """See the module. Runs in a thread of its own, from `start` to `stop`."""

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.reads = 0
        super().__init__("key services")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that calls it. A function's role gives it credentials in the same variables."""
        return {
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": self.endpoint,
            "AWS_ENDPOINT_URL_SSM": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
        }

    async def _answer(self, request: Request) -> Reply:
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        said = json.loads(request.body)
        match operation:
            case "CreateSecret" if said["Name"] in self.secrets:
                return _error("ResourceExistsException")
            case "CreateSecret":
                self.secrets[said["Name"]] = said["SecretString"]
            case "PutSecretValue":
                self.secrets[said["SecretId"]] = said["SecretString"]
            case "GetSecretValue":
                return self._read(self.secrets, said["SecretId"], "ResourceNotFoundException", "SecretString")
            case "PutParameter" if said["Name"] in self.parameters and not said.get("Overwrite"):
                return _error("ParameterAlreadyExists")
            case "PutParameter":
                assert said["Type"] == "SecureString"
                self.parameters[said["Name"]] = said["Value"]
            case "GetParameter":
                assert said["WithDecryption"]
                return self._read(self.parameters, said["Name"], "ParameterNotFound", "Value", "Parameter")
            case _:
                return _error("UnknownOperationException")
        return _reply({})

    def _read(self, known: dict[str, str], name: str, missing: str, field: str, around: str = "") -> Reply:
        self.reads += 1
        if name not in known:
            return _error(missing)
        found: dict[str, Any] = {"Name": name, field: known[name]}
        return _reply({around: found} if around else found)


def _reply(said: dict[str, Any], status: int = 200) -> Reply:
    return Reply(status, json.dumps(said).encode(), {"Content-Type": "application/x-amz-json-1.1"})


def _error(kind: str) -> Reply:
    return _reply({"__type": kind, "message": kind}, 400)
