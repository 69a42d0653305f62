"""A Kafka broker on loopback for tests and experiments.

    with broker() as kafka:
        topic_id = kafka.create_topic("orders", partitions=3)
        kafka.produce("orders", [b"1", b"2"])
        kafka.kill()
        kafka.start()

The broker is Apache's own (KRaft, one node). It needs Java 17 and, once, Maven: the jars are kept in
~/.cache/treadle-tests. `unsupported` returns the missing program. `mock_broker` is librdkafka's mock inside this
process. It needs nothing, keeps groups and offsets, cannot be stopped, and has no topic UUIDs.

`python tests/kafka.py 9092` runs a broker until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_security import PASSWORD, USER, self_signed

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient

T = TypeVar("T")
VERSION = "4.0.0"
READY_SECONDS = 120.0
_POM = Path(__file__).with_name("kafka-pom.xml")
_CLUSTER = "treadle-test-cluster-w"
_TIMEOUT = 30.0
_ASKED = 5.0
"""Seconds for one of several requests."""
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_JAVA = (
    "java",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)


@dataclass
class Mock:
    """The operations of every test broker."""

    bootstrap: str
    handle: Any = field(default=None, repr=False)
    """The object that keeps a mock alive."""

    @property
    def settings(self) -> dict[str, Any]:
        """The minimal settings of a client, by librdkafka's names."""
        return {"bootstrap.servers": self.bootstrap}

    @functools.cached_property
    def producer(self) -> Producer:
        from confluent_kafka import Producer

        ordered = {"enable.idempotence": True, "linger.ms": 0}  # also when the leader of a new topic refuses a record
        return Producer({**self.settings, **ordered, "message.max.bytes": 16 * 2**20}, logger=_silent())

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        partition: int = 0,
        keys: Iterable[bytes | None] | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> list[int]:
        """Write records into one partition, in order, and wait for them. Returns their offsets."""
        offsets: list[int] = []

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        values = list(values)
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            while True:
                try:
                    self.producer.produce(topic, value, key, partition, delivered, headers=dict(headers or {}))
                    break
                except BufferError:
                    self.producer.poll(0.1)
        self.producer.flush(_TIMEOUT)
        assert len(offsets) == len(values), f"{len(values) - len(offsets)} records of {topic} were not taken"
        return offsets


@dataclass
class Broker(Mock):
    """A real broker. It keeps its ports and its data over `stop`, `kill` and `start`."""

    sasl: str = ""
    """The address that requires USER and PASSWORD."""
    tls: str = ""
    """The address with TLS. Its certificate is its own authority: `certificate`."""
    folder: Path = Path()
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def certificate(self) -> str:
        """The path of the certificate (and the key) of the TLS listener."""
        return str(self.folder / "tls.pem")

    @functools.cached_property
    def admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self.settings, "reconnect.backoff.max.ms": 200}, logger=_silent())

    def create_topic(self, topic: str, partitions: int = 1, **config: str) -> str:
        """Create a topic, also after `delete_topic`. Returns its UUID. In `config` use `_` for `.`."""
        from confluent_kafka.cimpl import NewTopic

        wanted = NewTopic(topic, partitions, 1, config={name.replace("_", "."): text for name, text in config.items()})
        self.admin.create_topics([wanted])[topic].result(_TIMEOUT)
        return _eventually(lambda: self.topic_id(topic))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until the broker has removed it."""
        self.admin.delete_topics([topic])[topic].result(_TIMEOUT)
        _eventually(lambda: topic not in self.admin.list_topics(timeout=_TIMEOUT).topics)

    def topic_id(self, topic: str) -> str:
        """The UUID of a topic in Kafka's notation."""
        from confluent_kafka import TopicCollection

        described = self.admin.describe_topics(TopicCollection([topic]))[topic].result(_TIMEOUT)
        return str(described.topic_id)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Expire the records of a partition below an offset now."""
        from confluent_kafka import TopicPartition

        at = TopicPartition(topic, partition, before)
        self.admin.delete_records([at])[at].result(_TIMEOUT)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The offset of the next record. A new partition has no leader for a moment."""
        from confluent_kafka import Consumer, TopicPartition

        at = TopicPartition(topic, partition)

        def high() -> tuple[int]:
            reader = Consumer({**self.settings, "group.id": "ends"}, logger=_silent())  # a client remembers its refusal
            try:
                return (int(reader.get_watermark_offsets(at, timeout=_ASKED)[1]),)
            finally:
                reader.close()

        return _eventually(high)[0]

    def start(self) -> None:
        """Start it, and wait until it answers. Raises RuntimeError with the end of its log."""
        with open(self.folder / "log", "ab") as log:
            command = [*_java(), "kafka.Kafka", str(self.folder / "server.properties")]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)
        end = time.monotonic() + READY_SECONDS
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                tail = (self.folder / "log").read_text(errors="replace")[-2000:]
                self.kill()
                raise RuntimeError(f"the broker is not ready:\n{tail}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it in order, so that groups are informed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            try:
                self.process.wait(_TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=1).brokers)
        return False


