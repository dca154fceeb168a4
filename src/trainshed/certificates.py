"""The server's own certificate authority, created on first start, for clients that need TLS."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from trainshed.node.files import DRAFT_PREFIX, write_file

CERTIFICATE_TTL = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in one folder, mode 0700. Clients must trust `authority`."""

    authority: Path
    chain: Path
    key: Path


def ensure_certificates(folder: Path, *, hosts: tuple[str, ...], leaf: str = "server") -> Certificates:
    """Create what is missing, damaged or about to expire. A valid authority is kept. Idempotent.

    Removes drafts of keys that a killed process left. Only one process may call it for a folder at a time.
    Certificates for different purposes have different names (`leaf`) and the same authority.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    for draft in folder.glob(f"{DRAFT_PREFIX}*"):
        draft.unlink(missing_ok=True)
    certificates = Certificates(
        authority=folder / "ca.pem", chain=folder / f"{leaf}.pem", key=folder / f"{leaf}-key.pem"
    )
    ca_key_path = folder / "ca-key.pem"
    if not _is_valid(certificates.authority, ca_key_path):
        ca_key = ec.generate_private_key(ec.SECP256R1())
        _write_pair(ca_key_path, ca_key, certificates.authority, _authority(ca_key))
    authority = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    ca_key = _load_key(ca_key_path)
    if not (_is_valid(certificates.chain, certificates.key) and _covers(certificates.chain, hosts, authority)):
        key = ec.generate_private_key(ec.SECP256R1())
        _write_pair(certificates.key, key, certificates.chain, _leaf(authority, ca_key, key, hosts))
    return certificates


def write_bundle(certificates: Certificates, bundles: tuple[Path, ...]) -> Path:
    """Write a file with this authority and those that the machine trusts: of `bundles`, else of the system.

    Replaced atomically.
    """
    bundle = certificates.authority.with_name("bundle.pem")
    trusted = [path for path in bundles if path.is_file()] or [path for path in _system_bundles() if path.is_file()][:1]
    write_file(bundle, b"\n".join(path.read_bytes() for path in (*trusted, certificates.authority)))
    return bundle


def _system_bundles() -> tuple[Path, ...]:
    """Where distributions keep trusted authorities, the most common path first."""
    known = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
    compiled_in = ssl.get_default_verify_paths().openssl_cafile
    return tuple(Path(path) for path in (*known, compiled_in))


def _is_valid(certificate: Path, key: Path) -> bool:
    """Whether both files are readable, belong to each other, and do not expire soon."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        matches = loaded.public_key() == _load_key(key).public_key()
    except (FileNotFoundError, ValueError):
        return False
    return matches and loaded.not_valid_after_utc - RENEW_BEFORE > datetime.now(UTC)


def _covers(path: Path, hosts: tuple[str, ...], authority: x509.Certificate) -> bool:
    leaf = x509.load_pem_x509_certificate(path.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, InvalidSignature):
        return False
    return set(_alternative_names(hosts)) <= set(names)


def _alternative_names(hosts: tuple[str, ...]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + CERTIFICATE_TTL)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name(f"Trainshed authority {os.urandom(4).hex()}")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return builder.add_extension(usage, critical=True).sign(key, hashes.SHA256())


def _leaf(
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    hosts: tuple[str, ...],
) -> x509.Certificate:
    builder = _builder(_name("trainshed"), authority.subject, key.public_key())
    builder = builder.add_extension(x509.SubjectAlternativeName(_alternative_names(hosts)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return builder.add_extension(issuer, critical=False).sign(authority_key, hashes.SHA256())


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{path} is not an elliptic-curve key")
    return key


def _write_pair(
    key_path: Path, key: ec.EllipticCurvePrivateKey, certificate_path: Path, certificate: x509.Certificate
) -> None:
    """Write both files durably. If the process is killed in between, the next start finds that they do not match."""
    write_file(key_path, _key_pem(key), durable=True)
    write_file(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), durable=True)
