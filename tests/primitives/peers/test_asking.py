"""Messages in place of paths: the table of the state machine, entry by entry, and its invariants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.peers.request_router import Asks, FailRequest, FindPath, HangUp, Over, Patience, RelayRequest

PATIENCE = Patience(silence=5.0, again=5.0, total=30.0)


def asks(*, path: bool = False) -> Asks:
    """The requests of a member that may have a path to `b`."""
    made = Asks(PATIENCE)
    if path:
        made.opened("b", 0.0)
    return made


def test_without_a_path_it_is_relayed_and_a_path_looked_for() -> None:
    assert asks().ask(1, "b", 0.0) == [RelayRequest(1), FindPath("b")]
    assert asks(path=True).ask(1, "c", 0.0) == [RelayRequest(1), FindPath("c")]


def test_direct_request_fails_at_once_without_a_path() -> None:
    one = asks()
    assert one.ask(1, "b", 0.0, direct=True) == [FailRequest(1, "there is no path to it yet"), FindPath("b")]
    one.opened("b", 1.0)
    assert one.ask(2, "b", 1.0, direct=True) == [Over(2)]
    assert one.ended("b", 2.0) == [FailRequest(2, "there is no path to it yet"), FindPath("b")]
    assert len(one) == 0


def test_with_a_path_nothing_else_is_used() -> None:
    one = asks(path=True)
    assert one.ask(1, "b", 0.0) == [Over(1)]
    assert one.answered(1)
    assert one.tick(100.0) == []
    assert one.wakes_at() == float("inf")


def test_a_path_that_ends_leaves_its_asks_to_the_coordinator() -> None:
    one = asks(path=True)
    one.ask(1, "b", 0.0)
    one.ask(2, "c", 0.0)
    one.ask(3, "b", 0.0)
    assert one.ended("b", 1.0) == [RelayRequest(1), FindPath("b"), RelayRequest(3), FindPath("b")]
    assert one.ask(4, "b", 2.0) == [RelayRequest(4), FindPath("b")]


def test_a_silent_path_is_hung_up_on_and_a_slow_one_is_not() -> None:
    one = asks(path=True)
    one.ask(1, "b", 0.0)
    one.moved("b", 4.0)
    assert one.tick(one.wakes_at() - 0.1) == []
    assert one.wakes_at() == 9.0
    assert one.tick(9.0) == [HangUp("b"), RelayRequest(1), FindPath("b")]
    assert one.ask(2, "b", 9.0) == [RelayRequest(2), FindPath("b")]


def test_a_path_is_not_silent_while_nothing_is_asked_for() -> None:
    one = asks(path=True)
    assert one.ask(1, "b", 100.0) == [Over(1)]
    assert one.tick(104.9) == []


def test_relayed_request_uses_a_new_path_only_when_it_is_resent() -> None:
    one = asks()
    one.ask(1, "b", 0.0)
    one.ask(2, "c", 0.0)
    one.opened("b", 1.0)
    assert one.tick(4.9) == []
    assert one.tick(5.0) == [Over(1), RelayRequest(2), FindPath("c")]


def test_request_to_an_absent_member_does_not_wait() -> None:
    one = asks(path=True)
    one.ask(1, "b", 0.0)
    one.ask(2, "c", 0.0)
    assert one.refused("c", "it is not connected") == [FailRequest(2, "it is not connected")]
    assert one.refused("b", "it is not connected") == [], "the path is another way"
    assert not one.answered(2)


def test_request_without_a_timely_answer_fails() -> None:
    one = asks()
    one.ask(1, "b", 0.0)
    assert one.tick(30.0) == [FailRequest(1, "it did not answer in time")]
    assert len(one) == 0


def test_second_answer_is_ignored() -> None:
    one = asks()
    one.ask(1, "b", 0.0)
    assert one.answered(1)
    assert not one.answered(1)


def test_closing_fails_all() -> None:
    one = asks(path=True)
    one.ask(1, "b", 0.0)
    one.ask(2, "c", 0.0)
    assert one.closed() == [FailRequest(1, "it was closed"), FailRequest(2, "it was closed")]


MEMBERS = st.sampled_from(["b", "c"])
EVENTS = st.one_of(
    st.tuples(st.just("ask"), MEMBERS),
    st.tuples(st.sampled_from(["opened", "ended", "moved", "refused"]), MEMBERS),
    st.tuples(st.just("answered"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.floats(0.0, 40.0)),
)


@given(st.lists(EVENTS, max_size=60))
def test_every_request_is_sent_and_ends_once_for_all_events(events: list[tuple[str, object]]) -> None:
    """Each uses only open paths, and nothing waits longer than its limit."""
    one, now, paths = Asks(PATIENCE), 0.0, set[str]()
    begun: dict[int, tuple[str, float]] = {}
    over: set[int] = set()

    def perform(instructions: list[object]) -> None:
        for instruction in instructions:
            match instruction:
                case Over(number):
                    assert begun[number][0] in paths
                    assert number not in over
                case RelayRequest(number):
                    assert number not in over
                case HangUp(member):
                    paths.remove(member)
                case FailRequest(number, _):
                    assert number not in over
                    over.add(number)

    for kind, what in events:
        match kind, what:
            case "ask", str(member):
                begun[len(begun)] = member, now
                sent = one.ask(len(begun) - 1, member, now)
                assert sent
                perform([*sent])
            case "opened", str(member):
                perform([*one.ended(member, now)])
                paths.add(member)
                one.opened(member, now)
            case "ended", str(member):
                paths.discard(member)
                perform([*one.ended(member, now)])
            case "moved", str(member):
                one.moved(member, now)
            case "refused", str(member):
                perform([*one.refused(member, "it is not there")])
            case "answered", int(number):
                assert one.answered(number) == (number in begun and number not in over)
                over |= {number} & set(begun)
            case "wait", float(seconds):
                end = now + seconds
                while (due := one.wakes_at()) <= end:
                    now = max(now, due)
                    perform([*one.tick(now)])
                now = end
        assert len(one) == len(begun) - len(over)
        assert all(number in over or now < since + PATIENCE.total for number, (_, since) in begun.items())
