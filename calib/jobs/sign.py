"""``calib sign``: vouch for a build folder with a key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from calib.core.attestation import PAYLOAD_TYPE, make_statement
from calib.core.gate.provenance import check_shape
from calib.edges.builddir import ENVELOPE, EVALUATION, PROVENANCE, STATEMENT
from calib.edges.files import write_atomic
from calib.edges.signing import key_id, load_private_key, sign_payload
from calib.errors import FormatError, UsageError
from calib.jobs.verify.signatures import hash_files
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
        MissingLibraryError: ``cryptography`` is not installed.
    """
    private = load_private_key(key)
    file = folder / PROVENANCE
    try:
        data = file.read_bytes()
        provenance = json.loads(data)
    except (OSError, ValueError) as error:
        raise UsageError(
            str(folder),
            expected="a build folder",
            got=f"no readable {PROVENANCE}",
            remedy="name what `calib build -o` wrote",
        ) from error
    shape = check_shape(provenance)
    if shape.status != "pass":
        raise FormatError(str(file), expected="a build's provenance", got=shape.detail, remedy=BUILD_AGAIN)
    outputs = provenance["outputs"]
    now = hash_files(folder, [*outputs, PROVENANCE, EVALUATION])
    changed = sorted(name for name, digest in outputs.items() if now.get(name) != digest)
    if changed:
        raise UsageError(
            str(folder), expected="the files as they were built", got=f"changed: {few(changed)}", remedy=BUILD_AGAIN
        )
    further = {name: now[name] for name in (PROVENANCE, EVALUATION) if name in now}
    statement = (json.dumps(make_statement(provenance, further), indent=1, ensure_ascii=False) + "\n").encode()
    envelope = sign_payload(statement, PAYLOAD_TYPE, private)
    write_atomic(folder / STATEMENT, statement)
    write_atomic(folder / ENVELOPE, (json.dumps(envelope.document(), indent=1) + "\n").encode())
    return Signed(folder / ENVELOPE, key_id(private.public_key()), tuple(sorted({*outputs, *further})))
