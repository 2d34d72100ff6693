"""Certificates of a cluster's own authority: for its brokers, and one for clients of brokers that ask for one."""

from __future__ import annotations

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from bin.broker.ports import LOOPBACK

CA_FILE: Final = "ca.pem"
CLIENT_FILE: Final = "client.pem"
valid_days: Final = 3650


@dataclass(frozen=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    name: x509.Name


def make_certificates(folder: Path, broker_ids: list[int]) -> None:
    """Make `ca.pem`, and `broker-ID.pem` and `client.pem` with a key each. The authority's key is kept nowhere."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _Authority(ec.generate_private_key(ec.SECP256R1()), _named("Runstore test authority"))
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    own = _begin(authority, authority.name, authority.key).add_extension(constraints, critical=True)
    certificate = own.sign(authority.key, SHA256()).public_bytes(Encoding.PEM)
    (folder / CA_FILE).write_bytes(certificate)
    for broker_id in broker_ids:
        _write(folder / f"broker-{broker_id}.pem", _issue(authority, f"broker-{broker_id}") + certificate)
    _write(folder / CLIENT_FILE, _issue(authority, "client") + certificate)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _begin(authority: _Authority, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(authority.name)
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=valid_days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )


def _issue(authority: _Authority, name: str) -> bytes:
    """Give a new key, and the authority's certificate for it on this machine's loopback names."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _begin(authority, _named(name), key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .sign(authority.key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
