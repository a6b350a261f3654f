"""Load the networks of an evaluation, whatever they are, as runners with inputs, outputs and a fingerprint."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

from calib.core.graph import GraphTensor, Network, analyse
from calib.core.scoremap import output_makers
from calib.edges.evaluation.sources import Source
from calib.edges.models import load_model
from calib.edges.provenance import model_digest
from calib.edges.runners.callables import CallableRunner, is_module
from calib.edges.runners.ort import OrtRunner, Provider
from calib.edges.tensorrt.runner import EngineRunner, engine_network, read_engine
from calib.errors import MissingLibraryError, UsageError
from calib.stages.batches import batch_length
from calib.stages.inputs import InputBinding, bind_inputs
from calib.types.data import Dataset, Preprocess
from calib.types.runner import Feeds, Runner

Numerics = Literal["fake-quant", "int8"]
QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})
INTEGER_OPS = frozenset({"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"})


@dataclass(frozen=True)
class Loaded:
    """A network ready to run.

    Attributes:
        source: what was asked for.
        runner: runs it.
        bindings: what feeds its inputs.
        outputs: its outputs; empty where only a run tells.
        makers: operator type that decides what each output's numbers mean.
        rows: batch length it demands.
        quantized: whether Q/DQ or integer operators are in it; None where that cannot be told.
        digest: fingerprint of its content; empty where there is none, and results are then never reused.
        files: sha256 of its files by name.
    """

    source: Source
    runner: Runner
    bindings: Sequence[InputBinding]
    outputs: tuple[GraphTensor, ...]
    makers: Mapping[str, str]
    rows: int
    quantized: bool | None
    digest: str
    files: Mapping[str, str] = field(default_factory=dict)


def load_network(source: Source, dataset: Dataset, numerics: Numerics, provider: Provider) -> Loaded:
    """Load a network.

    Args:
        source: what to load.
        dataset: its preprocessing feeds the inputs.
        numerics: ``fake-quant`` computes Q/DQ literally in float, all graph optimizations off; ``int8`` lets the
            runtime use its integer kernels.
        provider: where it runs.

    Raises:
        ModelError: it cannot be loaded.
        MissingLibraryError: what runs it is not installed.
        UsageError: a factory cannot be called.
    """
    if source.kind == "engine":
        return _load_engine(source, dataset)
    if source.kind == "factory":
        return _load_factory(source, dataset, numerics, provider)
    model = load_model(source.address)
    digests = model_digest(Path(source.address))
    text = "".join(f"{name}:{digest}\n" for name, digest in sorted(digests.items()))
    whole = next(iter(digests.values())) if len(digests) == 1 else hashlib.sha256(text.encode()).hexdigest()
    return replace(_load_onnx(source, model, whole, dataset, numerics, provider), files=digests)


def bind_callable(dataset: Dataset) -> tuple[InputBinding, ...]:
    """Feed a Python network: the picture first, then the manifest's further inputs in their order."""
    if dataset.preprocess is None:
        raise AssertionError("preprocessing is required before networks are loaded")
    sources: dict[str, Preprocess | float] = {"image": dataset.preprocess, **dataset.inputs}
    return tuple(
        InputBinding(GraphTensor(name, _element_type(own), (None, None, None, None)), own)
        for name, own in sources.items()
    )


def is_quantized(model: onnx.ModelProto) -> bool:
    """Whether a model holds Q/DQ or integer operators."""
    return any(node.op_type in QUANTIZERS | INTEGER_OPS for node in model.graph.node)


def describe_outputs(runner: Runner, feeds: Feeds) -> tuple[GraphTensor, ...]:
    """Learn the outputs of a network without a graph from one run: the class axis as seen, all others open."""
    found = []
    for name, value in runner.run(feeds).items():
        array = np.asarray(value)
        found.append(GraphTensor(name, str(array.dtype), (None, *array.shape[1:])))
    return tuple(found)


def _load_onnx(
    source: Source, model: onnx.ModelProto, digest: str, dataset: Dataset, numerics: Numerics, provider: Provider
) -> Loaded:
    network = analyse(model)
    bindings = bind_inputs(network, dataset.preprocess, own_inputs(network, dataset), source.address)
    rows, _ = batch_length(bindings, 1)
    runner = OrtRunner(model, source.address, provider, optimize=numerics == "int8", share_memory=True)
    return Loaded(source, runner, bindings, network.outputs, output_makers(network), rows, is_quantized(model), digest)


