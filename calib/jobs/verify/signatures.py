"""The in-toto statement beside the provenance, and its signature."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.core.attestation import (
    PAYLOAD_TYPE,
    Envelope,
    make_statement,
    parse_envelope,
    statement_subjects,
)
from calib.core.gate.provenance import is_plain_name
from calib.edges.builddir import ENVELOPE, EVALUATION, PROVENANCE, STATEMENT
from calib.edges.files import sha256_file
from calib.edges.signing import is_signed_by, key_id, load_public_key
from calib.errors import FormatError
from calib.jobs.verify.subject import Subject
from calib.types.gate import Check, few

RESTORE = "restore it, or build again"
SIGN = "sign it with `calib sign DIR --key KEY`"
UNTRUSTED = "do not use this folder; get it again from who signed it"
EXTRA = frozenset({PROVENANCE, EVALUATION})
"""Files that a statement may vouch for besides the build's own list."""


@dataclass(frozen=True)
class Vouched:
    """What statement and signature say.

    Attributes:
        checks: of both.
        signed: sha256 by name of every file that a verified signature covers; empty without one.
    """

    checks: tuple[Check, ...]
    signed: Mapping[str, str]


def check_vouchers(subject: Subject, key: Path | None) -> Vouched:
    """Check the statement, and with a key the signature.

    Raises:
        UsageError: the key cannot be used.
        MissingLibraryError: there is a key, and ``cryptography`` is not installed.
    """
    statement = _check_statement(subject)
    envelope = subject.folder / ENVELOPE
    if key is None:
        return Vouched((statement, _check_unverified(subject, envelope)), {})
    public = load_public_key(key)
    if not envelope.is_file():
        return Vouched((statement, Check("signature", "fail", f"not signed: no {ENVELOPE}", SIGN)), {})
    try:
        found = parse_envelope(envelope.read_bytes(), ENVELOPE)
        signed = found.payload_type == PAYLOAD_TYPE and is_signed_by(found, public)
        problems = _problems(subject, found.payload) if signed else ["no signature by this key"]
    except FormatError as error:
        problems = [f"{error.place}: {error.got}"]
    if problems:
        return Vouched((statement, Check("signature", "fail", "; ".join(problems), UNTRUSTED)), {})
    files = statement_subjects(json.loads(found.payload))
    passed = Check("signature", "pass", f"{len(files)} files signed by key {key_id(public)[:16]}")
    return Vouched((statement, passed), files)


def _check_statement(subject: Subject) -> Check:
    file = subject.folder / STATEMENT
    if not file.is_file():
        return Check("statement", "fail", f"{STATEMENT}, which every build writes, is missing", RESTORE)
    problems = _problems(subject, file.read_bytes())
    if problems:
        return Check("statement", "fail", f"{STATEMENT}: {'; '.join(problems)}", RESTORE)
    return Check("statement", "pass", "in-toto statement of this build")


def _check_unverified(subject: Subject, envelope: Path) -> Check:
    if not envelope.is_file():
        return Check("signature", "skip", "not signed, and no --key given")
    try:
        found: Envelope = parse_envelope(envelope.read_bytes(), ENVELOPE)
        problems = _problems(subject, found.payload)
    except FormatError as error:
        problems = [f"{error.place}: {error.got}"]
    if problems:
        return Check("signature", "fail", f"not of this build: {'; '.join(problems)}", UNTRUSTED)
    return Check("signature", "note", "signed, but not verified", "give the signer's public key with --key")


def _problems(subject: Subject, payload: bytes) -> list[str]:
    """Say how a statement differs from the one that this folder gives."""
    try:
        stored = json.loads(payload)
        named = statement_subjects(stored)
    except (ValueError, RecursionError):
        return ["no JSON text"]
    except FormatError:
        return ["no in-toto statement with sha256 digests"]
    further = sorted(set(named) - set(subject.provenance["outputs"]))
    odd = [name for name in further if name not in EXTRA]
    if odd or PROVENANCE not in named:
        return [f"names files that are not of this build: {few(odd)}" if odd else f"does not name {PROVENANCE}"]
    now = hash_files(subject.folder, named)
    changed = [name for name, digest in named.items() if now.get(name) != digest]
    if changed:
        return [f"vouches for other bytes than those of {few(sorted(changed))}"]
    wanted = make_statement(subject.provenance, {name: named[name] for name in further})
    return [] if stored == json.loads(json.dumps(wanted)) else _parts_that_differ(stored, wanted)


def _parts_that_differ(stored: Any, wanted: Mapping[str, Any]) -> list[str]:
    keys = sorted(key for key in set(stored) | set(wanted) if stored.get(key) != wanted.get(key))
    return [f"{few(keys)} differ from provenance.json"]


def hash_files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Sha256 of the files that are there, by name; names that leave the folder are left out."""
    places = {name: evaluation_file(folder) if name == EVALUATION else folder / name for name in names}
    return {
        name: sha256_file(path)
        for name, path in places.items()
        if is_plain_name(name) and path is not None and path.is_file()
    }


def evaluation_file(folder: Path) -> Path | None:
    """The stored evaluation of a build: in its folder, or in ``evaluation`` below it."""
    places = (folder / EVALUATION, folder / "evaluation" / EVALUATION)
    return next((path for path in places if path.is_file()), None)
