"""AWS IAM, limited to one role with one inline policy.

By the IAM API reference: a POST of a form whose `Action` names the operation; answers are XML. CreateRole
(`EntityAlreadyExists`), GetRole (with its tags; policy documents are URL-encoded, RFC 3986), TagRole, PutRolePolicy,
GetRolePolicy, UpdateAssumeRolePolicy, DeleteRolePolicy, DeleteRole (`DeleteConflict` while it has an inline policy);
`NoSuchEntity`, 404, for a missing resource.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, quote
from xml.sax.saxutils import escape

from emulators.lambda_http import Reply, Request
from emulators.threaded import ThreadedServer
from msgspec import Struct

ACCOUNT = "123456789012"


class Role(Struct):
    name: str
    trust: str
    tags: dict[str, str]
    policies: dict[str, str] = {}


class _Refused(Exception):
    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.code, self.status = code, status


class Iam(ThreadedServer):
    """See the module. Runs in a thread of its own, from `start` to `stop`."""

    def __init__(self) -> None:
        self.roles: dict[str, Role] = {}
        super().__init__("IAM")

    async def _answer(self, request: Request) -> Reply:
        said = dict(parse_qsl(request.body.decode(), keep_blank_values=True))
        action = said["Action"]
        try:
            inner = self._do(action, said)
        except _Refused as refused:
            body = (
                f"<ErrorResponse><Error><Type>Sender</Type><Code>{refused.code}</Code><Message>{refused.code}</Message>"
            )
            return Reply(refused.status, f"{body}</Error></ErrorResponse>".encode(), {"Content-Type": "text/xml"})
        text = f"<{action}Response><{action}Result>{inner}</{action}Result></{action}Response>"
        return Reply(200, text.encode(), {"Content-Type": "text/xml"})

    def _do(self, action: str, said: dict[str, str]) -> str:
        name = said["RoleName"]
        if action == "CreateRole":
            if name in self.roles:
                raise _Refused("EntityAlreadyExists", 409)
            self.roles[name] = Role(name, said["AssumeRolePolicyDocument"], _tags(said))
            return _described(self.roles[name])
        if name not in self.roles:
            raise _Refused("NoSuchEntity", 404)
        role = self.roles[name]
        match action:
            case "GetRole":
                return _described(role)
            case "TagRole":
                role.tags |= _tags(said)
            case "UpdateAssumeRolePolicy":
                role.trust = said["PolicyDocument"]
            case "PutRolePolicy":
                role.policies[said["PolicyName"]] = said["PolicyDocument"]
            case "GetRolePolicy" if said["PolicyName"] in role.policies:
                document = quote(role.policies[said["PolicyName"]], safe="")
                return f"<RoleName>{name}</RoleName><PolicyDocument>{document}</PolicyDocument>"
            case "DeleteRolePolicy" if said["PolicyName"] in role.policies:
                del role.policies[said["PolicyName"]]
            case "DeleteRole" if role.policies:
                raise _Refused("DeleteConflict", 409)
            case "DeleteRole":
                del self.roles[name]
            case _:
                raise _Refused("NoSuchEntity", 404)
        return ""


def _tags(said: dict[str, str]) -> dict[str, str]:
    """The query protocol numbers the entries of lists: `Tags.member.1.Key`."""
    numbers = {name.split(".")[2] for name in said if name.startswith("Tags.member.")}
    return {said[f"Tags.member.{each}.Key"]: said[f"Tags.member.{each}.Value"] for each in numbers}


def _described(role: Role) -> str:
    tags = "".join(
        f"<member><Key>{escape(key)}</Key><Value>{escape(value)}</Value></member>" for key, value in role.tags.items()
    )
    return (
        f"<Role><Path>/</Path><RoleName>{role.name}</RoleName><RoleId>AROAEXAMPLE</RoleId>"
        f"<Arn>arn:aws:iam::{ACCOUNT}:role/{role.name}</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate>"
        f"<AssumeRolePolicyDocument>{quote(role.trust, safe='')}</AssumeRolePolicyDocument>"
        f"<Tags>{tags}</Tags></Role>"
    )
