"""The float network that a training starts from, whatever it was given as."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner

from calib.core.graph import Network, analyse
from calib.edges.evaluation.loading import module_digest
from calib.edges.files import read_bytes, write_atomic
from calib.edges.models import load_model, save_model
from calib.edges.provenance import model_digest
from calib.errors import ModelError, UsageError
from calib.jobs.qat.request import QatRequest
from calib.stages.foldnorms import fold_norms
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
        digests: sha256 of its files by name; of the exported file, where a factory made it.
        place: what to call it in messages.
    """

    model: onnx.ModelProto
    network: Network
    digests: Mapping[str, str]
    place: str


@dataclass(frozen=True)
class Origin:
    """What a float network comes from: an ONNX file, or a factory's module.

    Attributes:
        address: as given.
        digest: what tells it from others: sha256 of its files, or of the module's structure and weights.
        module: the factory's module, or None.
        notes: what people should know of how its weights were found.
    """

    address: str
    digest: Mapping[str, str]
    module: Any = None
    notes: tuple[str, ...] = ()


def is_factory(address: str) -> bool:
    """Whether an address names a factory, ``module:factory``, and no file."""
    return FACTORY.fullmatch(address) is not None and not Path(address).exists()


def find_origin(request: QatRequest) -> Origin:
    """Look at an ONNX file, or call a factory and load its weights.

    Raises:
        ModelError: there is no such file, or the weights do not fit.
        UsageError: weights are given for an ONNX file, or the factory cannot be called.
        FormatError: the weights cannot be read.
    """
    path = Path(request.model)
    if not is_factory(request.model):
        if request.weights is not None:
            raise UsageError(
                "--weights",
                expected="module:factory to load them into",
                got=f"the ONNX file {request.model}",
                remedy="an ONNX file holds its weights; leave --weights out",
            )
        load_model(path)
        return Origin(request.model, model_digest(path))
    from calib.edges.qat.factory import make_module

    module, notes = make_module(request.model, request.weights)
    return Origin(request.model, {request.model: module_digest(module)}, module, notes)


def load_float(origin: Origin, request: QatRequest, dataset: Dataset, exported: Path) -> FloatNetwork:
    """Copy an ONNX file, or export a factory's module, and load that.

    Args:
        origin: where it comes from.
        request: how to export.
        dataset: its preprocessing tells the size of the input.
        exported: file that the network is kept in; one that is there is taken.

    Raises:
        ModelError: the network cannot be loaded or exported, holds Q/DQ already, or is of half precision.
    """
    if not exported.exists():
        _keep(origin, request, dataset, exported)
    model = load_model(exported)
    found = FloatNetwork(model, analyse(model), model_digest(exported), Path(origin.address).name)
    refuse_quantized(found.network)
    _refuse_half(found)
    return found


def _keep(origin: Origin, request: QatRequest, dataset: Dataset, path: Path) -> None:
    """Write the float network to a file of its own: the very bytes of a plain ONNX file.

    Functions are inlined, and batch normalisation is folded before the training, so that the weights that are trained
    on their grid are the ones that the Q/DQ network uses.
    """
    if origin.module is not None:
        save_model(export_float(origin, request, dataset), path)
        return
    given = load_model(origin.address)
    model = fold_norms(onnx.inliner.inline_local_functions(given) if given.functions else given).model
    if model is not given or len(origin.digest) > 1:  # or weights in further files
        save_model(model, path)
    else:
        write_atomic(path, read_bytes(origin.address))


def export_float(origin: Origin, request: QatRequest, dataset: Dataset) -> onnx.ModelProto:
    """Export a factory's module as the request says, its batch normalisation folded.

    Raises:
        ModelError: the exporter cannot.
    """
    from calib.edges.qat.exporting import ExportOptions, export_module

    options = ExportOptions(
        exporter=request.exporter,
        opset=request.opset,
        dynamic_batch=not request.fixed_batch,
        dynamic_size=request.dynamic_size,
        inputs=("image", *dataset.inputs),
        outputs=("logits",),
    )
    return fold_norms(export_module(origin.module, example_of(request, dataset), options, origin.address)).model


def example_of(request: QatRequest, dataset: Dataset) -> tuple[Any, ...]:
    """Random pictures of the size that preprocessing gives, and the manifest's constants, to export with."""
    import torch

    images = 1 if request.fixed_batch else 2
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
