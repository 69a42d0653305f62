"""Authentication of a request: signatures over its body, in three formats of senders. Pure; the time is an argument.

- Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
  HMAC-SHA256 over `id.timestamp.body`; several signatures in one header while a sender changes its secret.
- GitHub (https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries): HMAC-SHA256 over the body.
- A bearer token: the notifications of MinIO and SeaweedFS can send nothing else. It covers no part of the request.

A secret may hold several secrets, one a line: while a receiver changes its secret, any of them is accepted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..errors import TreadleError, UsageError

TOLERANCE = 300.0
"""Maximum difference in seconds between a signed timestamp and our clock, in both directions."""
_PREFIX = "whsec_"
_ID = re.compile(r"[A-Za-z0-9_\-:]{1,256}")
"""An id without a full stop: otherwise `id.timestamp.body` could be cut at another place and still be signed."""


class Unsigned(TreadleError):
    """The request does not prove its sender: the sender must sign it, with the secret of this trigger."""


class Signed(Struct, frozen=True):
    """The fields that a valid signature covers, besides the body."""

    id: str = ""
    time: float = 0.0
    """Seconds since the epoch; 0: the signature covers no time."""


def verify_standard(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> Signed:
    """Check `webhook-id`, `webhook-timestamp` and `webhook-signature`. Raises Unsigned; UsageError for the secret."""
    keys = standard_keys(secret)
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    id_, stamp, signatures = (headers.get(name, "") for name in names)
    if not (id_ and stamp and signatures):
        raise Unsigned(f"the headers {', '.join(names)} are needed", "Sign requests as Standard Webhooks says.")
    if not _ID.fullmatch(id_):
        raise Unsigned("webhook-id may hold letters, digits, _, - and : only, at most 256", "Send another id.")
    if not re.fullmatch(r"[0-9]{1,12}", stamp) or abs(int(stamp) - now) > TOLERANCE:
        raise Unsigned("webhook-timestamp is more than 5 minutes off", "Sign each try anew; set the clocks.")
    given = [entry.partition(",")[2] for entry in signatures.split(" ") if entry.startswith("v1,")]
    wanted = [_standard(key, id_, stamp, body) for key in keys]
    if not _any_equal(given, wanted):
        raise Unsigned("no v1 signature fits", "Sign `id.timestamp.body` with the secret of this trigger.")
    return Signed(id_, float(stamp))


def verify_github(secret: str, headers: Mapping[str, str], body: bytes) -> Signed:
    """Check `X-Hub-Signature-256`. Raises Unsigned; UsageError for the secret."""
    given = headers.get("x-hub-signature-256", "")
    wanted = ["sha256=" + hmac.digest(line.encode(), body, "sha256").hex() for line in _lines(secret)]
    if not _any_equal([given], wanted):
        raise Unsigned("X-Hub-Signature-256 is missing or does not fit", "Give the sender the secret of this trigger.")
    return Signed()


def verify_bearer(secret: str, headers: Mapping[str, str]) -> Signed:
    """Check `Authorization`: the secret itself, with or without `Bearer` before it. Raises the errors of
    `verify_github`.
    """
    given = headers.get("authorization", "")
    if not _any_equal([given.removeprefix("Bearer ")], _lines(secret)):
        raise Unsigned("the bearer token is missing or wrong", "Give the sender the secret of this trigger.")
    return Signed()


def sign_standard(secret: str, id_: str, now: float, body: bytes) -> dict[str, str]:
    """Return headers that `verify_standard` accepts, with one signature for each line of the secret."""
    stamp = str(int(now))
    signatures = ("v1," + _standard(key, id_, stamp, body) for key in standard_keys(secret))
    return {"webhook-id": id_, "webhook-timestamp": stamp, "webhook-signature": " ".join(signatures)}


def standard_keys(secret: str) -> list[bytes]:
    """The keys of `whsec_<base64>`, one a line. Raises UsageError, which does not show them."""
    try:
        keys = [base64.b64decode(line.removeprefix(_PREFIX), validate=True) for line in _lines(secret)]
    except binascii.Error:
        keys = []
    if not keys or not all(len(key) >= 16 for key in keys):
        raise UsageError(
            "the secret is not one of Standard Webhooks: base64 of at least 16 random bytes, after whsec_",
            "Make one: echo whsec_$(openssl rand -base64 32)",
        )
    return keys


def body_id(body: bytes) -> str:
    """Derive an id from the body alone."""
    return hashlib.sha256(body).hexdigest()[:40]


def _standard(key: bytes, id_: str, stamp: str, body: bytes) -> str:
    return base64.b64encode(hmac.digest(key, f"{id_}.{stamp}.".encode() + body, "sha256")).decode()


def _any_equal(given: Sequence[str], wanted: Sequence[str]) -> bool:
    """Compare every pair, in constant time for texts of one length, so that the duration reveals nothing."""
    found = [hmac.compare_digest(one.encode(), other.encode()) for one in given[:16] for other in wanted]
    return any(found)


def _lines(secret: str) -> list[str]:
    lines = [line.strip() for line in secret.splitlines() if line.strip()]
    if not lines:
        raise UsageError("the secret is empty", "Write one to its file.")
    return lines
