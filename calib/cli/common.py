"""Options and output that the verbs share."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
QuietFlag = Annotated[bool, typer.Option("-q", "--quiet", help="No progress; warnings only.")]
VerboseFlag = Annotated[bool, typer.Option("-v", "--verbose", help="More detail on stderr.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random choice.")]
RootOption = Annotated[str | None, typer.Option("--root", help="Root folder of the images; overrides the manifest's.")]
WorkersOption = Annotated[int | None, typer.Option("--workers", min=1, help="Worker threads; default all cores.")]
PreprocessOption = Annotated[
    str | None,
    typer.Option("--preprocess", help="SPEC (colour=rgb,size=352x480,scale=1/255,mean=…,std=…) or a YAML file."),
]


def emit(document: dict[str, Any], *, as_json: bool, text: str) -> None:
    """Print the result of a command: the document under ``--json``, else the text for people."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False) if as_json else text)
