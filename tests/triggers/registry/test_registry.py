"""Deployments: immutable versions, one winner for each number, and no data written under another key."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from treadle.dsl.document.workflow_files import load
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.inputs import InvalidInputs
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.stores.store import Store
from treadle.triggers.registry.deployment import Deployment, Position
from treadle.triggers.registry.registry import DeploymentCandidate, NoSuchDeployment, Registry, parse_name

KEY = b"k" * 32
DOCUMENT = """
apiVersion: treadle/v1
name: {name}
inputs: {{orders: {{type: list, required: true}}, n: {{type: integer, default: 3}}}}
triggers:
  live: {{type: kafka, connection: k, topics: [t], maxActive: {limit}, with: {{orders: [1]}}}}
  nightly: {{type: schedule, cron: "@daily", with: {{orders: [1]}}}}
stages:
  a: {{type: map, input: inputs.orders, uses: "no_such_module:f", with: {{n: "${{{{ inputs.n }}}}"}}}}
"""


@cache
def candidate(name: str = "orders", limit: int = 1, code: bytes = b"") -> DeploymentCandidate:
    document = normalise(load(DOCUMENT.format(name=name, limit=limit)).require())
    return DeploymentCandidate(
        document,
        {"no_such_module:f": {"flat": None, "required": ("x",)}},
        "d" * 8 if code else "",
        code,
        "/base",
        "local",
    )


def place() -> Store:
    return Store.open(f"memory://{uuid4().hex}")


def registry(store: Store | None = None, key: bytes = KEY) -> Registry:
    return Registry(store or place(), key)


def test_identical_deployment_makes_no_new_version() -> None:
    kept = registry()
    first, again, other = kept.deploy(candidate()), kept.deploy(candidate()), kept.deploy(candidate(limit=2))
    assert (first.version, again, other.version) == (1, first, 2)
    assert [one.name for one in kept.history("orders")] == ["orders@1", "orders@2"]
    assert kept.deployment("orders", 1).spec.triggers["live"] != kept.deployment("orders").spec.triggers["live"]


def test_undeployed_workflow_is_gone_and_its_numbers_go_on() -> None:
    kept = registry()
    kept.deploy(candidate())
    kept.pause("orders", "live")
    assert kept.undeploy("orders").version == 1
    with pytest.raises(NoSuchDeployment, match="was undeployed"):
        kept.deployment("orders")
    assert (kept.deployments(), kept.paused("orders")) == ([], {})
    assert kept.deployment("orders", 1).version == 1
    counted: list[Deployment | None] = []

    def begins(before: Deployment | None) -> dict[str, tuple[Position, ...]]:
        counted.append(before)
        return {}

    back = kept.deploy(candidate(), begins)
    assert (back.version, kept.deployment("orders")) == (3, back)
    assert set(counted) == {None}, "it begins anew"


@pytest.mark.parametrize("name", ["orders", "orders@7"])
def test_workflow_that_was_never_deployed_is_reported_as_such(name: str) -> None:
    with pytest.raises(NoSuchDeployment, match="orders"):
        registry().deployment(*parse_name(name))


def test_name_of_a_version_is_read_or_refused() -> None:
    assert parse_name("orders") == ("orders", None)
    assert parse_name("orders@12") == ("orders", 12)
    for text in ("orders@", "orders@x", "orders@-1", "orders@1.0"):
        with pytest.raises(UsageError, match="names no version"):
            parse_name(text)


def test_concurrent_deployments_get_numbers_of_their_own() -> None:
    store = place()
    made: list[Deployment] = []
    gate = threading.Barrier(6)

    def deploy(limit: int) -> None:
        gate.wait()
        made.append(registry(store).deploy(candidate(limit=limit)))

    threads = [threading.Thread(target=deploy, args=(limit,)) for limit in (1, 2, 3, 4, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.version for one in made) == [1, 2, 3, 4, 5, 6]
    limits = [one.document["triggers"]["live"]["maxActive"] for one in registry(store).history("orders")]
    assert sorted(limits) == [1, 2, 3, 4, 5, 6]


class Forgetful:
    """A store that loses its first answer to `create`: the object is created, and the caller gets the answer that it
    existed."""

    def __init__(self, store: Store) -> None:
        self._store, self._lost = store, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, name: str, data: Any) -> bool:
        made = self._store.create(name, data)
        lost, self._lost = not self._lost and "/versions/" in name, self._lost or "/versions/" in name
        return made and not lost


def test_answer_that_was_lost_makes_no_second_version() -> None:
    store = place()
    done = Registry(Forgetful(store), KEY).deploy(candidate())  # type: ignore[arg-type]
    assert done.version == 1
    assert len(registry(store).history("orders")) == 1


def test_nothing_is_read_that_another_key_wrote() -> None:
    store = place()
    registry(store, b"x" * 32).deploy(candidate())
    with pytest.raises(CorruptError, match="not written with this deployment's key"):
        registry(store).deployments()


def test_version_moved_to_another_number_is_refused() -> None:
    store = place()
    registry(store).deploy(candidate())
    store.create("deployments/workflows/orders/versions/2", store.get("deployments/workflows/orders/versions/1"))
    with pytest.raises(CorruptError):
        registry(store).deployment("orders")


def test_offsets_of_a_version_are_measured_after_it_is_visible() -> None:
    """If they were measured earlier, a record could come in between and be handled by the earlier version."""
    kept = registry()
    asked: list[tuple[int | None, int]] = []

    def begins(before: Deployment | None) -> dict[str, tuple[Position, ...]]:
        asked.append((before.version if before else None, len(kept.history("orders"))))
        return {"live": (Position("t", "uuid", 0, 10 * len(asked)),)}

    for limit in (1, 1, 2):
        kept.deploy(candidate(limit=limit), begins)
    assert asked == [(None, 0), (None, 1), (1, 1), (1, 2)]
    found = [one.begins["live"][0].offset for one in kept.history("orders") if one.begins]
    assert found == [20, 40]


def test_first_settled_begin_of_a_version_counts() -> None:
    kept = registry()
    deployed = kept.deploy(candidate(), lambda _: {"live": (Position("t", "uuid", 0, 7),)})
    again = kept.settle(deployed, {"live": (Position("t", "uuid", 0, 9),)})
    assert again.begins == deployed.begins == {"live": (Position("t", "uuid", 0, 7),)}


def test_deploy_that_cannot_learn_its_offsets_changes_nothing() -> None:
    kept = registry()

    def fail(before: Deployment | None) -> dict[str, tuple[Position, ...]]:
        raise UsageError("no broker")

    with pytest.raises(UsageError, match="no broker"):
        kept.deploy(candidate(), fail)
    assert kept.history("orders") == []


def test_run_of_a_version_needs_no_user_module() -> None:
    kept = registry()
    deployed = kept.deploy(candidate(code=b"zip"))
    submission = deployed.submission("orders.live.1", {"orders": [1, 2]})
    assert submission.inputs == {"orders": [1, 2], "n": 3}
    assert "triggers" not in submission.spec
    assert (list(submission.functions), submission.executor) == (["no_such_module:f"], "local")
    assert kept.bundle(deployed) == b"zip"
    with pytest.raises(InvalidInputs, match="'orders' is required"):
        deployed.submission("orders.live.2", {})


def test_editing_a_trigger_leaves_what_its_runs_pin_alone() -> None:
    kept = registry()
    one, other = (kept.deploy(candidate(limit=limit)) for limit in (1, 2))
    assert one.submission("r", {"orders": []}) == other.submission("r", {"orders": []})


# -- against a model ---------------------------------------------------------------------------------------------


class TwoRegistries(RuleBasedStateMachine):
    """Two processes on one store, checked against a list of each workflow's versions."""

    names, sides = st.sampled_from(["a", "b"]), st.integers(0, 1)

    def __init__(self) -> None:
        super().__init__()
        store = place()
        self.registries = [registry(store), registry(store)]
        self.chains: dict[str, list[int | None]] = {}
        self.pauses: dict[str, set[str]] = {}

    @rule(name=names, side=sides, limit=st.integers(1, 2))
    def deploy(self, name: str, side: int, limit: int) -> None:
        chain = self.chains.setdefault(name, [])
        done = self.registries[side].deploy(candidate(name, limit))
        if not chain or chain[-1] != limit:
            chain.append(limit)
        assert done.version == len(chain)

    @rule(name=names, side=sides)
    def undeploy(self, name: str, side: int) -> None:
        chain = self.chains.get(name, [])
        if not chain or chain[-1] is None:
            with pytest.raises(NoSuchDeployment):
                self.registries[side].undeploy(name)
            return
        assert self.registries[side].undeploy(name).version == len(chain)
        chain.append(None)
        self.pauses.pop(name, None)

    @rule(name=names, side=sides, trigger=st.sampled_from(["live", "nightly"]), on=st.booleans())
    def pause(self, name: str, side: int, trigger: str, on: bool) -> None:
        paused = self.pauses.setdefault(name, set())
        if on:
            assert self.registries[side].pause(name, trigger) == (trigger not in paused)
            paused.add(trigger)
        else:
            assert self.registries[side].unpause(name, trigger) == (trigger in paused)
            paused.discard(trigger)

    @invariant()
    def both_see_the_same(self) -> None:
        wanted = {name: (len(chain), chain[-1]) for name, chain in self.chains.items() if chain and chain[-1]}
        for one in self.registries:
            seen = {each.workflow: (each.version, _limit(each)) for each in one.deployments()}
            assert seen == wanted
            for name in "ab":
                assert set(one.paused(name)) == self.pauses.get(name, set())


def _limit(deployment: Deployment) -> int:
    return int(deployment.document["triggers"]["live"]["maxActive"])


TestTwoRegistries = TwoRegistries.TestCase
TestTwoRegistries.settings = settings(max_examples=30, stateful_step_count=20)
