"""Encryption of everything that passes through Temporal: AES-256-GCM under keys derived from the deployment key.

Temporal stores payloads (arguments, results, heartbeats, memos) and failures. Each payload is encrypted and bound to
its namespace, workflow id and activity type. A process without the key cannot read a payload, make one, or use one of
another run.

The codec replaces a payload that fails the check by the reason of the refusal, and the reader raises that reason. The
codec itself must not raise: Temporal would then repeat the workflow task for ever.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self, TypeVar

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecution
from temporalio.converter import (
    ActivitySerializationContext,
    BinaryNullPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    EncodingPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import FailureClass

ENCODING = b"binary/treadle-1"
_REFUSED = b"treadle/refused"
_NONCE_BYTES = 12
_SHOWN = "encrypted by treadle; see: treadle show, treadle logs"
_SERVER_TYPES = {"AcceptedUpdateCompletedWorkflow"}
"""Types of application failures that Temporal's server itself creates."""
_SCHEDULED = re.compile(r"(?P<base>.*\.tick)-\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
"""A Schedule encrypts its action once. The server appends the nominal time to the id of each workflow that it
starts."""

T = TypeVar("T")


class RefusedMessage(ApplicationError):
    """A payload or failure in Temporal was not made by a holder of the deployment key."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        text = f"refused a message that came through Temporal: {reason}"
        super().__init__(text, type=str(FailureClass.FORGED), non_retryable=True)


class MessageCipher:
    """Encrypts under one deployment key, and decrypts under it and its predecessors."""

    def __init__(self, key: bytes, predecessors: Sequence[bytes] = ()) -> None:
        self._current = key_id(key)
        self._keys = {key_id(known): known for known in (*predecessors, key)}

    def encrypt(self, place: str, plain: bytes) -> Payload:
        """`place`: the context that the payload is bound to (see `place_of`)."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        data = _cipher(self._keys[self._current], place).encrypt(nonce, plain, self._bound(self._current, place))
        return Payload(metadata={"encoding": ENCODING, "key": self._current.encode()}, data=nonce + data)

    def decrypt(self, place: str, payload: Payload) -> bytes:
        """The plain payload. Raises RefusedMessage."""
        from cryptography.exceptions import InvalidTag

        if payload.metadata.get("encoding") != ENCODING:
            raise RefusedMessage("it is not encrypted, so treadle did not write it")
        name = payload.metadata.get("key", b"").decode("ascii", "replace")
        key = self._keys.get(name)
        if key is None:
            raise RefusedMessage(f"it was written under key {name[:16]!r}, and this deployment has {self._known()}")
        nonce, data = payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:]
        try:
            return bytes(_cipher(key, place).decrypt(nonce, data, self._bound(name, place)))
        except (InvalidTag, ValueError):
            raise RefusedMessage("it was changed, or was written for another run") from None

    def _known(self) -> str:
        return ", ".join(self._keys)

    @staticmethod
    def _bound(name: str, place: str) -> bytes:
        return b"\x00".join((ENCODING, name.encode(), place.encode()))


def key_id(key: bytes) -> str:
    """An identifier of a deployment key that reveals nothing of the key: 8 bytes in hex."""
    return sealing.purpose_key(key, b"treadle message key id")[:8].hex()


@lru_cache(maxsize=1024)
def _cipher(key: bytes, place: str) -> Any:
    """The cipher of one place. Each place has its own key, so no key comes near the limit of 2**32 random nonces."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(sealing.purpose_key(key, b"treadle message\x00" + place.encode()))


class EncryptingCodec(PayloadCodec, WithSerializationContext):
    """Temporal's codec: encrypts every outgoing payload and checks every incoming one."""

    def __init__(self, cipher: MessageCipher, place: str = "") -> None:
        self._cipher, self._place = cipher, place

    def with_context(self, context: SerializationContext) -> Self:
        return type(self)(self._cipher, place_of(context))

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._cipher.encrypt(self._place, payload.SerializeToString()) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._decoded(payload) for payload in payloads]

    def _decoded(self, payload: Payload) -> Payload:
        try:
            return Payload.FromString(self._cipher.decrypt(self._place, payload))
        except RefusedMessage as refused:
            return Payload(metadata={"encoding": _REFUSED}, data=refused.reason.encode())


def place_of(context: SerializationContext) -> str:
    """The context that a payload is bound to: namespace, workflow id, and the type of an activity."""
    if isinstance(context, WorkflowSerializationContext):
        return _place(context.namespace, context.workflow_id, "")
    if isinstance(context, ActivitySerializationContext):
        return _place(context.namespace, context.workflow_id or "", context.activity_type or "")
    return ""


