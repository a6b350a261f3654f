"""Every command block of the pages on caches runs as it stands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.cli.app import make_app, run
from calib.core.trtcache import render
from calib.edges.models import load_model
from calib.stages.qdq import quantize_model
from tests.core.formats.pickles import File
from tests.graphs import minmax, model, node, weight

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prepare(folder: Path) -> None:
    """Two exports of a network, and caches of the first."""
    weights = {"w": weight(8, 3, 3, 3), "v": weight(8, 8, 3, 3, seed=1), "u": weight(3, 8, 1, 1, seed=2)}
    layers = [("Conv", "x,w", "a"), ("Relu", "a", "b"), ("Conv", "b,v", "c"), ("Relu", "c", "d"), ("Conv", "d,u", "y")]
    for name, prefix in (("network", ""), ("export2", "new_")):
        named = [
            (op, ",".join(item if item in weights else prefix + item for item in inputs.split(",")), prefix + output)
            for op, inputs, output in layers
        ]
        nodes = [node(*item) for item in named]
        made = model(nodes, {f"{prefix}x": (1, 3, 24, 32)}, [f"{prefix}y"], weights)
        onnx.save(made, folder / f"{name}.onnx")
    loaded = load_model(folder / "network.onnx")
    for place, name in enumerate(("old", "new", "day", "night")):
        picture = np.random.default_rng(place).uniform(-2.1, 2.64, (1, 3, 24, 32)).astype(np.float32)
        amax = minmax(loaded, {"x": picture})
        cache = render([(tensor, value / 127) for tensor, value in amax.items()], "8.6.1")
        (folder / f"{name}.cache").write_bytes(cache.render())
    onnx.save(quantize_model(loaded, amax).model, folder / "quantized.onnx")


def name_modules(folder: Path) -> None:
    """Give the network's weights the names of modules, and write the checkpoint that belongs to it."""
    loaded = load_model(folder / "network.onnx")
    state: dict[str, np.ndarray] = {}
    for item in loaded.graph.initializer:
        module, value = f"layer_{item.name}", onnx.numpy_helper.to_array(item)
        for each in loaded.graph.node:
            each.input[:] = [f"{module}.weight" if name == item.name else name for name in each.input]
        item.name = f"{module}.weight"
        amax = np.abs(value).max((1, 2, 3), keepdims=True)
        state |= {f"{module}.weight": value, f"{module}.weight_quantizer._amax": amax}
        state[f"{module}.input_quantizer._amax"] = np.float32(2)
    onnx.save(loaded, folder / "network.onnx")
    (folder / "qat.pt").write_bytes(File({"model": state}).archive())


@pytest.mark.parametrize("page", ["cache.md", "migration.md", "foreign.md"])
def test_every_command_of_the_page_runs(page, repository, tmp_path, monkeypatch):
    prepare(tmp_path)
    if page == "foreign.md":
        name_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / page).read_text(encoding="utf-8")
    commands = [line for block in BLOCK.findall(text) for line in block.splitlines()]
    assert len(commands) >= 4
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "calib"
        assert run(arguments, make_app((), (("cache", "calib.cli.cache"),))) == 0, command
