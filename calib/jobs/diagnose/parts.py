"""REFERENCE and CANDIDATE: what they are, loaded, with the preprocessing and the cache that belong to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import onnx

from calib.core.graph import GraphTensor, Network, analyse
from calib.core.scoremap import output_makers
from calib.edges.builddir import PROVENANCE, RELEASE
from calib.edges.evaluation.loading import bind_callable, call_factory, load_network, own_inputs
from calib.edges.evaluation.sources import Source, find_sources, read_calibration
from calib.edges.files import sha256_file
from calib.edges.models import load_model
from calib.edges.provenance import model_digest
from calib.edges.runners.callables import is_module
from calib.edges.tables import load_table
from calib.edges.weightfiles import load_weights
from calib.errors import ModelError, UsageError
from calib.stages.batches import batch_length
from calib.stages.diagnose.twin import has_pairs, make_twin
from calib.stages.inputs import InputBinding, bind_inputs
from calib.types.data import Dataset, Preprocess
from calib.types.rangetable import RangeTable
from calib.types.runner import Runner

Kind = Literal["torch", "float", "qdq", "engine"]


@dataclass(frozen=True)
class Part:
    """A network of the diagnosis.

    Attributes:
        role: ``reference`` or ``candidate``.
        address: as given.
        kind: what it is.
        bindings: what feeds its inputs.
        model: the ONNX network, Q/DQ pairs included; None for PyTorch and engines.
        module: the PyTorch module or function.
        runner: of an engine.
        folder: the build folder it comes from.
        cache: its calibration cache.
        files: sha256 of its files by name.
        built_from: sha256 of the network its build folder was made of, by file name.
        preprocess: how its pictures are prepared.
        notes: what a user should know.
        unquantized: the network without its Q/DQ pairs, once the reference's weights are known.
    """

    role: str
    address: str
    kind: Kind
    bindings: tuple[InputBinding, ...]
    preprocess: Preprocess
    model: onnx.ModelProto | None = None
    module: Any = None
    runner: Runner | None = None
    folder: Path | None = None
    cache: RangeTable | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    built_from: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unquantized: onnx.ModelProto | None = None

    @cached_property
    def float_model(self) -> onnx.ModelProto | None:
        """The network without its Q/DQ pairs."""
        if self.unquantized is not None:
            return self.unquantized
        return make_twin(self.model).model if self.model is not None and self.kind == "qdq" else self.model

    @cached_property
    def network(self) -> Network | None:
        """Analysis of an ONNX network."""
        return None if self.model is None else analyse(self.model)

    @cached_property
    def outputs(self) -> tuple[GraphTensor, ...]:
        """Outputs of an ONNX network; empty where only a run tells."""
        return () if self.network is None else self.network.outputs

    @cached_property
    def makers(self) -> Mapping[str, str]:
        """Operator that decides what each output's numbers mean."""
        return {} if self.network is None else output_makers(self.network)

    @cached_property
    def rows(self) -> int:
        """Batch length it demands."""
        return batch_length(self.bindings, 1)[0] if self.model is not None else 1

    def dataset(self, dataset: Dataset) -> Dataset:
        """The images as this network takes them."""
        return replace(dataset, preprocess=self.preprocess)


def load_part(
    role: str, text: str, dataset: Dataset, weights: Path | None, preprocess: Preprocess | None, cache: str | None
) -> Part:
    """Load REFERENCE or CANDIDATE.

    Args:
        role: ``reference`` or ``candidate``.
        text: as given.
        dataset: its preprocessing holds where the network brings none.
        weights: checkpoint for a PyTorch module.
        preprocess: preprocessing that is stated for this network, or None.
        cache: calibration cache that is stated for it, or None.

    Raises:
        CalibError: it cannot be loaded.
    """
    source, text = _source(role, text)
    stated = preprocess or _own_preprocess(source) or dataset.preprocess
    if stated is None:
        raise AssertionError("preprocessing is required before networks are loaded")
    own = replace(dataset, preprocess=stated)
    if source.kind == "engine":
        loaded = load_network(source, own, "fake-quant", "cpu")
        return Part(role, text, "engine", tuple(loaded.bindings), stated, runner=loaded.runner)
    if source.kind == "factory":
        return _of_factory(role, text, own, weights)
    if weights is not None:
        raise UsageError(
            f"--{role}-weights", expected=f"a PyTorch {role}", got=f"{text}, which holds its weights itself",
            remedy="leave the weights out, or name module:factory",
        )  # fmt: skip
    part = _of_model(role, text, load_model(source.address), own)
    table = load_table(cache) if cache else _own_cache(source)
    home = Path(cache).parent if cache else source.folder
    built = dict(read_calibration(home).network) if home is not None and (home / PROVENANCE).is_file() else {}
    return replace(part, folder=source.folder, cache=table, files=model_digest(Path(source.address)), built_from=built)


