"""The checkpoints of one member, without sockets: the test answers in place of the coordinator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import DeadlinePassed, Gang
from treadle.primitives.channels.checkpoints import MemberCheckpoints
from treadle.primitives.channels.io.socket_loop import Late
from treadle.primitives.coordinator.messages import Checkpointed, SaveState
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store


class Coordinator:
    """Also the member's loop: after a message it polls once."""

    def __init__(self, *, checkpoint: int = 0) -> None:
        self.said: list[SaveState] = []
        self.answer: Callable[[SaveState], Checkpointed | None] = lambda message: Checkpointed(message.checkpoint)
        self.blocks = Blocks(Store.open("memory://"), "run")
        gang = Gang("", "run", "fit#1.abc", 1, 2, checkpoint=checkpoint)
        self.member = MemberCheckpoints(cast(Any, self), gang, self.blocks, cast(Any, self.say))

    def say(self, message: SaveState) -> None:
        self.said.append(message)
        if (answer := self.answer(message)) is not None:
            self.member.heard(answer)

    def do(self, action: Callable[[], None]) -> None:
        action()

    def wait(self, poll: Callable[[], Any], deadline: float) -> Any:
        assert deadline > time.monotonic()
        if (found := poll()) is None:
            raise Late("too late")
        return found


def test_checkpoint_has_the_next_number_after_the_restored_one() -> None:
    one = Coordinator(checkpoint=7)
    assert [one.member.save(state, 60) for state in ("a", "b")] == [8, 9]
    assert [message.checkpoint for message in one.said] == [8, 9]
    assert list(one.member.unanswered()) == []


@pytest.mark.parametrize(
    ("state", "kind", "locations"),
    [
        ((3, "x"), "objects", ("inline",)),
        (np.arange(3), "array", ("inline",)),
        (np.zeros(10_000), "array", ("store",)),
        ({"weights": np.zeros(10_000)}, "objects", ("store",)),
    ],
)
def test_large_state_is_a_block_of_the_store(state: Any, kind: str, locations: tuple[str, ...]) -> None:
    one = Coordinator()
    one.member.save(state, 60)
    (message,) = one.said
    assert (message.state.kind, message.state.locations) == (kind, locations)
    assert message.state.name.startswith("checkpoints/fit/1.1.")
    found = one.blocks.get(message.state.slice(0))
    np.testing.assert_equal(found[0] if kind == "objects" else found, state)


def test_state_without_an_answer_is_repeated_and_the_next_one_waits_for_it() -> None:
    one = Coordinator()
    one.answer = lambda _: Checkpointed(0)
    with pytest.raises(DeadlinePassed, match="checkpoint 1: the other members took too long"):
        one.member.save("a", 60)
    assert list(one.member.unanswered()) == one.said
    with pytest.raises(UsageError, match="still open"):
        one.member.save("b", 60)
    one.member.heard(Checkpointed(1))
    one.answer = lambda message: Checkpointed(message.checkpoint)
    assert one.member.save("b", 60) == 2


def test_refused_checkpoint_raises_its_reason() -> None:
    one = Coordinator()
    one.answer = lambda message: Checkpointed(message.checkpoint, "member 0 has ended without it")
    with pytest.raises(UsageError, match="checkpoint 1: member 0 has ended without it"):
        one.member.save("a", 60)
