from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
import pytest

from treadle.primitives.errors import MissingError, StoreError, UsageError
from treadle.primitives.stores import atomic_files
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint
from treadle.primitives.testing.store import StoreTests


class TestFileStore(StoreTests):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return Store.open((tmp_path / "a store").as_uri())

    def test_files_and_folders_are_private_for_every_umask(self, store: Store) -> None:
        before = os.umask(0)
        try:
            store.put("a/put", b"1")
            store.create("b/created", b"1")
        finally:
            os.umask(before)
        for name in ("a/put", "b/created"):
            path = store.path(name)
            assert path is not None
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for folder in (path.parent, path.parent.parent):
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def test_a_created_object_and_every_new_folder_is_synced(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        for call in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, call, _spy_on(getattr(os, call), synced))
        store.create("a/b/c", b"1")
        folder = store.path("a")
        assert folder is not None
        assert {str(folder.parent), str(folder), str(folder / "b")} <= set(synced)
        assert any(name.startswith(f"{folder}/b/.tmp-") for name in synced)

    def test_a_full_disk_leaves_neither_the_object_nor_a_remainder(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put("a/x", b"old")
        monkeypatch.setattr(os, "writev", _full_disk)
        with pytest.raises(StoreError, match="is full") as caught:
            store.put("a/x", b"new")
        assert "nothing committed is lost" in caught.value.hint
        assert not caught.value.retryable
        with pytest.raises(StoreError, match="is full"):
            store.create("a/y", b"new")
        assert [info.name for info in store.list()] == ["a/x"]
        assert os.listdir(store.path("a")) == ["x"]
        assert store.get("a/x") == b"old"

    def test_remains_of_a_killed_writer_are_not_listed_as_an_object(self, store: Store) -> None:
        code = f"""
            import os
            from treadle.primitives.stores.store import Store
            os.rename = os.link = lambda *_: os._exit(9)
            Store.open({store.url!r}).{{call}}("a/x", b"12345")
        """
        for call in ("put", "create"):
            script = textwrap.dedent(code).format(call=call)
            assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
        assert len(os.listdir(store.path("a"))) == 2
        assert list(store.list()) == []
        with pytest.raises(MissingError):
            store.get("a/x")
        store.delete_prefix("a")
        assert not os.path.exists(store.path("a") or "")

    def test_writes_the_kernel_takes_in_bits_are_completed(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        real = os.writev
        monkeypatch.setattr(os, "writev", lambda descriptor, views: real(descriptor, [bytes(views[0][:7])]))
        pieces = [bytes([index]) * index for index in range(30)]
        store.put("a", pieces)
        assert store.get("a") == b"".join(pieces)

    def test_vectors_are_bounded_in_number_and_bytes(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(atomic_files, "_MAX_BYTES", 1000)
        real, seen = os.writev, []

        def spy(descriptor: int, views: list[memoryview]) -> int:
            seen.append((len(views), sum(map(len, views))))
            return real(descriptor, views)

        monkeypatch.setattr(os, "writev", spy)
        pieces = [b"x"] * 2000 + [b"y" * 5000]
        store.put("a", pieces)
        assert store.get("a") == b"".join(pieces)
        assert max(count for count, _ in seen) <= 1000
        assert max(size for _, size in seen) <= 1000

    def test_a_file_where_a_folder_is_needed_is_explained(self, store: Store) -> None:
        store.put("a", b"")
        with pytest.raises(StoreError, match="file where a folder is needed"):
            store.put("a/b", b"")


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store(self) -> Store:
        return Store.open(f"memory://{uuid.uuid4()}")

    @pytest.mark.parametrize("strict", [False, True], ids=["", "one that is not there is an error"])
    def test_many_objects_go_with_few_requests(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, strict: bool
    ) -> None:
        requests: list[object] = []
        delete = obstore.delete

        def counted(inner: Any, names: str | list[str]) -> None:
            requests.append(names)
            if strict and isinstance(names, list):
                delete(inner, names[: len(names) // 2])
                raise FileNotFoundError(names[len(names) // 2])
            delete(inner, names)

        monkeypatch.setattr(obstore, "delete", counted)
        for number in range(1500):
            store.put(f"a/{number}", b"")
        store.put("b", b"")
        store.delete_prefix("a")
        assert [info.name for info in store.list()] == ["b"]
        assert len(requests) == (2 + 1500 if strict else 2)

    def test_stores_of_different_urls_share_nothing(self, store: Store) -> None:
        store.put("a", b"1")
        assert Store.open(f"{store.url}-other").head("a") is None

    def test_objects_of_a_remote_store_have_no_file_path(self, store: Store) -> None:
        assert store.path("a") is None


class TestS3Store(StoreTests):
    @pytest.fixture
    def store(self, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Store:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        return Store.open(f"s3://treadle/{uuid.uuid4()}/")

    def test_options_have_the_effect_of_the_environment(
        self, store: Store, s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in s3.environment:
            monkeypatch.delenv(name)
        again = Store.open(store.url, **s3.options)
        store.put("a", b"1")
        assert again.get("a") == b"1"

    @pytest.mark.parametrize("call", ["get", "put", "head", "list"])
    @pytest.mark.parametrize("wrong", ["access_key_id", "secret_access_key"])
    def test_wrong_credentials_say_which_variables_to_set(
        self, store: Store, s3: S3Endpoint, wrong: str, call: str
    ) -> None:
        stranger = Store.open(store.url, **{**s3.options, wrong: "of-somebody-else"})
        with pytest.raises(StoreError, match=r"credentials|denied") as caught:
            _CALLS[call](stranger)
        assert "AWS_SECRET_ACCESS_KEY" in caught.value.hint
        assert not caught.value.retryable

    @pytest.mark.usefixtures("store")
    @pytest.mark.parametrize("call", ["get", "put", "list"])
    def test_a_missing_bucket_is_not_a_missing_object(self, call: str) -> None:
        with pytest.raises(StoreError, match="no such bucket"):
            _CALLS[call](Store.open("s3://no-such-bucket/x"))


_CALLS: dict[str, Callable[[Store], object]] = {
    "get": lambda store: store.get("a"),
    "put": lambda store: store.put("a", b""),
    "head": lambda store: store.head("a"),
    "list": lambda store: list(store.list()),
}


def test_a_server_that_does_not_answer_is_retryable_and_names_the_endpoint() -> None:
    options = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    store = Store.open("s3://bucket", endpoint="http://127.0.0.1:9", **options)
    with pytest.raises(StoreError, match="not reachable") as caught:
        store.get("a")
    assert caught.value.retryable
    assert "AWS_ENDPOINT_URL" in caught.value.hint
    assert caught.value.__cause__ is not None


@pytest.fixture
def failing_server() -> Iterator[Callable[[int, str], str]]:
    """Starts servers that answer every request with one status and S3 error code. Returns their URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(status: int, code: str) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = f"<Error><Code>{code}</Code></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,)).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "words", "retryable"),
    [
        (503, "SlowDown", "throttling", True),
        (429, "TooManyRequests", "throttling", True),
        (500, "InternalError", "failed for a reason of its own", True),
        (403, "AccessDenied", "denied access", False),
        (403, "ExpiredToken", "refused the credentials", False),
        (404, "NoSuchBucket", "no such bucket", False),
    ],
)
def test_answer_of_a_server_decides_about_a_retry(
    failing_server: Callable[[int, str], str], status: int, code: str, words: str, retryable: bool
) -> None:
    endpoint = failing_server(status, code)
    store = Store.open("s3://bucket", endpoint=endpoint, access_key_id="a", secret_access_key="b")
    with pytest.raises(StoreError, match=words) as caught:
        store.get("a/timeout")
    assert caught.value.retryable is retryable
    assert caught.value.throttled is (words == "throttling")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("number", "words", "retryable"),
    [
        (errno.EACCES, "denied access", False),
        (errno.EROFS, "read-only", False),
        (errno.EDQUOT, "quota", False),
        (errno.EIO, "Input/output error", True),
        (errno.EMFILE, "Too many open files", True),
    ],
)
def test_refusal_of_a_file_system_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str, retryable: bool
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(number, os.strerror(number))

    store = Store.open(tmp_path.as_uri())
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=words) as caught:
        store.put("a", b"")
    assert caught.value.retryable is retryable


def test_impossible_folder_is_not_reported_as_a_missing_object() -> None:
    store = Store.open("file:///proc/treadle")
    for write in (store.put, store.create):
        with pytest.raises(StoreError, match="cannot be made there") as caught:
            write("a", b"")
        assert not caught.value.retryable
    with pytest.raises(MissingError):
        store.get("a")


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
def test_the_endpoint_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    store = Store.open("s3://bucket", access_key_id="a", secret_access_key="b")
    with pytest.raises(StoreError, match="not reachable"):
        store.get("a")


def test_plain_http_off_loopback_needs_to_be_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="plain HTTP"):
        Store.open("s3://bucket", endpoint="http://storage.example.com")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    Store.open("s3://bucket", endpoint="http://storage.example.com", access_key_id="a", secret_access_key="b")


@pytest.mark.parametrize(
    "url", ["", "/folder", "file://folder/x", "file:x", "ftp://x/y", "s3://", "s3://b/p?versionId=3", "file:///x#y"]
)
def test_url_without_a_store_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        Store.open(url)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(UsageError, match="colour"):
        Store.open("s3://bucket", colour="blue")
    with pytest.raises(UsageError, match="colour"):
        Store.open("memory://x", colour="blue")


def _spy_on(call: Callable[[int], None], names: list[str]) -> Callable[[int], None]:
    def spy(descriptor: int) -> None:
        names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        call(descriptor)

    return spy


def _full_disk(descriptor: int, views: list[memoryview]) -> int:
    if os.fstat(descriptor).st_size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return os.write(descriptor, views[0][:1])