@contextlib.contextmanager
def broker(port: int = 0) -> Iterator[Broker]:
    """An empty broker on a free port. It ends, and its data is removed, with the block."""
    with tempfile.TemporaryDirectory(prefix="treadle-kafka-", ignore_cleanup_errors=True) as name:
        ports = [port or _free_port(), _free_port(), _free_port(), _free_port()]
        plain, sasl, tls = (f"127.0.0.1:{number}" for number in ports[:3])
        made = Broker(plain, sasl=sasl, tls=tls, folder=Path(name))
        Path(made.certificate).write_bytes(self_signed())
        (made.folder / "server.properties").write_text(_properties(made.folder, ports))
        try:
            _format(made.folder)
            made.start()
            yield made
        finally:
            made.kill()


@contextlib.contextmanager
def mock_broker() -> Iterator[Mock]:
    """librdkafka's mock in this process. The first write to a topic creates it."""
    from confluent_kafka import Producer

    handle = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1}, logger=_silent())
    address = next(iter(handle.list_topics(timeout=_TIMEOUT).brokers.values()))
    yield Mock(f"{address.host}:{address.port}", handle)


@functools.cache
def unsupported() -> str:
    """The reason why the real broker cannot run here, for a skip. Empty: it can."""
    if shutil.which("java") is None:
        return "the real Kafka broker needs Java 17 or newer, which `make system-packages` installs"
    if not _jar_folder().exists() and shutil.which("mvn") is None:
        return "the jars of the real Kafka broker come through Maven, which `make system-packages` installs"
    try:
        jars()
    except subprocess.SubprocessError as error:
        return f"Maven cannot fetch the real Kafka broker: {error}"
    return ""


def jars() -> Path:
    """The folder of the broker's jars, fetched once for the user. Other test processes wait in the meantime."""
    folder = _jar_folder()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", "-DincludeScope=runtime"]
            subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True, stdout=sys.stderr, timeout=600)
            partial.rename(folder)
    return folder


def _jar_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "treadle-tests" / f"kafka-{VERSION}"


def _java() -> list[str]:
    return [*_JAVA, "-cp", f"{jars()}/*"]


def _format(folder: Path) -> None:
    """Prepare the folder for a broker's start."""
    command = [*_java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(folder / "server.properties")]
    subprocess.run(command, check=True, capture_output=True, timeout=READY_SECONDS)


def _properties(folder: Path, ports: list[int]) -> str:
    plain, sasl, tls, controller = (f"127.0.0.1:{port}" for port in ports)
    known = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{plain},SASL://{sasl},TLS://{tls},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{plain},SASL://{sasl},TLS://{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": folder / "tls.pem",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{_LOGIN} user_{USER}="{PASSWORD}";',
        "log.dirs": folder / "data",
        "log.retention.check.interval.ms": 1000,
        "file.delete.delay.ms": 1000,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    return "".join(f"{name}={value}\n" for name, value in known.items())


def _free_port() -> int:
    """A port below the ephemeral range, so that no outgoing connection takes it in the meantime."""
    for _ in range(1000):
        port = 10_000 + int.from_bytes(os.urandom(2), "little") % 20_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no free port")


def _eventually(what: Callable[[], T]) -> T:
    """The first true answer. Until then the broker may also refuse."""
    from confluent_kafka import KafkaException

    end = time.monotonic() + _TIMEOUT
    while True:
        try:
            if answer := what():
                return answer
        except KafkaException:
            if time.monotonic() > end:
                raise
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def _silent() -> logging.Logger:
    """A logger without output, since clients log every absent broker."""
    logger = logging.getLogger("kafka.silent")
    logger.disabled = True
    return logger


if __name__ == "__main__":
    with broker(int(sys.argv[1]) if sys.argv[1:] else 0) as running, contextlib.suppress(KeyboardInterrupt):
        sys.stderr.write(f"a Kafka broker answers on {running.bootstrap}; Ctrl-C ends it\n")
        threading.Event().wait()
