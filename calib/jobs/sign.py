"""``calib sign``: vouch for a build folder with a key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.core.attestation import PAYLOAD_TYPE, make_statement
from calib.core.gate.accuracy import is_evaluation
from calib.core.gate.provenance import check_agreement, check_shape
from calib.edges.builddir import ENVELOPE, EVALUATION, PROVENANCE, STATEMENT
from calib.edges.files import write_atomic
from calib.edges.signing import key_id, load_private_key, sign_payload
from calib.errors import FormatError, UsageError
from calib.jobs.verify.signatures import evaluation_file, hash_files
from calib.types.gate import few

BUILD_AGAIN = "`calib verify` says what is wrong; build again before signing"


@dataclass(frozen=True)
class Signed:
    """What was signed: the envelope's file, the key's id, and the files it vouches for."""

    envelope: Path
    keyid: str
    files: tuple[str, ...]


def sign(folder: Path, key: Path) -> Signed:
    """Sign a build folder, ``evaluation.json`` included where it lies in it.

    Args:
        folder: build folder.
        key: private Ed25519 key, PEM.

    Raises:
        UsageError: the folder is no build folder, its files are not as they were built, or the key is unusable.
        FormatError: provenance or evaluation is none, or contradicts itself.
        MissingLibraryError: ``cryptography`` is not installed.
    """
    private = load_private_key(key)
    file = folder / PROVENANCE
    try:
        data = file.read_bytes()
        provenance = json.loads(data)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            str(folder),
            expected="a build folder",
            got=f"no readable {PROVENANCE}",
            remedy="name what `calib build -o` wrote",
        ) from error
    shape = check_shape(provenance)
    torn = [check for check in (check_agreement(provenance) if shape.status == "pass" else [shape]) if check.remedy]
    if torn:
        raise FormatError(str(file), expected="a build's provenance", got=torn[0].detail, remedy=BUILD_AGAIN)
    outputs = provenance["outputs"]
    now = hash_files(folder, [*outputs, PROVENANCE, EVALUATION])
    _require_sound(folder, provenance, now)
    further = {name: now[name] for name in (PROVENANCE, EVALUATION) if name in now}
    statement = (json.dumps(make_statement(provenance, further), indent=1, ensure_ascii=False) + "\n").encode()
    envelope = sign_payload(statement, PAYLOAD_TYPE, private)
    write_atomic(folder / STATEMENT, statement)
    write_atomic(folder / ENVELOPE, (json.dumps(envelope.document(), indent=1) + "\n").encode())
    return Signed(folder / ENVELOPE, key_id(private.public_key()), tuple(sorted({*outputs, *further})))


def _require_sound(folder: Path, provenance: Mapping[str, Any], now: Mapping[str, str]) -> None:
    """Vouch for nothing that ``calib verify`` would refuse on sight."""
    outputs = provenance["outputs"]
    linked = sorted(name for name in outputs if (folder / name).is_symlink())
    if linked:
        raise UsageError(
            str(folder), expected="the files themselves", got=f"links: {few(linked)}", remedy="copy the files in"
        )
    changed = sorted(name for name, digest in outputs.items() if now.get(name) != digest)
    if changed:
        got = f"missing or changed: {few(changed)}"
        raise UsageError(str(folder), expected="the files as they were built", got=got, remedy=BUILD_AGAIN)
    evaluation = evaluation_file(folder)
    if evaluation is not None and not is_evaluation(_parsed(evaluation)):
        raise FormatError(
            str(evaluation),
            expected="an evaluation.json of schema 1",
            got="something else",
            remedy="evaluate again with `calib evaluate`, or remove the file",
        )


def _parsed(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return None
