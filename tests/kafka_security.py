"""Access rights on the broker of the tests, and the certificate of its TLS listener."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from kafka import Broker

USER, PASSWORD = "treadle", "treadle-secret"
"""The user of the SASL listener (mechanism PLAIN)."""
_SECONDS = 30.0


def as_user(broker: Broker) -> dict[str, Any]:
    """Settings of a client that logs in as USER, whose rights `restrict` limits."""
    login = {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
    return {"bootstrap.servers": broker.sasl, "security.protocol": "SASL_PLAINTEXT", **login}


def restrict(admin: AdminClient, kind: Literal["topic", "group"], name: str, *operations: str) -> None:
    """Allow USER these operations only, such as READ. Without operations it may do nothing."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export what its pages name
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    lift(admin, kind, name)
    about = (ResourceType[kind.upper()], name, ResourcePatternType.LITERAL)
    rights = [(f"User:{USER}", operation) for operation in operations] or [("User:another", "READ")]
    made = [AclBinding(*about, user, "*", AclOperation[one], AclPermissionType.ALLOW) for user, one in rights]
    for answer in admin.create_acls(made).values():
        answer.result(_SECONDS)


def lift(admin: AdminClient, kind: Literal["topic", "group"], name: str) -> None:
    """Undo `restrict`."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs do not export what its pages name
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    about: Any = (ResourceType[kind.upper()], name, ResourcePatternType.LITERAL, None, None)
    wanted = AclBindingFilter(*about, AclOperation.ANY, AclPermissionType.ANY)  # type: ignore[call-arg]
    for answer in admin.delete_acls([wanted]).values():
        answer.result(_SECONDS)


def self_signed() -> bytes:
    """A key and its self-signed certificate for 127.0.0.1, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a broker")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = made.add_extension(addresses, critical=False).sign(key, hashes.SHA256())
    kind, hidden = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, kind, hidden)
    return private + signed.public_bytes(serialization.Encoding.PEM)
