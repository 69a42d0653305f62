from __future__ import annotations

import hashlib
import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from treadle.primitives.errors import DataError, MissingError, StoreError, UsageError
from treadle.primitives.formats import (
    ReadOptions,
    check_output,
    claim_output,
    output_folder,
    plan_splits,
    read_split,
    write_manifest,
    write_part,
)
from treadle.primitives.formats.output_folder import PartInfo
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.stores.store import ObjectStore, Store
from treadle.primitives.testing.s3 import S3Endpoint


@pytest.fixture(params=["file", "path", "memory", "memory in parts"])
def uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if "parts" in request.param:
        monkeypatch.setattr(output_folder, "ONE_REQUEST", 1)
    if "memory" in request.param:
        return f"memory://{uuid.uuid4().hex}/out/counts"
    folder = tmp_path / "out put" / "counts"
    return folder.as_uri() if request.param == "file" else str(folder)


def _inside(uri: str) -> tuple[Store, str]:
    """(the store of the output, the prefix of its names there)."""
    if uri.startswith("memory://"):
        return Store.open(uri.removesuffix("/out/counts")), "out/counts/"
    return Store.open(uri if uri.startswith("file:") else Path(uri).as_uri()), ""


def _content(uri: str) -> dict[str, bytes]:
    store, prefix = _inside(uri)
    return {info.name.removeprefix(prefix): store.get(info.name) for info in store.list()}


def test_a_part_is_written_once_and_described(uri: str) -> None:
    part = write_part(uri, 7, [b"ab", memoryview(b"cd"), b""], "txt")
    assert part == PartInfo("part-00007.txt", 4, hashlib.sha256(b"abcd").hexdigest())
    assert _content(uri) == {"part-00007.txt": b"abcd"}


def test_the_folders_of_an_output_are_as_durable_as_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = list[str](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    write_part(str(tmp_path / "out" / "counts"), 7, [b"ab"], "txt")
    assert set(synced) == {str(tmp_path), str(tmp_path / "out"), str(tmp_path / "out" / "counts")}


def test_a_part_with_the_same_bytes_is_adopted(uri: str) -> None:
    assert write_part(uri, 0, [b"ab"], "txt") == write_part(uri, 0, [b"a", b"b"], "txt")


def test_a_part_with_other_bytes_is_refused_and_kept(uri: str) -> None:
    write_part(uri, 0, [b"ab"], "txt")
    with pytest.raises(DataError, match=r"(?s)part-00000\.txt is already there .* not deterministic"):
        write_part(uri, 0, [b"xy"], "txt")
    assert _content(uri) == {"part-00000.txt": b"ab"}


def test_a_large_part_for_an_object_store_is_never_held_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[object] = []
    create = ObjectStore.create

    def watched(store: ObjectStore, name: str, data: Any) -> bool:
        held.append(data)
        return create(store, name, data)

    monkeypatch.setattr(ObjectStore, "create", watched)
    monkeypatch.setattr(output_folder, "ONE_REQUEST", 1000)
    uri = f"memory://{uuid.uuid4().hex}/out"
    for index, size in enumerate([1000, 1001]):
        write_part(uri, index, [b"x"] * size, "txt")
    assert [isinstance(data, list) for data in held[:2]] == [True, False]


def test_parts_are_the_users_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_part(str(tmp_path / "out"), 0, [b"x"], "txt")
    finally:
        os.umask(before)
    assert (tmp_path / "out" / "part-00000.txt").stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path / "out") == ["part-00000.txt"]


def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StoreError, match="out"):
        write_part(str(tmp_path / "out"), 0, [b"x"], "txt")


@pytest.mark.parametrize(
    ("place", "why"), [("file/out", "a file where a folder"), ("/proc/out", "cannot be made there")]
)
def test_a_place_that_cannot_be_made_is_a_store_error(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "file").write_text("a file")
    for use in (lambda uri: claim_output(uri, "run"), lambda uri: write_part(uri, 0, [b"x"], "txt")):
        with pytest.raises(StoreError, match=why) as caught:
            use(str(tmp_path / place))
        assert not caught.value.retryable


