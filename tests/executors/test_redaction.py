"""No usual encoding of a secret is left in a worker's output."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus, urlencode

import pytest
from executors.bench import Bench
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.failures import message_of
from treadle.executors.program import Call, MapRecords, SecretRef
from treadle.executors.redaction import Redactor
from treadle.primitives import functions

SECRET = "p/W0rd+käse=%20"
PEM = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0B\nAQEFAASCAUAwggE8AgEAAkEA\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "form",
    [
        str.upper,
        str.lower,
        quote,
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="").lower(),
        quote_plus,
        lambda text: urlencode({"password": text}),
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: repr(text.encode()),
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
    ],
)
def test_form_of_a_secret_is_masked(form: Callable[[str], str]) -> None:
    shown = Redactor({"token": SECRET}).text(f"before {form(SECRET)} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "***token***" in shown
    assert not any(part.lower() in shown.lower() for part in ("W0rd", b"W0rd".hex()))


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("after", range(4))
def test_base64_of_a_text_that_holds_a_secret_is_masked(
    encode: Callable[[bytes], bytes], before: int, after: int
) -> None:
    text = encode(b"x" * before + SECRET.encode() + b"y" * after).decode()
    shown = Redactor({"token": SECRET}).text(text)
    assert "***token***" in shown
    rest = shown.replace("***token***", "")
    assert len(rest.strip("=")) <= 6 + 2 * (before // 3 + after // 3 + 2)


def test_single_line_of_a_secret_of_several_lines_is_masked() -> None:
    redactor = Redactor({"key": PEM})
    assert redactor.text("line 2: AQEFAASCAUAwggE8AgEAAkEA") == "line 2: ***key***"
    assert redactor.text(PEM) == "***key***"


def test_short_line_of_a_secret_masks_nothing_by_itself() -> None:
    assert Redactor({"key": '{\n  "a": 1\n}'}).text("{}") == "{}"


def refuses(record: int, token: str) -> None:
    raise type(f"Refused_{token}", (ValueError,), {})("no")


def test_secret_in_the_name_of_an_exception_is_masked(bench: Bench) -> None:
    uses = Call(functions.reference(refuses), {"token": SecretRef("token")})
    failure = bench.failure(MapRecords("a", uses), source=[1], secrets=("token",))
    assert "s3cr3t" not in failure.error + failure.how + failure.traceback
    assert failure.error.endswith("Refused_***token***")


def test_secret_at_the_end_of_a_long_message_is_not_cut_in_two() -> None:
    shown = message_of(ValueError("x" * 4085 + SECRET), Redactor({"token": SECRET}))
    assert SECRET[:4] not in shown


@given(value=st.text(min_size=1), before=st.text(), after=st.text())
def test_exact_text_of_a_secret_is_always_replaced(value: str, before: str, after: str) -> None:
    assert "***name***" in Redactor({"name": value}).text(before + value + after)
