"""The recipes work as far as they can run here: they parse, their commands exist, the DVC stages run in order."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from calib.cli.app import make_app
from tests.smallbuild import write_data, write_network
from tests.test_readme import Block, blocks_of, make_command

INSTRUCTIONS = {"ARG", "FROM", "RUN", "ENV", "WORKDIR", "COPY", "CMD"}
PAGES = ("recipes.md", "verify.md", "engine.md")


def blocks(repository: Path, language: str, page: str = "recipes.md") -> list[Block]:
    return [block for block in blocks_of(repository / "docs" / page) if block.language == language]


def recipe(repository: Path, heading: str) -> Any:
    text = (repository / "docs/recipes.md").read_text()
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return yaml.safe_load(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])


def strings(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def joined(text: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def commands(repository: Path) -> list[list[str]]:
    """Every calib command of the pages, as words."""
    lines = [line for page in PAGES for block in blocks(repository, "sh", page) for line in joined(block.text)]
    for block in blocks(repository, "yaml"):
        lines += [line for text in strings(yaml.safe_load(block.text)) for line in text.splitlines()]
    for block in blocks(repository, "dockerfile"):
        for line in joined(block.text):
            word, _, rest = line.partition(" ")
            lines.append(" ".join(json.loads(rest)) if word == "CMD" else rest if word == "RUN" else "")
    words = [shlex.split(line.partition(" > ")[0], comments=True) for line in lines if line.startswith("calib ")]
    return [item for item in words if item]


def options_of(verb: str) -> set[str]:
    """Options that a verb takes."""
    group = typer.main.get_command(make_app())
    return {name for parameter in group.commands[verb].params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_every_command_exists_with_its_flags(repository: Path) -> None:
    found = commands(repository)
    assert {words[1] for words in found} >= {"build", "evaluate", "sign", "verify", "engine"}
    assert len(found) >= 12
    for words in found:
        used = {word for word in words[2:] if word.startswith("-")}
        assert used <= options_of(words[1]), words


@pytest.mark.parametrize("heading", ["GitHub Actions", "GitLab CI", "DVC"])
def test_the_pipelines_parse(repository: Path, heading: str) -> None:
    assert recipe(repository, heading)


def test_the_actions_have_steps_that_run_or_use_something(repository: Path) -> None:
    steps = recipe(repository, "GitHub Actions")["jobs"]["int8"]["steps"]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    gate = next(step for step in steps if step.get("name") == "gate")
    assert "--key release.pub.pem" in gate["run"]


def test_the_gitlab_jobs_are_in_known_stages(repository: Path) -> None:
    document = recipe(repository, "GitLab CI")
    jobs = {name: job for name, job in document.items() if isinstance(job, dict) and "script" in job}
    assert {job["stage"] for job in jobs.values()} == set(document["stages"])


def test_the_dockerfile_has_instructions_only(repository: Path) -> None:
    (block,) = blocks(repository, "dockerfile")
    lines = [line for line in joined(block.text) if line.strip()]
    assert {line.split()[0] for line in lines} <= INSTRUCTIONS
    assert [line.split()[0] for line in lines[:2]] == ["ARG", "FROM"]


def test_the_dvc_stages_run_in_order_and_their_files_exist(repository: Path, tmp_path: Path) -> None:
    write_network(tmp_path / "net.onnx")
    write_data(tmp_path)
    (tmp_path / "bin").mkdir()
    environment = make_command(tmp_path / "bin", repository)
    stages = recipe(repository, "DVC")["stages"]
    for name, stage in stages.items():
        for place in stage["deps"]:
            assert (tmp_path / place).exists(), (name, place)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", stage["cmd"]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
        for place in (*stage.get("outs", ()), *stage.get("metrics", ())):
            assert (tmp_path / place).is_file(), (name, place)
    assert json.loads((tmp_path / "verdict.json").read_text())["passed"] is True


def test_the_python_of_the_engine_page_compiles(repository: Path) -> None:
    (example,) = blocks(repository, "python", "engine.md")
    compile(example.text, "engine.md", "exec")