def test_output_of_another_run_is_reported_before_the_claim(uri: str) -> None:
    assert check_output(uri, "one") == []
    claim_output(uri, "one")
    assert check_output(uri, "one") == []
    with pytest.raises(UsageError, match="already holds the output of run one"):
        check_output(uri, "two")
    assert check_output(uri, "two", "replace") == ["_owner.json"]
    claim_output(uri, "one")


def test_the_same_run_goes_on_and_another_is_refused(uri: str) -> None:
    claim_output(uri, "r1")
    write_part(uri, 0, [b"x"], "txt")
    claim_output(uri, "r1", "replace")
    assert set(_content(uri)) == {"_owner.json", "part-00000.txt"}
    with pytest.raises(UsageError, match=r"(?s)output of run r1 .*ifExists: replace"):
        claim_output(uri, "r2")


@pytest.mark.parametrize("name", ["part-00000.parquet", "_manifest.json"])
def test_output_without_a_marker_is_refused_too(uri: str, name: str) -> None:
    claim_output(uri, "r1")
    write_part(uri, 0, [b"x"], "parquet")
    write_manifest(uri, {})
    store, _ = _inside(uri)
    store.delete([info.name for info in store.list() if not info.name.endswith(name)])
    with pytest.raises(UsageError, match="output of something else"):
        claim_output(uri, "r2")


def test_replace_removes_only_files_of_a_run(uri: str) -> None:
    claim_output(uri, "r1")
    write_part(uri, 0, [b"x"], "txt")
    write_manifest(uri, {"run": "r1"})
    store, prefix = _inside(uri)
    store.put(f"{prefix}notes.md", b"mine")
    claim_output(uri, "r2", "replace")
    assert {name: data for name, data in _content(uri).items() if name != "_owner.json"} == {"notes.md": b"mine"}
    claim_output(uri, "r2")
    with pytest.raises(UsageError, match="run r2"):
        claim_output(uri, "r1")


def test_a_replaced_run_can_not_complete_its_output(uri: str) -> None:
    claim_output(uri, "r1")
    claim_output(uri, "r2", "replace")
    with pytest.raises(UsageError, match="run r2 has replaced"):
        write_manifest(uri, {"run": "r1"})


def test_a_manifest_is_written_once(uri: str) -> None:
    write_manifest(uri, {"run": "r1", "parts": ["é"]})
    write_manifest(uri, {"run": "r1", "parts": ["é"]})
    assert json.loads(_content(uri)["_manifest.json"]) == {"run": "r1", "parts": ["é"]}
    with pytest.raises(DataError, match="other content"):
        write_manifest(uri, {"run": "r1", "parts": []})


def test_of_two_runs_at_once_exactly_one_owns_the_output(uri: str) -> None:
    owners: list[str] = []
    start = threading.Barrier(8)

    def claim(run: str) -> None:
        start.wait()
        try:
            claim_output(uri, run)
            owners.append(run)
        except UsageError:
            pass

    threads = [threading.Thread(target=claim, args=(f"r{index}",)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(owners) == 1
    assert json.loads(_content(uri)["_owner.json"]) == {"run": owners[0]}


def test_on_a_real_s3_server_parts_are_written_once_and_read_back(
    s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    uri = f"s3://treadle/{uuid.uuid4().hex}/out"
    claim_output(uri, "r1")
    parts = [write_part(uri, index, [b"a\nb", b"b\n"], "txt") for index in (1, 0, 1)]
    with pytest.raises(DataError, match="other bytes"):
        write_part(uri, 1, [b"c"], "txt")
    write_manifest(uri, {"run": "r1"})
    with pytest.raises(UsageError, match="run r1"):
        claim_output(uri, "r2")
    listing = list_files(f"{uri}/*")
    assert [info.uri for info in listing] == [f"{uri}/{part.name}" for part in parts[1::-1]]
    splits = [split for info in listing for split in plan_splits(info, ReadOptions("text"), 2)]
    assert [line for split in splits for line in read_split(split)[1]] == ["a", "bb"] * 2
    claim_output(uri, "r2", "replace")
    with pytest.raises(MissingError, match="is gone since"):
        read_split(splits[0])