def _source(role: str, text: str) -> tuple[Source, str]:
    """Find the network; ``DIR:calibrator`` names one of a build folder, a bare folder its release."""
    folder, _, calibrator = text.rpartition(":")
    if calibrator and folder and Path(folder).is_dir():
        text = str(Path(folder) / f"{calibrator}.qdq.onnx")
        if not Path(text).is_file():
            names = sorted(path.name.removesuffix(".qdq.onnx") for path in Path(folder).glob("*.qdq.onnx"))
            raise ModelError(
                f"{role} {folder}:{calibrator}", expected="one of " + (", ".join(names) or "its variants; it has none"),
                got=repr(calibrator), remedy="name a calibrator of this build",
            )  # fmt: skip
    return find_sources([text], None)[0], text


def _own_preprocess(source: Source) -> Preprocess | None:
    """The preprocessing that a build folder was calibrated with."""
    if source.folder is None:
        return None
    found = read_calibration(source.folder).provenance.get("preprocess")
    if not isinstance(found, dict):
        return None
    values: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in found.items()}
    return Preprocess(**values)


def _own_cache(source: Source) -> RangeTable | None:
    if source.folder is None:
        return None
    beside = Path(source.address.removesuffix(".qdq.onnx") + ".cache")
    path = beside if beside.is_file() else source.folder / RELEASE
    return load_table(str(path)) if path.is_file() else None


def _of_factory(role: str, text: str, dataset: Dataset, weights: Path | None) -> Part:
    made = call_factory(text)
    if isinstance(made, str | os.PathLike):
        made = load_model(made)
    if isinstance(made, onnx.ModelProto):
        return _of_model(role, text, made, dataset)
    if not callable(made):
        raise UsageError(
            text, expected="a PyTorch module, an ONNX model or the path of one", got=type(made).__name__,
            remedy="let the factory return one of these",
        )  # fmt: skip
    if weights is not None:
        load_weights(made, weights)
    if dataset.preprocess is None:
        raise AssertionError(text)
    notes = () if is_module(made) else (f"{text} is no PyTorch module: only its outputs can be compared",)
    files = {weights.name: sha256_file(weights)} if weights else {}
    return Part(role, text, "torch", bind_callable(dataset), dataset.preprocess, module=made, files=files, notes=notes)


def _of_model(role: str, text: str, model: onnx.ModelProto, dataset: Dataset) -> Part:
    network = analyse(model)
    if dataset.preprocess is None:
        raise AssertionError(text)
    preprocess, notes = _fitting_layout(dataset.preprocess, network.inputs, text)
    bindings = bind_inputs(network, preprocess, own_inputs(network, dataset), text)
    return Part(role, text, "qdq" if has_pairs(model) else "float", bindings, preprocess, model=model, notes=notes)


def _fitting_layout(
    preprocess: Preprocess, inputs: tuple[GraphTensor, ...], text: str
) -> tuple[Preprocess, tuple[str, ...]]:
    """The layout that the network's own input shape demands, where the stated one cannot be meant for it."""
    shape = next((item.shape for item in inputs if item.shape is not None and len(item.shape) == 4), None)
    if shape is None:
        return preprocess, ()
    channels = 1 if preprocess.colour == "gray" else 3
    fits = {"nchw": shape[1] in (None, channels), "nhwc": shape[3] in (None, channels)}
    other: Literal["nchw", "nhwc"] = "nhwc" if preprocess.layout == "nchw" else "nchw"
    if fits[preprocess.layout] or not fits[other]:
        return preprocess, ()
    return replace(preprocess, layout=other), (f"{text} takes its input as {other}; it is fed so",)
