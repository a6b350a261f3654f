"""The documents work as written: every command block runs, every example compiles and runs, every link resolves."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from calib.core.plugins import bind_arguments, parse_spec
from calib.types.statistics import TensorStatistics

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?P<target>[^)#\s]+)")
NEEDS = re.compile(
    r"# (needs (?:TensorRT \d+|PyTorch): not run by the tests|not repeated by the tests: it installs packages.*)"
)
BY_CI = "# run by continuous integration as it stands"
SECONDS = 900


@dataclass(frozen=True)
class Block:
    """A fenced block of a document: its first line, language and text."""

    line: int
    language: str
    text: str

    @property
    def mark(self) -> str:
        """The first line, where a block says that the test does not run it."""
        return self.text.partition("\n")[0]


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start()) + 2,
            found["language"],
            re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE),
        )
        for found in FENCE.finditer(text)
    ]


def runs_here(block: Block) -> bool:
    return not (NEEDS.fullmatch(block.mark) or block.mark == BY_CI)


def make_command(folder: Path, repository: Path) -> dict[str, str]:
    """Put a command ``calib`` that runs the source tree first on PATH; answer the environment."""
    script = folder / "calib"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{repository}" exec "{sys.executable}" -m calib "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def test_every_command_block_of_the_readme_runs(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "walk").mkdir()
    environment = make_command(tmp_path / "bin", repository)
    blocks = [block for block in blocks_of(repository / "README.md") if block.language == "sh" and runs_here(block)]
    for block in blocks:
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        done = subprocess.run(
            command,
            cwd=tmp_path / "walk",
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"README.md:{block.line}\n{block.text}\n{done.stdout}\n{done.stderr}"
    assert len(blocks) >= 4
    made = {path.name for path in (tmp_path / "walk" / "build").iterdir()}
    named = set(re.findall(r"`([\w.]+\.(?:html|cache|json|npz|jsonl))`", (repository / "README.md").read_text()))
    assert {name for name in named if not name.startswith("CALIBRATOR")} <= made


def test_a_block_that_is_not_run_says_so_and_the_two_commands_are_those_of_ci(repository: Path) -> None:
    blocks = [block for block in blocks_of(repository / "README.md") if block.language == "sh"]
    skipped = [block for block in blocks if not runs_here(block)]
    assert len(skipped) == 5
    (commands,) = [block for block in blocks if block.mark == BY_CI]
    lines = [line.partition("#")[0].strip() for line in commands.text.splitlines()[1:]]
    script = (repository / ".ci" / "run").read_text().splitlines()
    assert lines == ["make demo", "make test"]
    assert all(any(ran.startswith(line) for ran in script) for line in lines)


def test_the_example_of_a_calibrator_works(repository: Path) -> None:
    (example,) = [block for block in blocks_of(repository / "CONTRIBUTING.md") if block.language == "python"]
    module: dict[str, object] = {}
    exec(compile(example.text, "CONTRIBUTING.md", "exec"), module)
    share = module["share"]
    assert callable(share)
    statistics = TensorStatistics(
        name="t",
        count=4,
        nonfinite=0,
        minimum=-1.0,
        maximum=4.0,
        exponent=0,
        negative=np.array([0, 1, 0, 0, 0]),
        positive=np.array([1, 1, 0, 0, 1]),
        channel_axis=None,
        channel_minimum=np.empty(0, np.float32),
        channel_maximum=np.empty(0, np.float32),
    )
    arguments = bind_arguments("calibrator", parse_spec("share:keep=0.5"), share, 1)
    assert share(statistics, **arguments).amax == 2.0


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs"])
def test_every_link_between_documents_resolves(repository: Path, name: str) -> None:
    path = repository / name
    pages = sorted(path.glob("*.md")) if path.is_dir() else [path]
    targets = [(page, found["target"]) for page in pages for found in LINK.finditer(page.read_text(encoding="utf-8"))]
    local = [(page, target) for page, target in targets if "://" not in target]
    assert pages
    assert [(page.name, target) for page, target in local if not (page.parent / target).exists()] == []


def test_every_page_of_the_documents_is_in_their_index(repository: Path) -> None:
    listed = {found["target"] for found in LINK.finditer((repository / "docs" / "index.md").read_text())}
    pages = {path.name for path in (repository / "docs").glob("*.md")} - {"index.md"}
    assert pages <= listed
