"""A member's messages about the barriers at which it waits, without a loop or a coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.barriers import MemberBarriers
from treadle.primitives.channels.errors import MemberLost
from treadle.primitives.channels.gang import Gang
from treadle.primitives.channels.io.socket_loop import Late
from treadle.primitives.coordinator.messages import Broken, FromMember, Refused, Released, Wait
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store


class AtOnce:
    """A loop without concurrent events."""

    def do(self, action: Callable[[], Any]) -> Any:
        return action()

    def wait(self, poll: Callable[[], Any], _: float) -> Any:
        if (found := poll()) is None:
            raise Late("too late")
        return found


@pytest.fixture
def said() -> list[FromMember]:
    return []


@pytest.fixture
def barriers(said: list[FromMember]) -> MemberBarriers:
    blocks = Blocks(Store.open("memory://barriers"), "run")
    return MemberBarriers(AtOnce(), Gang("tcp://127.0.0.1:1", "run", "g", 0, 2), blocks, said.append)  # type: ignore[arg-type]


def late(barriers: MemberBarriers) -> None:
    with pytest.raises(Late):
        barriers.wait("b", 2, 0.0)


def test_waiting_members_are_reported_to_a_new_coordinator_until_the_barrier_opens(
    barriers: MemberBarriers, said: list[FromMember]
) -> None:
    late(barriers)
    assert list(barriers.waits()) == said == [Wait("b", 2, 0)]
    barriers.heard(Released("b", 0))
    assert list(barriers.waits()) == []
    barriers.wait("b", 2, 0.0)
    assert list(barriers.waits()) == [], "it was released before it came again"
    late(barriers)
    assert list(barriers.waits()) == [Wait("b", 2, 1)]


def test_an_answer_to_another_wait_is_none(barriers: MemberBarriers) -> None:
    barriers.heard(Released("b", 0))
    late(barriers)
    barriers.heard(Released("b", 1))
    late(barriers)


def test_invalid_barrier_has_the_error_of_the_coordinator(barriers: MemberBarriers) -> None:
    late(barriers)
    barriers.heard(Refused("b", "others wait for 3 parties"))
    with pytest.raises(UsageError, match="others wait for 3 parties"):
        barriers.wait("b", 2, 0.0)
    late(barriers)
    barriers.heard(Broken("b", 0, ("g/1.5f",)))
    with pytest.raises(MemberLost, match="member 1"):
        barriers.wait("b", 2, 0.0)
