"""Several hosts on one machine: network namespaces, NATs between them, and links that can be cut.

    with two_hosts() as (left, right):
        with left.entered():
            server = socket.create_server((left.address, 0))    # stays in that namespace for good
        member = right.popen(sys.executable, "-m", "some.module")
        with cut(left, right):
            ...

Needs root, iproute2 and iptables; `unsupported` returns the missing one. The name of a namespace contains this
process's id. The next process removes the namespaces of processes that died without a clean-up. All processes inside a
namespace end with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_CLONE_NEWNET = 0x40000000
_FOLDER = "/run/netns"
_TIMEOUT = 30.0
_numbers = itertools.count()


class CommandFailed(Exception):
    """`ip` or `iptables` failed. The text has its message."""


@dataclass(frozen=True)
class Host:
    """One network namespace with one address."""

    name: str
    address: str
    public: str = ""
    """Its address for other hosts: that of its NAT, or its own."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list, repr=False, compare=False)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread, and the threads that it starts in the block, are on the host. Other threads stay where they are.

        A socket belongs to the namespace in which it was made, so it can be used outside of the block.
        """
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _enter(f"{_FOLDER}/{self.name}")
            try:
                yield
            finally:
                _set_namespace(home)
        finally:
            os.close(home)

    def popen(self, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command on the host. Its pid is the command's own. It is killed with the host at the latest."""
        process = subprocess.Popen(["ip", "netns", "exec", self.name, *command], text=True, **options)
        self.processes.append(process)
        return process

    def run(self, *command: str, timeout: float = _TIMEOUT) -> str:
        """Run a command on the host to its end. Returns its output. Raises CommandFailed."""
        return _run("ip", "netns", "exec", self.name, *command, timeout=timeout)


@dataclass(frozen=True)
class Nat:
    """The behaviour of a NAT, in the terms of RFC 5382."""

    mapping: str = "preserving"
    """`preserving`: the outer port equals the inner one. `random`: a new one for each connection (symmetric)."""
    unsolicited: str = "drop"
    """The treatment of packets that are not answers: dropped silently (`drop`), or answered with a reset (`reset`)."""


class Nats(NamedTuple):
    """Two hosts behind one NAT each, and a host that both can reach."""

    public: Host
    left: Host
    right: Host


@contextlib.contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts on one link: 10.77.0.1 and 10.77.0.2."""
    with contextlib.ExitStack() as stack:
        left = stack.enter_context(_host("left", "10.77.0.1"))
        right = stack.enter_context(_host("right", "10.77.0.2"))
        _wire(left, "eth0", right, "eth0")
        for host in (left, right):
            _address(host, "eth0", f"{host.address}/24")
        yield left, right


@contextlib.contextmanager
def two_nats(left: Nat = Nat(), right: Nat = Nat()) -> Iterator[Nats]:
    """A public host 203.0.113.1, and two hosts that reach it, and each other, only through their NATs."""
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(_host("public", "203.0.113.1"))
        _ip(public, "link", "add", "bridge", "type", "bridge")
        _address(public, "bridge", f"{public.address}/24")
        hosts = [stack.enter_context(_behind_nat(public, seat, nat)) for seat, nat in enumerate((left, right))]
        yield Nats(public, *hosts)


@contextlib.contextmanager
def cut(source: Host, target: Host, *, both_ways: bool = True) -> Iterator[None]:
    """Packets from `source` to `target` are lost, and with `both_ways` in the other direction too. Healed at the
    end."""
    with contextlib.ExitStack() as stack:
        for one, other in [(source, target), (target, source)][: 2 if both_ways else 1]:
            rule = ("INPUT", "-s", one.public, "-j", "DROP")
            _iptables(other, "-I", *rule)
            stack.callback(_iptables, other, "-D", *rule)
        yield


@functools.cache
def unsupported() -> str:
    """The reason why this machine cannot run it, for a skip. Empty: it can."""
    if missing := [tool for tool in ("ip", "iptables") if shutil.which(tool) is None]:
        return f"network namespaces need {' and '.join(missing)}, which `make system-packages` installs"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with two_nats() as nats, cut(nats.public, nats.left), nats.left.entered():
            return ""
    except (CommandFailed, OSError) as error:
        return f"network namespaces are not permitted here: {error}"


@contextlib.contextmanager
def _host(role: str, address: str, public: str = "") -> Iterator[Host]:
    _sweep()
    host = Host(f"treadle-{os.getpid()}-{next(_numbers)}-{role}", address, public or address)
    _run("ip", "netns", "add", host.name)
    try:
        _ip(host, "link", "set", "lo", "up")
        yield host
    finally:
        _end(host.processes)
        _run("ip", "netns", "delete", host.name)


@contextlib.contextmanager
def _behind_nat(public: Host, seat: int, nat: Nat) -> Iterator[Host]:
    role = ("left", "right")[seat]
    inside, outside = f"10.77.{seat + 1}", f"203.0.113.{seat + 11}"
    with _host(f"{role}-nat", outside) as gateway, _host(role, f"{inside}.2", outside) as host:
        _wire(gateway, "wan", public, role)
        _ip(public, "link", "set", role, "master", "bridge", "up")
        _wire(gateway, "lan", host, "eth0")
        _address(gateway, "wan", f"{outside}/24")
        _address(gateway, "lan", f"{inside}.1/24")
        _address(host, "eth0", f"{host.address}/24")
        _ip(host, "route", "add", "default", "via", f"{inside}.1")
        _translate(gateway, nat)
        yield host


def _translate(gateway: Host, nat: Nat) -> None:
    """Linux keeps the port if it can. New connections from outside reach neither the NAT nor the hosts behind it."""
    gateway.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    mapping = {"preserving": (), "random": ("--random-fully",)}[nat.mapping]
    refuse = {"drop": ("DROP",), "reset": ("REJECT", "--reject-with", "tcp-reset")}[nat.unsolicited]
    _iptables(gateway, "-t", "nat", "-A", "POSTROUTING", "-o", "wan", "-j", "MASQUERADE", *mapping)
    new = ("-i", "wan", "-p", "tcp", "-m", "conntrack", "--ctstate", "NEW,INVALID", "-j")
    _iptables(gateway, "-A", "INPUT", *new, *refuse)
    _iptables(gateway, "-A", "FORWARD", *new, "DROP")


def _wire(left: Host, left_device: str, right: Host, right_device: str) -> None:
    _ip(left, "link", "add", left_device, "type", "veth", "peer", "name", right_device, "netns", right.name)


def _address(host: Host, device: str, address: str) -> None:
    _ip(host, "address", "add", address, "dev", device)
    _ip(host, "link", "set", device, "up")


def _ip(host: Host, *arguments: str) -> None:
    _run("ip", "-n", host.name, *arguments)


def _iptables(host: Host, *arguments: str) -> None:
    host.run("iptables", "-w", "10", *arguments)


def _run(*command: str, timeout: float = _TIMEOUT) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _sweep() -> None:
    """Remove the namespaces of dead processes."""
    for name in os.listdir(_FOLDER) if os.path.isdir(_FOLDER) else ():
        found = re.match(r"treadle-(\d+)-", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            with contextlib.suppress(CommandFailed):
                _run("ip", "netns", "delete", name)


def _end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.wait(_TIMEOUT)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _enter(path: str) -> None:
    there = os.open(path, os.O_RDONLY)
    try:
        _set_namespace(there)
    finally:
        os.close(there)


def _set_namespace(descriptor: int) -> None:
    """`os.setns` exists from Python 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns: " + os.strerror(ctypes.get_errno()))
