"""The cause of an unusable Kafka cluster, from the events of librdkafka's connections.

A failed call reports only a timeout. The cause is in the events that librdkafka reports meanwhile: to `error_cb`, or
only to the logger if a listener closes the connection.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from confluent_kafka import KafkaError

from .cluster_interface import BrokerUnreachable

_log = logging.getLogger("treadle.triggers")
AGAIN = 60.0
"""Seconds after which the same line is logged again."""
_PLACE = re.compile(r"(?:\w+://)?([^\s/]+)/(?:bootstrap|\d+): (.*?)(?: \(after (\d+)ms in state (\w+).*)?$", re.DOTALL)
_CLOSED = "closed by peer|Invalid response size|reset by peer"
_SETTLED = 1000
"""Milliseconds after which a closed connection counts as accepted before."""
_WAIT = "Check that the broker runs where the profile says."
_CAUSES = (
    ("Failed to resolve", "the host name is unknown", "Check the spelling of bootstrap.servers."),
    ("Connection refused", "connection refused: no process listens there", "Check the address; start the broker."),
    (
        "certificate verify failed",
        "the broker's certificate is not trusted, or is for another host name",
        "Set ssl.ca.location to the authority's certificate, and use a host name that the certificate has.",
    ),
    (
        "PLAINTEXT broker listener|^Disconnected: .* in SSL_HANDSHAKE$",
        "the listener does not speak TLS, and the connection asks for TLS",
        "Mend security.protocol, or use the port of a TLS listener.",
    ),
    (
        "mechanism handshake failed",
        "the listener does not offer the SASL mechanism",
        "Mend sasl.mechanism or security.protocol of the connection.",
    ),
    ("SASL", "authentication failed: the user or the password is wrong", "Check sasl.username and its secret."),
    ("SSL|certificate", "the TLS handshake failed", "Check security.protocol and the ssl settings of the connection."),
    (
        _CLOSED,
        "the broker closes the connection, as a listener for TLS or SASL does with plaintext",
        "Check security.protocol, and that the port is the one of Kafka.",
    ),
    ("timed out", "the broker does not answer in time", "Check the address, firewalls, and that the broker runs."),
)
"""Pattern of librdkafka's text and the connection's state, cause, remedy. The first match counts."""


class Connectivity:
    """The events of all clients of one connection; pass it to each client as `logger`, and `error` as `error_cb`.

    A repeated cause is logged once. Called by the thread that polls the clients.
    """

    def __init__(self, name: str) -> None:
        """`name`: of the connection in the profile."""
        self._name = name
        self.cause: BrokerUnreachable | None = None
        """Why connections fail; None since the cluster last answered."""
        self.down = False
        """No broker was reachable since the cluster last answered."""
        self._logged: dict[str, float] = {}

    def error(self, error: KafkaError) -> None:
        """For `error_cb`."""
        self.down |= error.code() == KafkaError._ALL_BROKERS_DOWN
        self._note(error.str())

    def log(self, level: int, text: str, *values: Any) -> None:
        """For `logger`. librdkafka passes a format with the facility, the client and the line."""
        line = text % values if values else text
        if not self._note(line) and level >= logging.WARNING and not line.startswith("CONFWARN"):
            self._say(level, line)

    def answered(self) -> None:
        """The cluster answered a request."""
        if self.cause is not None:
            _log.info("Kafka connection %s: works again", self._name)
            self._logged.clear()
        self.cause, self.down = None, False

    def unreachable(self, error: KafkaError) -> BrokerUnreachable | None:
        """The error for a failed call; None: the failure does not concern connections."""
        if error.code() in _UNANSWERED:
            return self.reason()
        return None

    def reason(self) -> BrokerUnreachable:
        """The error to raise: the known cause, or that the cluster does not answer."""
        if self.cause is None:
            return BrokerUnreachable(f"Kafka connection {self._name}: the cluster does not answer in time", _WAIT)
        return BrokerUnreachable(self.cause.message, self.cause.hint)

    def _note(self, text: str) -> bool:
        """Record the cause in the text; returns whether the text is about a failed connection."""
        found = cause_of(self._name, text)
        if found is None:
            return "brokers are down" in text
        self.cause = found
        self._say(logging.WARNING, str(found))
        return True

    def _say(self, level: int, line: str) -> None:
        about, now = re.sub(r"\d+", "", line), time.monotonic()
        if now >= self._logged.get(about, -AGAIN) + AGAIN:
            self._logged[about] = now
            _log.log(level, "%s", line)


_UNANSWERED = {
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._SSL,
    KafkaError._AUTHENTICATION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD,
}


def cause_of(name: str, text: str) -> BrokerUnreachable | None:
    """Interpret librdkafka's line about a connection; None: it does not report a failure."""
    found = _PLACE.search(text)
    if found is None:
        return None
    where, what, lasted, state = found.groups()
    if state == "UP" and int(lasted) >= _SETTLED and re.search(_CLOSED, what):
        return BrokerUnreachable(f"Kafka connection {name}, {where}: the broker closed the connection", _WAIT)
    for pattern, meaning, hint in _CAUSES:
        if re.search(pattern, f"{what} in {state}"):
            detail = f" ({what})" if pattern in _DETAILED else ""
            return BrokerUnreachable(f"Kafka connection {name}, {where}: {meaning}{detail}", hint)
    return None


_DETAILED = ("mechanism handshake failed", "SSL|certificate")
"""Causes for which librdkafka's own message is added."""
