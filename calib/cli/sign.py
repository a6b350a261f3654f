"""``calib sign``: vouch for a build folder with a key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calib.cli.common import JsonFlag, emit


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Build folder.")],
    key: Annotated[Path, typer.Option("--key", help="Private key (PEM, Ed25519).")],
    as_json: JsonFlag = False,
) -> None:
    """Sign a build: an in-toto statement of its files and where they came from, in a DSSE envelope.

    Evaluate first: an evaluation.json in DIR, or in DIR/evaluation, is signed too. Offline.
    """
    from calib.jobs.sign import sign

    done = sign(folder, key)
    document = {"schema": 1, "envelope": str(done.envelope), "keyid": done.keyid, "files": list(done.files)}
    emit(document, as_json=as_json, text=f"{done.envelope}: {len(done.files)} files signed by key {done.keyid}")
