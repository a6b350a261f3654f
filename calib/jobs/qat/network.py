"""The float network that a training starts from, whatever it was given as."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.graph import Network, analyse
from calib.edges.files import sha256_file
from calib.edges.models import load_model
from calib.edges.provenance import model_digest
from calib.errors import ModelError, UsageError
from calib.jobs.qat.request import QatRequest
from calib.stages.placement import refuse_quantized
from calib.types.data import Dataset, Preprocess

FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
FALLBACK_SIZE = (256, 256)


@dataclass(frozen=True)
class FloatNetwork:
    """A float network.

    Attributes:
        model: as ONNX.
        network: its analysis.
        digests: sha256 of the files it came from, by name.
        place: what to call it in messages.
        exporter: how it was exported, or empty for an ONNX file.
    """

    model: onnx.ModelProto
    network: Network
    digests: dict[str, str]
    place: str
    exporter: str = ""


def load_float(request: QatRequest, dataset: Dataset) -> FloatNetwork:
    """Load an ONNX file, or call a factory and export what it makes.

    Raises:
        ModelError: the network cannot be loaded or exported, or holds Q/DQ already.
        UsageError: weights are given for an ONNX file, or the factory cannot be called.
        FormatError: the weights cannot be read.
    """
    path = Path(request.model)
    factory = not path.exists() and FACTORY.fullmatch(request.model) is not None
    if not factory and request.weights is not None:
        raise UsageError(
            "--weights", expected="module:factory to load them into", got=f"the ONNX file {request.model}",
            remedy="an ONNX file holds its weights; leave --weights out",
        )  # fmt: skip
    found = _exported(request, dataset) if factory else _loaded(path)
    refuse_quantized(found.network)
    _refuse_half(found)
    return found


def _loaded(path: Path) -> FloatNetwork:
    model = load_model(path)
    return FloatNetwork(model, analyse(model), model_digest(path), path.name)


def _exported(request: QatRequest, dataset: Dataset) -> FloatNetwork:
    from calib.edges.qat.exporting import ExportOptions, export_module
    from calib.edges.qat.factory import make_module

    module = make_module(request.model, request.weights)
    names = ("image", *dataset.inputs)
    options = ExportOptions(
        exporter=request.exporter,
        opset=request.opset,
        dynamic_batch=not request.fixed_batch,
        dynamic_size=request.dynamic_size,
        inputs=names,
        outputs=("logits",),
    )
    model = export_module(module, _example(dataset, 1 if request.fixed_batch else 2), options, request.model)
    digests = {request.weights.name: sha256_file(request.weights)} if request.weights else {}
    return FloatNetwork(model, analyse(model), digests, request.model, request.exporter)


def _example(dataset: Dataset, images: int) -> tuple[Any, ...]:
    """Random pictures of the size that preprocessing gives, and the manifest's constants."""
    import torch

    generator = torch.Generator().manual_seed(0)
    sources: list[Preprocess | float] = [dataset.preprocess or 0.0, *dataset.inputs.values()]
    found = []
    for source in sources:
        if isinstance(source, Preprocess):
            height, width = source.size or FALLBACK_SIZE
            channels = 1 if source.colour == "gray" else 3
            shape = (channels, height, width) if source.layout == "nchw" else (height, width, channels)
            found.append(torch.randn(images, *shape, generator=generator))
        else:
            found.append(torch.full((images,), float(source)))
    return tuple(found)


def _refuse_half(found: FloatNetwork) -> None:
    halves = [item.name for item in found.network.activations if item.elem_type in ("float16", "bfloat16")]
    if halves:
        raise ModelError(
            found.place,
            expected="a float32 network",
            got=f"{len(halves)} tensors of half precision, {halves[0]!r} among them",
            remedy="start from the float32 network that it was made from; mixed precision is --precision's business",
        )