def activity_context(run: WorkflowExecution, activity: PendingActivityInfo) -> ActivitySerializationContext:
    """The context of a running activity, for a process other than its worker."""
    return ActivitySerializationContext(
        namespace=run.namespace,
        workflow_id=run.id,
        workflow_type=run.workflow_type,
        activity_type=activity.activity_type.name,
        activity_id=activity.activity_id,
        activity_task_queue=None,
        is_local=False,
    )


def _place(namespace: str, workflow: str, activity: str) -> str:
    scheduled = _SCHEDULED.fullmatch(workflow)
    return "\x00".join((namespace, scheduled["base"] if scheduled else workflow, activity))


class _RefusedConverter(EncodingPayloadConverter):
    """Reads the replacement that the codec makes for a refused payload."""

    @property
    def encoding(self) -> str:
        return _REFUSED.decode()

    def to_payload(self, value: Any) -> Payload | None:  # noqa: ARG002  # nothing is written so
        return None

    def from_payload(self, payload: Payload, type_hint: type[T] | None = None) -> Any:
        """The refusal's value of the message type (`refused`) if it has one; otherwise raises RefusedMessage."""
        reason = payload.data.decode()
        refused = getattr(type_hint, "refused", None)
        if refused is None:
            raise RefusedMessage(reason)
        return refused(reason)


class _StructConverter(JSONPlainPayloadConverter):
    """JSON, as the SDK writes it, of msgspec structs too."""

    def to_payload(self, value: Any) -> Payload | None:
        return super().to_payload(msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value)

    def from_payload(self, payload: Payload, type_hint: type[T] | None = None) -> Any:
        if not isinstance(type_hint, type) or not issubclass(type_hint, msgspec.Struct):
            return super().from_payload(payload, type_hint)
        return msgspec.convert(json.loads(payload.data), known(type_hint))


class MessageConverter(CompositePayloadConverter):
    """The SDK's converters, and converters of structs and refusals."""

    def __init__(self) -> None:
        super().__init__(_RefusedConverter(), BinaryNullPayloadConverter(), _StructConverter())


class SealedFailures(DefaultFailureConverter):
    """Failures travel as the attributes that the codec encrypts. A failure without them counts as forged.

    The server itself makes timeouts, cancellations, terminations and failures that wrap another. They have no
    attributes.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        super().to_failure(exception, payload_converter, failure)
        sealed = {"message": failure.message, "stack_trace": failure.stack_trace, **_application(failure)}
        failure.encoded_attributes.CopyFrom(payload_converter.to_payloads([sealed])[0])
        failure.message, failure.stack_trace = _SHOWN, ""

    def from_failure(self, failure: Failure, payload_converter: PayloadConverter) -> BaseException:
        try:
            _check(failure, payload_converter)
        except RefusedMessage as refused:
            return refused
        return super().from_failure(_without_details(failure), payload_converter)


def _without_details(failure: Failure) -> Failure:
    """A copy without unused parts that the server may have written: the reason of a cancellation, and the last
    heartbeat."""
    copy = Failure.FromString(failure.SerializeToString())
    if copy.HasField("canceled_failure_info"):
        copy.canceled_failure_info.ClearField("details")
    if copy.HasField("timeout_failure_info"):
        copy.timeout_failure_info.ClearField("last_heartbeat_details")
    return copy


def _application(failure: Failure) -> dict[str, Any]:
    if not failure.HasField("application_failure_info"):
        return {}
    info = failure.application_failure_info
    return {"type": info.type, "non_retryable": info.non_retryable}


def _check(failure: Failure, converter: PayloadConverter) -> None:
    """Raises RefusedMessage for a failure that treadle did not write."""
    known = _application(failure)
    if not known or (known["type"] in _SERVER_TYPES and not failure.HasField("encoded_attributes")):
        return
    if not failure.HasField("encoded_attributes"):
        raise RefusedMessage("it reports a failure that treadle did not write")
    sealed = converter.from_payloads([failure.encoded_attributes])[0]
    if not isinstance(sealed, dict) or any(sealed.get(key) != value for key, value in known.items()):
        raise RefusedMessage("it reports a failure that was changed")


def plain_converter() -> DataConverter:
    """`data_converter` without encryption, for histories that were recorded and decrypted."""
    return DataConverter(payload_converter_class=MessageConverter, failure_converter_class=SealedFailures)


def data_converter(key: bytes, predecessors: Sequence[bytes] = ()) -> DataConverter:
    """The converter of a deployment's clients and workers."""
    return replace(plain_converter(), payload_codec=EncryptingCodec(MessageCipher(key, predecessors)))
