"""The sockets of one attempt: carries out the instructions of a `Traversal` in the calling thread."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections import deque

from ..errors import TreadleError
from .candidate import Candidate
from .machine import (
    ClosePath,
    ConnectionAccepted,
    DialFailed,
    Dialled,
    EndWithoutPath,
    Event,
    Instruction,
    Prove,
    Proved,
    Refuted,
    StartDial,
    StartListening,
    StopDial,
    StopListening,
    TimePassed,
    Traversal,
    Use,
)
from .path_probe import NotProved, Proof, named_by, token_name
from .port_reuse import LOBBY, Endpoint, Guest, abort, bound, listening


class NoPath(TreadleError):
    """Two members could not connect to each other in time: relay, or use the store, and try again later."""


class PunchAttempt:
    """One side of one attempt, over real sockets. Call `run` once; it closes every socket but the one it returns."""

    def __init__(self, machine: Traversal, token: bytes, source: Endpoint, target: Endpoint) -> None:
        self._machine = machine
        self._token = token
        self._source = source
        self._target = target
        self._events: deque[Event] = deque([TimePassed()])
        self._selector = selectors.DefaultSelector()
        self._dialling: socket.socket | None = None
        self._listener: socket.socket | None = None
        self._candidates: dict[int, Candidate] = {}
        self._count = 0
        self._guests: deque[Guest] = deque()
        self._bell, self._button = socket.socketpair()
        self._chosen: socket.socket | None = None
        self._failure = ""

    def run(self) -> socket.socket:
        """Return a connected, non-blocking socket to the holder of the same token. Raises NoPath."""
        name = token_name(self._token)
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self._selector.register(self._bell, selectors.EVENT_READ)
            LOBBY.open(name, self)
            stack.callback(LOBBY.shut, name)
            self._loop()
        if self._chosen is None:
            raise NoPath(
                f"no path to {self._target[0]}:{self._target[1]}: {self._failure}",
                "Messages are relayed and blocks go through the store meanwhile.",
            )
        return self._chosen

    def welcome(self, guest: Guest) -> None:
        """Take a caller that another attempt accepted; called from that attempt's thread."""
        self._guests.append(guest)
        self._button.send(b"\0")

    # -- the loop

    def _loop(self) -> None:
        while True:
            while self._events:
                for instruction in self._machine.handle(self._events.popleft(), time.monotonic()):
                    self._do(instruction)
            if self._machine.over:
                return
            for key, _ in self._selector.select(max(0.0, self._machine.wake - time.monotonic())):
                self._on_ready(key)
            self._events.append(TimePassed())

    def _on_ready(self, key: selectors.SelectorKey) -> None:
        if key.fileobj is self._bell:
            self._take_guests()
        elif key.fileobj is self._dialling:
            self._end_dial()
        elif key.fileobj is self._listener:
            self._accept()
        elif key.data in self._candidates:
            self._exchange(key.data)

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case StartDial():
                self._dial()
            case StopDial():
                self._stop_dial()
            case StartListening():
                self._listen()
            case StopListening():
                self._stop_listening()
            case Prove(path):
                self._selector.register(self._candidates[path].sock, selectors.EVENT_READ, path)
                self._exchange(path)
            case ClosePath(path):
                if candidate := self._candidates.pop(path, None):
                    self._drop(candidate.sock)
            case Use(path):
                self._use(path)
            case EndWithoutPath(reason):
                self._failure = reason

    # -- dialling and listening

    def _dial(self) -> None:
        try:
            self._dialling = bound(self._source)
            code = self._dialling.connect_ex(self._target)
        except OSError as error:
            code = error.errno or errno.EINVAL
        if self._dialling is None or code not in (0, errno.EINPROGRESS):
            self._fail_dial(code)
        else:
            self._selector.register(self._dialling, selectors.EVENT_WRITE)

    def _end_dial(self) -> None:
        assert self._dialling is not None
        if code := self._dialling.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._fail_dial(code)
        else:
            sock, self._dialling = self._dialling, None
            self._selector.unregister(sock)
            self._events.append(Dialled(self._add(Candidate(sock, Proof(self._token, self._machine.leads)))))

    def _fail_dial(self, code: int) -> None:
        self._stop_dial()
        self._events.append(DialFailed(os.strerror(code)))

    def _listen(self) -> None:
        """Listen. A failure is ignored: this phase is lost, and other phases follow."""
        with contextlib.suppress(OSError):
            self._listener = listening(self._source)
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            self._events.append(ConnectionAccepted(self._add(Candidate(sock))))

    def _take_guests(self) -> None:
        self._bell.recv(1)
        guest = self._guests.popleft()
        self._events.append(ConnectionAccepted(self._add(Candidate(guest.sock, head=guest.head))))

    # -- proving

    def _add(self, candidate: Candidate) -> int:
        self._count += 1
        self._candidates[self._count] = candidate
        return self._count

    def _exchange(self, path: int) -> None:
        candidate = self._candidates[path]
        try:
            candidate.exchange()
            if candidate.says_which and self._passed_on(path, candidate):
                return
            if candidate.proved:
                self._events.append(Proved(path))
            else:
                self._selector.modify(candidate.sock, candidate.interest, path)
        except (OSError, NotProved) as error:
            self._events.append(Refuted(path, str(error)))

    def _passed_on(self, path: int, candidate: Candidate) -> bool:
        """Begin the proof with a caller, or pass the caller on to the attempt that it seeks."""
        name = named_by(candidate.head)
        if name == token_name(self._token):
            candidate.begin(Proof(self._token, self._machine.leads))
            return False
        self._selector.unregister(candidate.sock)
        if LOBBY.pass_on(name, Guest(candidate.sock, candidate.head)):
            del self._candidates[path]
        self._events.append(Refuted(path, "a caller sought somebody else"))
        return True

    def _use(self, path: int) -> None:
        """Choose the path; the leader informs the follower, which waits for that message."""
        candidate = self._candidates.pop(path)
        self._selector.unregister(candidate.sock)
        assert candidate.proof is not None
        try:
            if self._machine.leads:
                candidate.sock.sendall(candidate.proof.choose())  # 32 bytes fit: the buffer is empty
            self._chosen = candidate.sock
        except OSError as error:
            self._failure = f"the path broke when it was chosen ({error})"
            candidate.sock.close()

    # -- closing

    def _stop_dial(self) -> None:
        if self._dialling is not None:
            self._drop(self._dialling)
            self._dialling = None

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._drop(self._listener)
            self._listener = None

    def _drop(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(sock)
        abort(sock)

    def _close(self) -> None:
        """Close all sockets, and accept no more guests."""
        self._stop_dial()
        self._stop_listening()
        for candidate in self._candidates.values():
            self._drop(candidate.sock)
        for guest in self._guests:
            abort(guest.sock)
        self._bell.close()
        self._button.close()
        self._selector.close()
