"""A triggered run uses no URI outside the profile's prefixes, for any content of the event."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from orchestrator.planner.test_planner import plan

from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.run_store.run_files import Submission
from treadle.orchestrator.run_store.uri_policy import Forbidden, check_allowed, check_found, is_below
from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.stores.input_files import glob_matches

BASE = Path("/srv/project")


def submission(inputs: dict[str, Any], stages: dict[str, Any] | None = None, **types: str) -> Submission:
    spec = {"name": "w", "inputs": {name: {"type": kind} for name, kind in types.items()}, "stages": stages or {}}
    return Submission("w.t.1", spec, inputs, "", {}, str(BASE))


@pytest.mark.parametrize(
    ("uri", "prefix"),
    [
        ("s3://lake/orders/a.csv", "s3://lake/orders/"),
        ("s3://lake/orders/a.csv", "s3://lake/orders"),
        ("s3://lake/orders/*.csv", "s3://lake/orders/"),
        ("s3://lake/orders/**/x", "s3://lake"),
        ("s3://any/thing", "s3://"),
        ("data/x.csv", "/srv/project"),
        ("/srv/project/data/*.csv", "/srv/project/data/"),
        ("file:///srv/project/x", "/srv/project"),
        ("out/*/../x", "/srv/project"),
    ],
)
def test_path_below_a_prefix_is_allowed(uri: str, prefix: str) -> None:
    assert is_below(uri, prefix, BASE)


@pytest.mark.parametrize(
    ("uri", "prefix"),
    [
        ("s3://lakehouse/a", "s3://lake"),
        ("s3://lake/orders-secret/a", "s3://lake/orders"),
        ("s3://lake/orders*/a", "s3://lake/orders"),
        ("s3://lake/ord*", "s3://lake/orders"),
        ("s3://lake/*", "s3://lake/orders"),
        ("s3://lak*/orders/a", "s3://lake/orders"),
        ("s3://*", "s3://"),
        ("s3://lake/orders/../private/a", "s3://lake/orders"),
        ("s3://lake/orders/%2e%2e/private/a", "s3://lake/orders"),
        ("gs://lake/orders/a", "s3://lake/orders"),
        ("/etc/passwd", "/srv/project"),
        ("../other/x", "/srv/project"),
        ("data/*/../../../etc/passwd", "/srv/project"),
        ("/srv/project*/x", "/srv/project"),
        ("file:///srv/project/%2e%2e/x", "/srv/project"),
        ("~root/x", "/srv/project"),
        ("data/x.csv", "s3://"),
        ("s3://lake/x", "/srv/project"),
        ("/srv/other/x", "/srv/pro*"),
        ("/srv/other/x", "/srv/pro[j]ect"),
        ("s3://lake/other/x", "s3://lake/ord*"),
    ],
)
def test_what_could_lead_out_is_refused(uri: str, prefix: str) -> None:
    assert not is_below(uri, prefix, BASE)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    out.mkdir()
    os.symlink(out, base / "link")
    assert is_below("x", str(base), base)
    assert not is_below("link/x", str(base), base)


def found_by(uri: str, base: Path, *allow: str) -> tuple[Submission, Plan]:
    """A triggered run that reads these files, with its plan."""
    stages = {"read": {"type": "map", "input": {"uri": uri, "format": "text"}, "uses": "m:f"}}
    given = Submission("w.t.1", {"stages": stages}, {}, "", {}, str(base), allow=allow or (str(base),))
    return given, plan(stages, base=base)


def test_a_wildcard_finds_no_file_outside_by_a_link(tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "out"
    (base / "in").mkdir(parents=True)
    out.mkdir()
    (out / "secret.txt").write_text("s")
    (base / "in" / "a.txt").write_text("a")
    os.symlink("a.txt", base / "in" / "b.txt")
    check_found(*found_by("in/*.txt", base))
    os.symlink(out / "secret.txt", base / "in" / "c.txt")
    with pytest.raises(Forbidden, match=r"out/secret.txt', to which .*/in/c.txt leads, and which"):
        check_found(*found_by("in/*.txt", base))
    check_found(*found_by("in/*.txt", base, str(base), str(out)))
    check_found(*found_by("in/[ab].txt", base))
    os.symlink(out, base / "in" / "deep")
    with pytest.raises(Forbidden, match=r"to which .*/in/deep/secret.txt leads"):
        check_found(*found_by("in/*/*.txt", base))
    by_a_person, planned = found_by("in/*.txt", base)
    check_found(replace(by_a_person, allow=UNSET), planned)


def test_link_changed_after_the_listing_is_reported(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "base").mkdir()
    link = tmp_path / "base" / "a.txt"
    os.symlink(tmp_path / "secret", link)
    listed = found_by("*.txt", tmp_path / "base")
    link.unlink()
    link.write_text("a")
    with pytest.raises(UsageError, match="changed since"):
        check_found(*listed)
    link.unlink()
    with pytest.raises(MissingError, match="is gone"):
        check_found(*listed)


def test_a_folder_that_is_allowed_by_a_link_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("a")
    os.symlink(tmp_path / "real", tmp_path / "base")
    check_found(*found_by("*.txt", tmp_path / "base"))


STEPS = st.lists(st.sampled_from(["a", "ab", "b", "*", "a*", "?b", "**", "..", "."]), min_size=1, max_size=4)
NAMES = st.lists(st.sampled_from(["a", "ab", "b", "abc"]), min_size=1, max_size=4)


@given(STEPS, NAMES, NAMES)
def test_no_name_that_an_allowed_glob_matches_is_outside(uri: list[str], prefix: list[str], name: list[str]) -> None:
    pattern = "/".join(uri)
    if is_below(f"s3://lake/{pattern}", f"s3://lake/{'/'.join(prefix)}", BASE) and glob_matches(
        pattern, "/".join(name)
    ):
        assert name[: len(prefix)] == prefix


def test_without_prefixes_the_folder_of_the_deployment_is_all_there_is() -> None:
    check_allowed(None, submission({"source": "in/x.csv"}, source="uri"))
    with pytest.raises(Forbidden, match="s3://lake/x"):
        check_allowed(None, submission({"source": "s3://lake/x"}, source="uri"))
    with pytest.raises(Forbidden, match="nothing"):
        check_allowed((), submission({"source": "in/x.csv"}, source="uri"))


@pytest.mark.parametrize(
    ("inputs", "types"),
    [
        ({"source": "/etc/passwd"}, {"source": "uri"}),
        ({"orders": {"uri": "/etc/passwd", "format": "text"}}, {"orders": "dataset"}),
    ],
)
def test_every_address_in_the_inputs_is_checked(inputs: dict[str, Any], types: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        check_allowed(None, submission(inputs, None, **types))


def test_uris_of_stages_are_checked_with_the_inputs_filled_in() -> None:
    inner = {"read": {"type": "map", "input": {"uri": "in/${{ inputs.day }}/*.csv", "format": "csv"}}}
    stages = {"turns": {"type": "loop", "stages": inner}}
    check_allowed(None, submission({"day": "monday"}, stages, day="string"))
    with pytest.raises(Forbidden, match="etc"):
        check_allowed(None, submission({"day": "../../../etc"}, stages, day="string"))


def test_outputs_and_failed_items_are_checked() -> None:
    for key in ("output", "failedItems"):
        with pytest.raises(Forbidden, match="s3://elsewhere"):
            check_allowed(None, submission({}, {"a": {key: {"uri": "s3://elsewhere/${{ run.id }}"}}}))


def test_a_uri_that_only_the_run_will_know_is_refused() -> None:
    with pytest.raises(Forbidden, match="before the run"):
        check_allowed(("s3://",), submission({}, {"a": {"output": {"uri": "s3://x/${{ stages.b.metrics.m }}"}}}))
