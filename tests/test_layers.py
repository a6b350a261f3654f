"""The architecture holds: imports point downward, without cycles; only the edges do I/O; the command line is light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.imports import PACKAGES, cycles, imports_of, layer_of, read_sources, upward

REPOSITORY = Path(__file__).resolve().parent.parent
SOURCES = read_sources(REPOSITORY)
LIGHT = {"typer"}
HEAVY = ("numpy", "onnx", "onnx_ir", "onnxruntime", "cv2", "numba", "pyarrow", "pydantic", "jinja2", "sklearn", "torch")
IO_MODULES = ("shutil", "subprocess", "socket", "tempfile", "glob", "urllib", "http", "onnxruntime")
IO_FUNCTIONS = frozenset({"open", "print", "input"})
IO_METHODS = frozenset(
    {"open", "imread", "imwrite", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir"}
    | {"rmdir", "getenv", "savez", "fromfile", "tofile", "memmap"}
)


def parse(**modules: str) -> dict[str, ast.Module]:
    return {name.replace("__", "."): ast.parse(text) for name, text in modules.items()}


def io_below_the_edges(sources: Mapping[str, ast.Module]) -> list[str]:
    """Name each import and call of layers 0 to 2 that reaches files, processes or the terminal."""
    low = {module: tree for module, tree in sources.items() if layer_of(module) < 3}
    found = [
        f"{each.module}:{each.line} imports {each.target}"
        for each in imports_of(low)
        if each.target.split(".")[0] in IO_MODULES
    ]
    for module, tree in low.items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        found += [f"{module}:{call.lineno} calls {ast.unparse(call.func)}" for call in calls if reaches_out(call.func)]
    return found


def reaches_out(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in IO_FUNCTIONS
    return isinstance(function, ast.Attribute) and function.attr in IO_METHODS


def heavy_in_the_command_line(sources: Mapping[str, ast.Module]) -> list[str]:
    """Name each import that a module of calib.cli makes at once and that is neither standard nor light."""
    at_once = [each for each in imports_of(sources) if each.at_module_level and layer_of(each.module) == 5]
    return [
        f"{each.module}:{each.line} imports {each.target} at module level"
        for each in at_once
        if not is_light(each.target)
    ]


def is_light(target: str) -> bool:
    top = target.split(".", maxsplit=1)[0]
    return layer_of(target) in (0, 5) if top in PACKAGES else top in LIGHT or top in sys.stdlib_module_names


def test_every_module_is_in_a_layer() -> None:
    assert {layer_of(module) for module in SOURCES} == {0, 1, 2, 3, 4, 5}
    with pytest.raises(LookupError, match=r"calib\.utils"):
        layer_of("calib.utils")


def test_imports_point_downward() -> None:
    assert upward(SOURCES) == []


def test_there_is_no_import_cycle() -> None:
    assert cycles(SOURCES) == []


def test_only_the_edges_do_io() -> None:
    assert io_below_the_edges(SOURCES) == []


def test_the_command_line_imports_light_things_at_module_level() -> None:
    assert heavy_in_the_command_line(SOURCES) == []


def test_nothing_outside_the_three_packages_is_imported_from_the_source_tree() -> None:
    outside = {"tests", "docs", "training"}
    assert [each for each in imports_of(SOURCES) if each.target.split(".")[0] in outside] == []
    assert all((REPOSITORY / package / "py.typed").is_file() for package in PACKAGES)


def test_an_upward_import_would_be_found_even_inside_a_function() -> None:
    sources = parse(calib__core__a="def f():\n    from calib.edges import files", calib__edges__files="")
    assert upward(sources) == ["calib.core.a:2 imports calib.edges.files, layer 1 to 3"]


def test_a_cycle_would_be_found() -> None:
    sources = parse(
        calib__core__a="from calib.core import b",
        calib__core__b="import calib.core.c",
        calib__core__c="import calib.core.a",
    )
    assert cycles(sources) == [["calib.core.a", "calib.core.b", "calib.core.c", "calib.core.a"]]
    assert cycles(parse(calib__core__a="import calib.core.b", calib__core__b="")) == []


def test_io_below_the_edges_would_be_found() -> None:
    sources = parse(
        calib__stages__a="import shutil\nopen('x')", samplers__b="cv2.imread('x')", calib__edges__c="open('x')"
    )
    assert io_below_the_edges(sources) == [
        "calib.stages.a:1 imports shutil",
        "calib.stages.a:2 calls open",
        "samplers.b:1 calls cv2.imread",
    ]


def test_a_heavy_import_of_the_command_line_would_be_found() -> None:
    sources = parse(
        calib__cli__a="import numpy\nfrom calib.core import x\ndef f():\n    import cv2",
        calib__cli__b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import onnx",
        calib__core__x="",
    )
    assert heavy_in_the_command_line(sources) == [
        "calib.cli.a:1 imports numpy at module level",
        "calib.cli.a:2 imports calib.core.x at module level",
    ]


def test_help_loads_no_heavy_library() -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-X", "importtime", "-m", "calib", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, cwd=REPOSITORY)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "Usage: calib" in done.stdout
    assert "typer" in loaded
    assert loaded.isdisjoint(HEAVY)
