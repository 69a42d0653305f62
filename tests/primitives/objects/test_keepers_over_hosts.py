"""Keepers of two hosts: addresses of the loopback interface, or network namespaces whose link is cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import namespaces
import pytest
from eventually import eventually
from primitives.objects.counting import counting

from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.objects import Counter, Keepers, ObjectLost
from treadle.primitives.objects.messages import ShardView, address_of, host_of
from treadle.primitives.objects.views import is_abandoned
from treadle.primitives.wire import WireError

HOSTS = "127.0.0.1", "127.0.0.2"
SCRIPT = Path(__file__).parent / "keepers_host.py"
Cut = Callable[[], AbstractContextManager[None]]


def members(keepers: Keepers, shard: int = 0) -> list[str]:
    return list(filter(None, keepers.access.chain(shard).newest().members))


def hosts(keepers: Keepers) -> list[str]:
    return sorted(map(host_of, members(keepers)))


def wait_for_both(keepers: Keepers, name: str) -> None:
    """Wait until both hosts have an object."""
    eventually(lambda: keepers.copies(name) == len(HOSTS))


def test_replicas_are_on_different_hosts(tmp_path: Path) -> None:
    with Keepers(tmp_path, replicas=2, keepers=2, host=HOSTS[0]) as one:
        hits = one.object("hits", Counter)
        assert hits.increment() == 1
        time.sleep(1)  # the second keeper of this host asks to join
        assert hosts(one) == [HOSTS[0]]
        with Keepers(tmp_path, replicas=2, host=HOSTS[1]) as other:
            wait_for_both(one, "hits")
            assert other.object("hits", Counter).increment() == 2


def test_objects_outlive_the_host_of_their_primary(tmp_path: Path) -> None:
    one = Keepers(tmp_path, replicas=2, host=HOSTS[0])
    hits = one.object("hits", Counter)
    hits.increment()
    with Keepers(tmp_path, replicas=2, host=HOSTS[1]) as other:
        wait_for_both(one, "hits")
        one.close()
        assert hits.increment() == 2
        assert set(members(other)) <= set(other.processes)
        with Keepers(tmp_path, replicas=2, host=HOSTS[0]):
            wait_for_both(other, "hits")
            assert hits.increment() == 3


def test_primaries_are_spread_over_the_hosts_and_each_call_counts_once(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"replicas": 2, "shards": 4}
    with contextlib.ExitStack() as stack, Keepers(tmp_path, host=HOSTS[0], **settings) as one:
        counters = [one.object(f"hits {number}", Counter) for number in range(6)]
        assert len({one.access.shard_of(f"hits {number}") for number in range(6)}) > 2
        counts = [stack.enter_context(counting(hits, 2)) for hits in counters]
        with Keepers(tmp_path, replicas=2, shards=4, host=HOSTS[1]):
            eventually(lambda: primaries(one) == [HOSTS[0], HOSTS[0], HOSTS[1], HOSTS[1]])
            for count_on in counts:
                count_on()
        eventually(lambda: primaries(one) == [HOSTS[0]] * 4)
        for count_on in counts:
            count_on()
        stack.close()


def primaries(keepers: Keepers) -> list[str]:
    """The hosts of all primaries."""
    return sorted(host_of(members(keepers, shard)[0]) for shard in range(4))


def test_objects_in_the_store_are_taken_over_by_another_host(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"durability": "store", "shards": 3}
    one = Keepers(tmp_path, host=HOSTS[0], **settings)
    hits = [one.object(f"hits {number}", Counter, number) for number in range(8)]
    with Keepers(tmp_path, host=HOSTS[1], **settings):
        one.close()
        assert [one.increment() for one in hits] == list(range(1, 9))


def test_objects_in_memory_end_with_the_only_host_that_has_them(tmp_path: Path) -> None:
    one = Keepers(tmp_path, host=HOSTS[0])
    hits = one.object("hits", Counter)
    with Keepers(tmp_path, host=HOSTS[1]) as other:
        assert hits.increment() == 1
        assert hosts(other) == [HOSTS[0]]
        one.close()
        with pytest.raises(ObjectLost):
            hits.increment()
        assert other.object("hits", Counter).increment() == 1


def test_keeper_with_the_address_of_another_one_is_not_taken_for_it(tmp_path: Path) -> None:
    with Keepers(tmp_path, host=HOSTS[0]) as keepers:
        chain = keepers.access.chain(0)
        view = chain.newest()
        former = f"{address_of(view.primary)}#00000000"
        chain.create(ShardView(view.epoch + 1, former, (), view.incarnation))
        assert keepers.object("hits", Counter).increment() == 1
        eventually(lambda: members(keepers) == list(keepers.processes))


def test_no_answered_call_is_lost_while_keepers_of_two_hosts_are_killed(tmp_path: Path) -> None:
    with (
        Keepers(tmp_path, replicas=2, host=HOSTS[0]) as one,
        Keepers(tmp_path, replicas=2, host=HOSTS[1]) as other,
        counting(one.object("hits", Counter), threads=3) as count_on,
    ):
        for _ in range(4):
            wait_for_both(one, "hits")
            os.kill((one.processes | other.processes)[members(one)[0]], signal.SIGKILL)
            count_on()


@pytest.mark.parametrize(
    ("primary", "backups", "kept", "waited", "abandoned"),
    [
        (True, [], True, True, False),
        (False, [], False, False, True),
        (False, [False], False, False, True),
        (False, [True], False, False, False),
        (False, [None], False, False, False),
        (False, [False, True], False, True, True),
        (None, [], False, True, False),
        (None, [False], False, True, False),
        (None, [], True, False, False),
        (None, [], True, True, True),
    ],
)
def test_shard_is_abandoned_when_no_member_will_continue_it(
    primary: bool | None, backups: list[bool | None], kept: bool, waited: bool, abandoned: bool
) -> None:
    assert is_abandoned(primary, backups, kept=kept, waited=waited) == abandoned


def test_host_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Name the address"):
        Keepers(tmp_path, host="0.0.0.0")
    with pytest.raises(WireError, match="cannot listen"):
        Keepers(tmp_path, host="192.0.2.7")


def test_host_with_another_key_is_refused_with_a_hint(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    with (
        Keepers(tmp_path / "one", store=store, host=HOSTS[0]),
        pytest.raises(TreadleError, match="key") as raised,
    ):
        Keepers(tmp_path / "other", store=store, host=HOSTS[1])
    assert "opy" in raised.value.hint


def test_error_names_the_missing_key_file_of_a_caller(tmp_path: Path) -> None:
    with Keepers(tmp_path / "one", host=HOSTS[0]) as keepers:
        access = keepers.access
        shutil.move(tmp_path / "one", tmp_path / "moved")
        del access.__dict__["key"]  # as in another process
        with pytest.raises(UsageError, match="not on this host"):
            access.connect(members(keepers)[0], 1.0)
        shutil.move(tmp_path / "moved", tmp_path / "one")


class CountingHost:
    """A host with keepers, in a network namespace. It counts all the time."""

    def __init__(self, host: namespaces.Host, folder: Path, *settings: object) -> None:
        command = [sys.executable, str(SCRIPT), str(folder), host.address, *map(str, settings)]
        self.process = host.popen(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers: list[int] = []
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "end\n":
                self.has_ended.set()
            else:
                self.answers.append(int(line))

    def counts(self) -> None:
        """Wait until it has counted on."""
        before = len(self.answers)
        eventually(lambda: len(self.answers) > before + 4)

    def signal(self, number: int) -> None:
        """Send a signal to the process with `Keepers` and to its keeper."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for process in (self.process.pid, *map(int, children)):
            os.kill(process, number)

    def say(self) -> None:
        """Let it end counting; then let its keepers end."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def counting_hosts(
    folder: Path, replicas: int, abandoned: float, durability: str = "memory"
) -> Iterator[tuple[CountingHost, CountingHost, Cut]]:
    """Two hosts, and a function that cuts their link. At the end: each number was answered once."""
    if reason := namespaces.unsupported():
        pytest.skip(reason)
    with namespaces.two_hosts() as (left, right):
        one = CountingHost(left, folder, replicas, abandoned, durability)
        one.counts()
        other = CountingHost(right, folder, replicas, abandoned, durability)
        other.counts()
        yield one, other, lambda: namespaces.cut(left, right)
        for host in (one, other):
            host.say()
        for host in (one, other):
            assert host.has_ended.wait(90)
        for host in (one, other):
            host.say()
            assert host.process.wait(30) == 0
            host.thread.join()
        found = sorted(one.answers + other.answers)
        assert found == list(range(1, len(found) + 1))


def test_no_answered_call_is_lost_while_the_link_of_two_hosts_is_cut(tmp_path: Path) -> None:
    with counting_hosts(tmp_path, replicas=2, abandoned=10.0) as (one, other, cut):
        for seconds in (0.3, 1.5, 4.0):
            with cut():
                time.sleep(seconds)
            one.counts()
            other.counts()


def test_silent_host_keeps_the_objects_that_only_its_memory_has(tmp_path: Path) -> None:
    with counting_hosts(tmp_path, replicas=1, abandoned=0.5) as (one, other, cut):
        with cut():
            one.counts()
            time.sleep(8)
        one.counts()
        other.counts()


def test_host_that_stands_still_is_replaced_when_the_store_has_its_objects(tmp_path: Path) -> None:
    with counting_hosts(tmp_path, replicas=1, abandoned=0.5, durability="store") as (one, other, _):
        one.signal(signal.SIGSTOP)
        other.counts()
        one.signal(signal.SIGCONT)
        one.counts()


def test_host_that_writes_to_the_store_is_not_replaced(tmp_path: Path) -> None:
    with counting_hosts(tmp_path, replicas=1, abandoned=3.0, durability="store") as (one, other, cut):
        with cut():
            time.sleep(8)
            before = len(other.answers)
            one.counts()
            assert len(other.answers) == before
        other.counts()
