"""Credentials, region and endpoint in the AWS tools' shared files, with a real S3 server."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.stores.aws_config import aws_region
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, without any variable of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (tmp_path / ".aws").mkdir()
    return tmp_path


class Answering:
    """An HTTP server on loopback that answers every request with `reply`, and records the requests."""

    def __init__(self) -> None:
        self.reply: Any = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                body = owner.reply if isinstance(owner.reply, bytes) else json.dumps(owner.reply).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", '"1"')
                self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def answering() -> Iterator[Answering]:
    made = Answering()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def config(home: Path, text: str) -> None:
    (home / ".aws/config").write_text(text)


def credentials(home: Path, name: str, access: str, secret: str) -> None:
    with (home / ".aws/credentials").open("a") as file:
        file.write(f"[{name}]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n")


def works(s3: S3Endpoint) -> None:
    store = Store.open("s3://treadle", endpoint=s3.url)
    store.put("chain/a", b"1")
    assert store.get("chain/a") == b"1"


def signed_region(answering: Answering) -> str:
    """The region in the last request's `Credential=KEY/DATE/REGION/s3/aws4_request`."""
    return answering.asked[-1][1]["authorization"].split("/")[2]


def test_store_uses_the_default_profile_of_the_shared_files(home: Path, s3: S3Endpoint) -> None:
    credentials(home, "default", s3.access_key, s3.secret_key)
    works(s3)


def test_store_uses_the_profile_that_the_environment_names(
    home: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials(home, "default", "wrong", "wrong")
    credentials(home, "lab", s3.access_key, s3.secret_key)
    with pytest.raises(StoreError, match=r"refused the credentials|denied access"):
        works(s3)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    works(s3)


def test_variables_win_over_the_shared_files(home: Path, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials(home, "default", "wrong", "wrong")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret_key)
    works(s3)


def test_options_win_over_the_shared_files(home: Path, s3: S3Endpoint) -> None:
    credentials(home, "default", "wrong", "wrong")
    store = Store.open("s3://treadle", **s3.options)
    store.put("chain/a", b"1")


def test_store_signs_for_the_region_of_the_profile(
    home: Path, answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(home, f"[default]\nregion = eu-north-1\nendpoint_url = {answering.url}\n[profile far]\nregion = sa-east-1\n")
    credentials(home, "default", "key", "secret")
    answering.reply = b"data"
    assert Store.open("s3://bucket").get("a") == b"data"
    assert (signed_region(answering), aws_region()) == ("eu-north-1", "eu-north-1")
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    Store.open("s3://bucket").get("a")
    assert (signed_region(answering), aws_region()) == ("eu-west-3", "eu-west-3")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_PROFILE", "far")
    assert aws_region() == "sa-east-1"


def test_credentials_of_sso_come_from_its_cache(home: Path, answering: Answering) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    config(
        home,
        "[default]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = dev\nregion = eu-west-1\n"
        f"services = here\n[sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://x.awsapps.com/start\n"
        f"[services here]\nsso =\n  endpoint_url = {answering.url}\n",
    )
    cache = home / ".aws/sso/cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "of-the-cache", "expiresAt": later.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (cache / f"{hashlib.sha1(b'work').hexdigest()}.json").write_text(json.dumps(token))
    keys = {"accessKeyId": "of-sso", "secretAccessKey": "secret", "sessionToken": "session"}
    answering.reply = {"roleCredentials": {**keys, "expiration": int(later.timestamp() * 1000)}}
    program = (  # in another process, as botocore looks up its cache folder at import
        "import sys; from treadle.primitives.stores.store import Store;"
        "Store.open('s3://treadle', endpoint=sys.argv[1]).get('chain/a')"
    )
    subprocess.run([sys.executable, "-c", program, answering.url], check=True)
    assert answering.asked[0][1]["x-amz-sso_bearer_token"] == "of-the-cache"
    headers = answering.asked[1][1]
    assert "Credential=of-sso/" in headers["authorization"]
    assert headers["x-amz-security-token"] == "session"


def test_credentials_that_expire_are_asked_for_again(home: Path, s3: S3Endpoint) -> None:
    """The first credentials expire within the margin, and are wrong when used again."""
    script, count = home / "process.py", home / "count"
    soon, later = (datetime.now(UTC) + timedelta(**by) for by in ({"seconds": 62}, {"hours": 1}))
    script.write_text(
        "import json, pathlib, sys\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "number = len(count.read_text()) if count.exists() else 0\n"
        "count.write_text('x' * (number + 1))\n"
        f"print(json.dumps({{'Version': 1, 'AccessKeyId': {s3.access_key!r}, 'SecretAccessKey': {s3.secret_key!r},\n"
        f"    'Expiration': ({soon.isoformat()!r} if number < 2 else {later.isoformat()!r})}}))\n"
    )
    config(home, f"[default]\nregion = us-east-1\ncredential_process = {sys.executable} {script}\n")
    store = Store.open("s3://treadle", endpoint=s3.url)
    end = datetime.now(UTC) + timedelta(seconds=30)
    while len(count.read_text() if count.exists() else "") < 3 and datetime.now(UTC) < end:
        store.put("chain/a", b"1")
    assert len(count.read_text()) >= 3
    asked = count.read_text()
    store.put("chain/a", b"2")
    assert count.read_text() == asked, "those that are valid for an hour are kept"


def test_expired_sso_session_says_what_to_do_without_a_secret(home: Path) -> None:
    config(
        home,
        "[default]\nsso_session = work\nsso_account_id = 1\nsso_role_name = dev\nregion = eu-west-1\n"
        "[sso-session work]\nsso_region = eu-west-1\nsso_start_url = https://x.awsapps.com/start\n",
    )
    with pytest.raises(StoreError) as caught:
        Store.open("s3://bucket", endpoint="http://127.0.0.1:9").get("a")
    assert "SSO" in caught.value.message
    assert "aws sso login" in caught.value.hint


def test_secret_of_the_shared_files_is_in_no_error(home: Path) -> None:
    credentials(home, "default", "known", "very-secret-value")
    with pytest.raises(StoreError) as caught:
        Store.open("s3://bucket", endpoint="http://127.0.0.1:9").get("a")
    assert "very-secret-value" not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


def test_profile_that_does_not_exist_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(home, "[default]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(UsageError, match="absent"):
        Store.open("s3://bucket")


def test_profile_without_boto3_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(home, "[default]\nregion = eu-north-1\n")
    monkeypatch.setattr("treadle.primitives.stores.aws_config.find_spec", lambda _: None)
    Store.open("s3://bucket")
    monkeypatch.setenv("AWS_PROFILE", "default")
    with pytest.raises(UsageError, match="boto3 is not installed"):
        Store.open("s3://bucket")


def test_store_without_shared_files_imports_no_botocore(home: Path, s3: S3Endpoint) -> None:
    program = (
        "import sys; from treadle.primitives.stores.store import Store; Store.open('s3://treadle').put('a', b'1');"
        "assert 'botocore' not in sys.modules"
    )
    (home / ".aws").rmdir()
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, **s3.environment})
