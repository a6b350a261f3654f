"""A small data set, a network trained on it, and a build of that, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evalsets import Evalset, make_set, prepare


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread: the same order of summation everywhere, and no waiting for busy cores."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Evalset:
    """Patches of colour: 12 images to train on, as many to evaluate."""
    folder = tmp_path_factory.mktemp("patches")
    return make_set(folder, images=12, splits=("train", "val", "test"), noise=55.0)


@pytest.fixture(scope="session")
def weights(data: Evalset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of ``Small`` after a short training."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    from tests.qat.networks import Small

    network = Small()
    fit(network, data)
    path = tmp_path_factory.mktemp("weights") / "small.pt"
    torch.save(network.state_dict(), path)
    return path


def fit(network: Any, data: Evalset, steps: int = 40) -> None:
    """Train a module on the training split, all images at once."""
    import numpy as np
    import torch
    import torch.nn.functional as F

    keys = [key for key in data.keys if "/train/" in key]
    images = torch.from_numpy(np.concatenate([prepare(data.pixels(key)) for key in keys]))
    labels = torch.from_numpy(np.stack([data.label(key) for key in keys]).astype(np.int64))
    optimizer = torch.optim.Adam(network.parameters(), 0.01)
    network.train()
    for _ in range(steps):
        logits = F.interpolate(network(images), labels.shape[1:], mode="bilinear", align_corners=False)
        optimizer.zero_grad()
        F.cross_entropy(logits, labels, ignore_index=255).backward()
        optimizer.step()
    network.eval()


@pytest.fixture(scope="session")
def exported(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained network as ONNX."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    import onnx

    from calib.edges.qat.exporting import ExportOptions, export_module
    from calib.edges.weightfiles import load_weights
    from tests.qat.networks import Small

    network = Small()
    load_weights(network, weights)
    path = tmp_path_factory.mktemp("onnx") / "small.onnx"
    options = ExportOptions(inputs=("image",), outputs=("logits",))
    onnx.save(export_module(network.eval(), [torch.randn(2, 3, 32, 48)], options, "small"), path)
    return path


@pytest.fixture(scope="session")
def build(exported: Path, data: Evalset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of the network on the training split."""
    from calib.edges.progress import SilentProgress
    from calib.jobs.build import BuildRequest
    from calib.jobs.build import build as run

    folder = tmp_path_factory.mktemp("build")
    request = BuildRequest(
        exported, str(data.manifest), folder, split="train", samplers=("random",), num_images=8,
        calibrators=("percentile", "minmax", "per-channel:equalize=true"),
    )  # fmt: skip
    run(request, SilentProgress())
    return folder
