"""Ed25519 keys and signatures of DSSE envelopes; all of it offline."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.core.attestation import Envelope, Signature, pre_authentication_encoding
from calib.edges.files import read_bytes
from calib.errors import ImageError, MissingLibraryError, UsageError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAKE_KEYS = (
    "make a pair with `openssl genpkey -algorithm ed25519 -out release.pem` and "
    "`openssl pkey -in release.pem -pubout -out release.pub.pem`"
)


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """Read a private key: PEM, PKCS #8, Ed25519, not encrypted.

    Raises:
        UsageError: the file is missing or holds no such key.
        MissingLibraryError: ``cryptography`` is not installed.
    """
    crypto = _library()
    data = _read_key(path, "a private key")
    try:
        key = crypto.serialization.load_pem_private_key(data, password=None)
    except TypeError as error:
        raise _wrong_key(
            path, "an encrypted key", "write it out without a password for the time of signing: `openssl pkey -in …`"
        ) from error
    except (ValueError, crypto.unsupported) as error:
        raise _wrong_key(path, "no private key in PEM", MAKE_KEYS) from error
    if not isinstance(key, crypto.ed25519.Ed25519PrivateKey):
        raise _wrong_key(path, "a key of another kind", MAKE_KEYS)
    found: Ed25519PrivateKey = key
    return found


def load_public_key(path: Path) -> Ed25519PublicKey:
    """Read a public key: PEM, Ed25519.

    Raises:
        UsageError: the file is missing or holds no such key.
        MissingLibraryError: ``cryptography`` is not installed.
    """
    crypto = _library()
    data = _read_key(path, "a public key")
    if b"PRIVATE KEY" in data:
        raise _wrong_key(path, "a private key", "give the public one, and keep the private one where releases are made")
    try:
        key = crypto.serialization.load_pem_public_key(data)
    except (ValueError, crypto.unsupported) as error:
        raise _wrong_key(path, "no public key in PEM", MAKE_KEYS) from error
    if not isinstance(key, crypto.ed25519.Ed25519PublicKey):
        raise _wrong_key(path, "a key of another kind", MAKE_KEYS)
    found: Ed25519PublicKey = key
    return found


def key_id(key: Ed25519PublicKey) -> str:
    """Name a key by the sha256 of its SubjectPublicKeyInfo, DER."""
    serialization = _library().serialization
    data = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(data).hexdigest()


def sign_payload(payload: bytes, payload_type: str, key: Ed25519PrivateKey) -> Envelope:
    """Put a payload into an envelope with one signature."""
    signature = key.sign(pre_authentication_encoding(payload_type, payload))
    return Envelope(payload, payload_type, (Signature(key_id(key.public_key()), signature),))


def is_signed_by(envelope: Envelope, key: Ed25519PublicKey) -> bool:
    """Whether one of the signatures is this key's; key ids are hints and prove nothing."""
    invalid = _library().invalid
    signed = pre_authentication_encoding(envelope.payload_type, envelope.payload)
    for item in envelope.signatures:
        try:
            key.verify(item.signature, signed)
        except invalid:
            continue
        return True
    return False


class _Library:
    """The parts of ``cryptography`` that are used here."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519

        self.invalid: type[Exception] = InvalidSignature
        self.unsupported: type[Exception] = UnsupportedAlgorithm
        self.serialization: Any = serialization
        self.ed25519: Any = ed25519


def _library() -> _Library:
    try:
        return _Library()
    except ImportError as error:
        raise MissingLibraryError(
            "signatures",
            expected="the package cryptography",
            got="it is not installed",
            remedy="pip install 'calib-workbench[sign]'",
        ) from error


def _read_key(path: Path, what: str) -> bytes:
    try:
        return read_bytes(str(path))
    except ImageError as error:
        raise UsageError(f"--key {path}", expected=f"{what}, a PEM file", got=error.got, remedy=MAKE_KEYS) from error


def _wrong_key(path: Path, got: str, remedy: str) -> UsageError:
    return UsageError(f"--key {path}", expected="an Ed25519 key in PEM", got=got, remedy=remedy)
