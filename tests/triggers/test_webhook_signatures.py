"""A request without a valid signature, or with an old one, is refused. A signed request cannot be moved or changed."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import UsageError
from treadle.primitives.events.signatures import (
    Signed,
    Unsigned,
    sign_standard,
    standard_keys,
    verify_bearer,
    verify_github,
    verify_standard,
)

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef01234567").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of a sender").decode()
NOW = 1_760_000_000.0


def test_the_example_of_the_standard_is_accepted() -> None:
    """The test vector of the libraries of Standard Webhooks."""
    secret, id_, stamp = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
    headers = sign_standard(secret, id_, stamp, b'{"test": 2432232314}')
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert verify_standard(secret, headers, b'{"test": 2432232314}', stamp) == Signed(id_, stamp)


@given(st.binary(max_size=100), st.text("abcDEF019_-:", min_size=1, max_size=30), st.floats(-299, 299))
def test_signed_request_is_accepted_within_five_minutes(body: bytes, id_: str, late: float) -> None:
    headers = sign_standard(SECRET, id_, NOW, body)
    assert verify_standard(SECRET, headers, body, NOW + late) == Signed(id_, NOW)


@pytest.mark.parametrize("late", [-302, 302, 1e9])
def test_an_old_request_is_refused(late: float) -> None:
    headers = sign_standard(SECRET, "a", NOW, b"x")
    with pytest.raises(Unsigned, match="5 minutes"):
        verify_standard(SECRET, headers, b"x", NOW + late)


@given(st.data())
def test_a_changed_request_is_refused(data: st.DataObject) -> None:
    body = b'{"amount": 1}'
    headers = sign_standard(SECRET, "msg_1", NOW, body)
    name = data.draw(st.sampled_from([*headers, "body"]))
    if name == "body":
        position = data.draw(st.integers(0, len(body) - 1))
        body = body[:position] + bytes([body[position] ^ data.draw(st.integers(1, 255))]) + body[position + 1 :]
    elif name == "webhook-signature":
        headers[name] = "v1," + data.draw(st.text("abcd0123+/=", max_size=44))
    else:
        headers[name] = data.draw(st.sampled_from(["", "1", "msg_2", str(int(NOW) + 1), "-1", "1e9", "٣", " "]))
    with pytest.raises(Unsigned):
        verify_standard(SECRET, headers, body, NOW)


def test_the_boundary_between_id_time_and_body_cannot_move() -> None:
    body = f"{int(NOW)}.5".encode()  # JSON, too
    headers = sign_standard(SECRET, "msg", NOW, body)
    moved = {**headers, "webhook-id": f"msg.{int(NOW)}"}
    assert f"{moved['webhook-id']}.{int(NOW)}.5".encode() == b"msg.%d." % int(NOW) + body, "the same signed bytes"
    with pytest.raises(Unsigned):
        verify_standard(SECRET, moved, b"5", NOW)


def test_secrets_are_changed_without_a_lost_request() -> None:
    new_sender = sign_standard(f"{SECRET}\n{OTHER}", "a", NOW, b"x")
    assert new_sender["webhook-signature"].count("v1,") == 2
    for receiver in (SECRET, OTHER, f"{OTHER}\n{SECRET}"):
        verify_standard(receiver, new_sender, b"x", NOW)
    verify_standard(f"{OTHER}\n{SECRET}", sign_standard(SECRET, "a", NOW, b"x"), b"x", NOW)
    with pytest.raises(Unsigned):
        verify_standard(OTHER, sign_standard(SECRET, "a", NOW, b"x"), b"x", NOW)


def test_versions_of_signatures_that_are_not_ours_do_not_count() -> None:
    headers = sign_standard(SECRET, "a", NOW, b"x")
    only = headers["webhook-signature"]
    verify_standard(SECRET, {**headers, "webhook-signature": f"v1a,AAAA v2,BBBB {only}"}, b"x", NOW)
    for version in ("v1a", "v2", "V1", ""):
        with pytest.raises(Unsigned):
            verify_standard(SECRET, {**headers, "webhook-signature": only.replace("v1", version)}, b"x", NOW)


@pytest.mark.parametrize("secret", ["", "\n", "whsec_", "whsec_AAAA", "whsec_tooshort", "not base64 at all!!"])
def test_a_secret_that_is_none_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(UsageError) as caught:
        standard_keys(secret)
    assert not secret.strip("\n").removeprefix("whsec_") or secret not in str(caught.value)


@pytest.mark.parametrize("secret", ["", "\n", " \n\t\n"])
def test_empty_secret_refuses_every_request(secret: str) -> None:
    empty = "sha256=" + hmac.new(b"", b"x", hashlib.sha256).hexdigest()
    for whole in (secret, f"one{secret}\n\ntwo\n"):
        refused = UsageError if whole == secret else Unsigned
        with pytest.raises(refused):
            verify_bearer(whole, {"authorization": "Bearer "})
        with pytest.raises(refused):
            verify_github(whole, {"x-hub-signature-256": empty}, b"x")


def test_github_signs_the_body() -> None:
    body = b"Hello, World!"
    given = hmac.new(b"It's a Secret to Everybody", body, hashlib.sha256).hexdigest()
    assert given == "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", "the example of GitHub's page"
    verify_github("It's a Secret to Everybody", {"x-hub-signature-256": f"sha256={given}"}, body)
    for headers in ({}, {"x-hub-signature-256": given}, {"x-hub-signature-256": "sha256=" + "0" * 64}):
        with pytest.raises(Unsigned):
            verify_github("It's a Secret to Everybody", headers, body)
    with pytest.raises(Unsigned):
        verify_github("It's a Secret to Everybody", {"x-hub-signature-256": f"sha256={given}"}, body + b"!")


def test_a_bearer_token_is_the_secret() -> None:
    verify_bearer("token-1\ntoken-2", {"authorization": "Bearer token-2"})
    verify_bearer("token-1", {"authorization": "token-1"})
    for headers in ({}, {"authorization": "Bearer token-3"}, {"authorization": "Bearer "}, {"authorization": "é"}):
        with pytest.raises(Unsigned):
            verify_bearer("token-1", headers)