def own_inputs(network: Network, dataset: Dataset) -> dict[str, Preprocess | float]:
    """The manifest's further inputs that this network has; one evaluation may hold networks with and without."""
    names = {tensor.name for tensor in network.inputs}
    return {name: source for name, source in dataset.inputs.items() if name in names}


def _load_factory(source: Source, dataset: Dataset, numerics: Numerics, provider: Provider) -> Loaded:
    made = call_factory(source.address)
    if isinstance(made, str | os.PathLike):
        made = load_model(made)
    if isinstance(made, onnx.ModelProto):
        digest = hashlib.sha256(made.SerializeToString(deterministic=True)).hexdigest()
        return _load_onnx(source, made, digest, dataset, numerics, provider)
    if not callable(made):
        raise UsageError(
            source.address, expected="a PyTorch module, a function, an ONNX model or the path of one",
            got=type(made).__name__, remedy="let the factory return one of these",
        )  # fmt: skip
    digest = module_digest(made) if is_module(made) else ""
    runner = CallableRunner(made, source.address, provider)
    return Loaded(source, runner, bind_callable(dataset), (), {}, 1, None, digest)


def call_factory(address: str) -> Any:
    """Call a factory, ``package.module:function``, from the working directory or anything installed.

    Raises:
        UsageError: it cannot be found, or called without arguments.
        MissingLibraryError: its module needs a package that is not installed.
    """
    module_name, _, attribute = address.partition(":")
    factory = _find_factory(address, module_name, attribute)
    try:
        return factory()
    except Exception as error:
        raise UsageError(
            address, expected="a factory that can be called without arguments",
            got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            remedy="bind its arguments in a function of its own, weights included",
        ) from error  # fmt: skip


def _find_factory(address: str, module_name: str, attribute: str) -> Callable[[], Any]:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: a factory lies in the user's own folder
    try:
        found: Any = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise MissingLibraryError(
                address, expected=f"the package {error.name}", got="not installed", remedy=f"pip install {error.name}"
            ) from error
        raise _no_factory(address, str(error)) from error
    except AttributeError as error:
        raise _no_factory(address, str(error)) from error
    except (Exception, SystemExit) as error:  # the user's own code: a script that parses its arguments ends the process
        raise UsageError(
            address, expected=f"a module {module_name} that can be imported", got=_said(error),
            remedy=f"see to it that `python -c 'import {module_name}'` runs; what reads arguments or files belongs "
            "into functions",
        ) from error  # fmt: skip
    if not callable(found):
        raise _no_factory(address, f"{attribute} is {type(found).__name__}")
    factory: Callable[[], Any] = found
    return factory


def _said(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, SyntaxError) else f" ({Path(where.filename).name}, line {where.lineno})"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}{place}"


def module_digest(module: Any) -> str:
    """Fingerprint of a PyTorch module: its structure and the values of its state; hex digest."""
    digest = hashlib.sha256(repr(module).encode())
    for name, tensor in sorted(module.state_dict().items()):
        array = tensor.detach().float().cpu().numpy()
        digest.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _element_type(source: Preprocess | float) -> str:
    return source.dtype if isinstance(source, Preprocess) else "float32"


def _no_factory(address: str, got: str) -> UsageError:
    return UsageError(
        address, expected="package.module:function that can be imported here", got=got,
        remedy="run the command where the module lies, or put its folder into PYTHONPATH",
    )  # fmt: skip


def _load_engine(source: Source, dataset: Dataset) -> Loaded:
    """Load an engine with the installed TensorRT, on the first GPU."""
    plan = read_engine(Path(source.address))
    try:
        import tensorrt  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingLibraryError(
            source.address,
            expected="TensorRT, to run an engine",
            got=str(error),
            remedy="evaluate the .qdq.onnx that the engine was built from; --numerics fake-quant computes what its "
            "INT8 layers compute, up to float rounding",
        ) from error
    runner = EngineRunner(plan, source.address)
    network = engine_network(runner)
    bindings = bind_inputs(network, dataset.preprocess, own_inputs(network, dataset), source.address)
    rows, _ = batch_length(bindings, 1)
    return Loaded(source, runner, bindings, network.outputs, {}, rows, True, hashlib.sha256(plan).hexdigest())
