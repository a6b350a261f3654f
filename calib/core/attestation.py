"""A build's provenance as an in-toto Statement, and the bytes that a DSSE envelope signs.

Statement: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md; predicate: SLSA Provenance v1,
https://slsa.dev/spec/v1.0/provenance; envelope: https://github.com/secure-systems-lab/dsse (protocol and envelope).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calib.errors import FormatError

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://slsa.dev/provenance/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
BUILD_TYPE = "urn:calib:build:v1"
BUILDER = "urn:calib:workbench"
SIGN_AGAIN = "sign the build again (`calib sign`)"

_NOT_PARAMETERS = ("model", "manifest", "versions")


@dataclass(frozen=True)
class Signature:
    """One signature of an envelope: the signer's key id, and 64 bytes for Ed25519."""

    keyid: str
    signature: bytes


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope.

    Attributes:
        payload: the signed bytes.
        payload_type: what they are.
        signatures: at least one.
    """

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]

    def document(self) -> dict[str, Any]:
        """The envelope as JSON values."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": [
                {"keyid": item.keyid, "sig": base64.b64encode(item.signature).decode()} for item in self.signatures
            ],
        }


def make_statement(provenance: Mapping[str, Any], further: Mapping[str, str]) -> dict[str, Any]:
    """Say a build's provenance as an in-toto Statement v1 with a SLSA v1 predicate.

    The answer depends on the arguments alone, so that a verifier can make it again and compare.

    Args:
        provenance: what ``provenance.json`` holds.
        further: sha256 of files the build's own list does not hold: ``provenance.json``, ``evaluation.json``.
    """
    request = provenance["request"]
    subjects = {**provenance["outputs"], **further}
    sources = [*request["model"].items(), ("manifest", request["manifest"]), *provenance["images"].items()]
    return {
        "_type": STATEMENT_TYPE,
        "subject": [_descriptor(name, digest) for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {key: value for key, value in request.items() if key not in _NOT_PARAMETERS},
                "internalParameters": {
                    "calibrators": provenance["calibrators"],
                    "samplers": provenance["samplers"],
                    "schema": provenance["schema"],
                },
                "resolvedDependencies": [_descriptor(name, digest) for name, digest in sources],
            },
            "runDetails": {
                "builder": {"id": BUILDER, "version": request["versions"]},
                "metadata": {
                    "startedOn": provenance["times"]["started"],
                    "finishedOn": provenance["times"]["finished"],
                },
            },
        },
    }


def _descriptor(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": digest}}


def statement_subjects(statement: Any) -> dict[str, str]:
    """Sha256 by name of a statement's subjects.

    Raises:
        FormatError: it is no such statement.
    """
    try:
        found = {item["name"]: item["digest"]["sha256"] for item in statement["subject"]}
        if statement["_type"] == STATEMENT_TYPE and all(isinstance(item, str) for item in found.values()):
            return found
    except (TypeError, KeyError):
        pass
    raise FormatError(
        "the signed statement",
        expected="an in-toto Statement v1 with sha256 digests",
        got="something else",
        remedy=SIGN_AGAIN,
    )


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """The bytes that DSSE signs: type and payload with their lengths, so that neither can pass for the other."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def parse_envelope(data: bytes, place: str) -> Envelope:
    """Read a DSSE envelope.

    Raises:
        FormatError: it is none, or has no signature.
    """
    try:
        document = json.loads(data)
        signatures = tuple(_signatures(document["signatures"]))
        payload = _decoded(document["payload"])
        kind = document["payloadType"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _no_envelope(place, "no DSSE envelope") from error
    if not signatures or not isinstance(kind, str):
        raise _no_envelope(
            place, "an envelope without signature" if isinstance(kind, str) else "an envelope without type"
        )
    return Envelope(payload, kind, signatures)


def _signatures(entries: Iterable[Mapping[str, Any]]) -> Iterable[Signature]:
    for entry in entries:
        yield Signature(str(entry["keyid"]) if "keyid" in entry else "", _decoded(entry["sig"]))


def _decoded(text: str) -> bytes:
    """Base64, standard or URL-safe, as DSSE allows."""
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, AttributeError) as error:
        raise ValueError("not base64") from error


def _no_envelope(place: str, got: str) -> FormatError:
    return FormatError(place, expected="a DSSE envelope with a signature", got=got, remedy=SIGN_AGAIN)
