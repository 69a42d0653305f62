"""A certificate authority for a test.

Its certificates have the extensions of RFC 5280 (4.2.1) that Python's verification requires since 3.13.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_DAY = timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(False, False, False, False, False, True, True, False, False)


class Authority:
    """`certificate`: PEM file of its own certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.certificate = folder, folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a private authority")])
        made = _begun(self._name, self._name, self._key).add_extension(x509.BasicConstraints(True, 0), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        made = made.add_extension(_SIGNS_CERTIFICATES, critical=True)
        self.certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))

    def issue(self, address: str = "127.0.0.1") -> Path:
        """PEM file of a key and its certificate, for a server at an IP address."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a server")])
        addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = _begun(name, self._name, key).add_extension(addresses, critical=False)
        signed = made.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        kind, hidden = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = self._folder / f"server-{address}.pem"
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, hidden) + _pem(signed))
        return file


def _begun(name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
    return made.not_valid_before(now - _DAY).not_valid_after(now + _DAY)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
