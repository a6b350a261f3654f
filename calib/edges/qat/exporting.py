"""From a PyTorch module to a float ONNX network, by either of PyTorch's exporters."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from calib.edges.models import load_model
from calib.errors import MissingLibraryError, ModelError

Tensor = Any
DEFAULT_OPSETS = {"torchscript": 17, "dynamo": 18}
"""Operator set where none is asked for: the dynamo exporter builds on 18 and can rarely lower it."""


@dataclass(frozen=True)
class ExportOptions:
    """How to export.

    Attributes:
        exporter: ``torchscript`` or ``dynamo``.
        opset: operator set, 13 to 20; None for the exporter's usual one.
        dynamic_batch: whether the number of images stays open.
        dynamic_size: whether height and width stay open.
        inputs: names of the inputs; empty for ``input``, ``input1``, …
        outputs: names of the outputs; empty for ``output``, ``output1``, … Several in a dictionary go by its keys.
    """

    exporter: str = "torchscript"
    opset: int | None = None
    dynamic_batch: bool = True
    dynamic_size: bool = False
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def wanted_opset(self) -> int:
        """The operator set to write."""
        return DEFAULT_OPSETS[self.exporter] if self.opset is None else self.opset


class _Flat(nn.Module):
    """Calls a module and answers with the tensors of its answer in order, whatever structure they are in."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> Any:
        """Answer with one tensor or a tuple."""
        found = tensors_of(self.module(*inputs))
        return found[0] if len(found) == 1 else tuple(found)


def _is_flat(module: nn.Module, example: Sequence[Tensor], answer: Any) -> bool:
    """Whether an exporter takes a module as it is, which keeps its names: no further arguments, tensors as answer."""
    several = answer if isinstance(answer, tuple | list) else (answer,)
    further = len(inspect.signature(module.forward).parameters) > len(example)
    return not further and all(torch.is_tensor(item) for item in several)


def tensors_of(answer: Any) -> list[Tensor]:
    """List the tensors of an answer: a tensor, or dictionaries, lists and tuples of them."""
    from torch.utils import _pytree as pytree

    return [item for item in pytree.tree_leaves(answer) if torch.is_tensor(item)]


def export_module(module: nn.Module, example: Sequence[Tensor], options: ExportOptions, place: str) -> onnx.ModelProto:
    """Export a module in evaluation mode, so that batch normalisation folds into the convolutions.

    Args:
        module: on the CPU.
        example: inputs to trace with. Where the batch stays open, one image is doubled: exporters fix lengths of 1.
        options: how.
        place: the network, for messages.

    Raises:
        MissingLibraryError: the dynamo exporter without onnxscript.
        ModelError: it does not run on the example, or the exporter cannot export it.
    """
    if options.exporter == "dynamo":
        _require_onnxscript()
    if options.dynamic_batch and all(item.ndim and item.shape[0] == 1 for item in example):
        example = [torch.cat([item, item]) for item in example]
    inputs = list(options.inputs) or ["input", *(f"input{n}" for n in range(1, len(example)))][: len(example)]
    with _quiet(), torch.no_grad():
        answer = _run(module.eval(), example, place)
        try:
            flat = module if _is_flat(module, example, answer) else _Flat(module).eval()
            outputs = _output_names(answer, options, inputs)
            write = _by_dynamo if options.exporter == "dynamo" else _by_torchscript
            model = write(flat, tuple(example), inputs, outputs, options)
        except Exception as error:
            raise _failed(place, options, error) from error
    _settle_shapes(model, tensors_of(answer))
    _check(model, place, options)
    return model


def _run(module: nn.Module, example: Sequence[Tensor], place: str) -> Any:
    """Call a module on its example: what fails here is no exporter's fault."""
    try:
        return module(*example)
    except Exception as error:
        shapes = ", ".join("x".join(map(str, item.shape)) for item in example)
        raise ModelError(
            place,
            expected=f"a network that runs on inputs of shape {shapes}",
            got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            remedy="compare size, colour and layout of preprocessing or example with what the network takes",
        ) from error


def _output_names(answer: Any, options: ExportOptions, taken: Sequence[str]) -> list[str]:
    """Name the outputs: as asked for; of several in a dictionary, by its keys; else the first name with a number."""
    count = len(tensors_of(answer))
    if count > 1 and isinstance(answer, Mapping) and len(answer) == count:
        keys = [key for key in answer if isinstance(key, str) and key.isidentifier() and key not in taken]
        if len(keys) == count:
            return keys
    given = list(options.outputs) or ["output"]
    return [*given, *(f"{given[0]}{n}" for n in range(len(given), count))][:count]


def _settle_shapes(model: onnx.ModelProto, answers: Sequence[Tensor]) -> None:
    """State lengths of the outputs that follow from the network: behind some resizes exporters lose them."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
    for output, found, answer in zip(model.graph.output, inferred, answers, strict=True):
        held, known = output.type.tensor_type.shape.dim, found.type.tensor_type.shape.dim
        if len(held) == len(known) == answer.ndim:
            for mine, theirs, length in zip(held, known, answer.shape, strict=True):
                if not mine.HasField("dim_value") and theirs.HasField("dim_value") and theirs.dim_value == length:
                    mine.dim_value = length


def _by_torchscript(
    module: nn.Module, example: tuple[Tensor, ...], inputs: list[str], outputs: list[str], options: ExportOptions
) -> onnx.ModelProto:
    axes = _axes(options)
    stream = io.BytesIO()
    torch.onnx.export(
        module,
        example,
        stream,
        dynamo=False,
        opset_version=options.wanted_opset,
        input_names=inputs,
        output_names=outputs,
        dynamic_axes={name: dict(axes) for name in (*inputs, *outputs)} if axes else None,
        do_constant_folding=True,
    )
    return onnx.load_model_from_string(stream.getvalue())


def _by_dynamo(
    module: nn.Module, example: tuple[Tensor, ...], inputs: list[str], outputs: list[str], options: ExportOptions
) -> onnx.ModelProto:
    axes = dict.fromkeys(_axes(options), torch.export.Dim.DYNAMIC)
    shapes = tuple({axis: dim for axis, dim in axes.items() if axis < item.ndim} for item in example)
    named = {"inputs": shapes} if isinstance(module, _Flat) else shapes
    program = torch.onnx.export(
        module,
        example,
        dynamo=True,
        opset_version=options.wanted_opset,
        input_names=inputs,
        output_names=outputs,
        dynamic_shapes=named if axes else None,
        optimize=True,
        verbose=False,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        program.save(str(path), external_data=False)
        return load_model(path)


def _axes(options: ExportOptions) -> dict[int, str]:
    names = {0: "batch"} if options.dynamic_batch else {}
    return {**names, 2: "height", 3: "width"} if options.dynamic_size else names


def _check(model: onnx.ModelProto, place: str, options: ExportOptions) -> None:
    """See that the exporter kept what was asked for."""
    from calib.stages.convert_opset import opset_of

    shape = model.graph.input[0].type.tensor_type.shape
    open_batch = bool(shape.dim) and not shape.dim[0].HasField("dim_value")
    if options.dynamic_batch and not open_batch:
        raise ModelError(
            place,
            expected="a network whose batch stays open",
            got="one that the exporter fixed at the example's",
            remedy="try the other --exporter, or pass --fixed-batch",
        )
    if opset_of(model) != options.wanted_opset:
        raise ModelError(
            place,
            expected=f"opset {options.wanted_opset}",
            got=f"opset {opset_of(model)} from the {options.exporter} exporter, which cannot lower it",
            remedy=f"use --opset {opset_of(model)}, or --exporter torchscript",
        )


def _require_onnxscript() -> None:
    try:
        import onnxscript  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingLibraryError(
            "--exporter dynamo",
            expected="the package onnxscript",
            got="not installed",
            remedy="pip install onnxscript, or use --exporter torchscript",
        ) from error


def _failed(place: str, options: ExportOptions, error: Exception) -> ModelError:
    other = "dynamo" if options.exporter == "torchscript" else "torchscript"
    return ModelError(
        place,
        expected=f"a network that the {options.exporter} exporter can write as opset {options.wanted_opset}",
        got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
        remedy=f"try --exporter {other} or another --opset, or export it yourself and pass the ONNX file",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' warnings and progress from the user: what matters is checked afterwards."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [item.level for item in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for item in loggers:
            item.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for item, level in zip(loggers, levels, strict=True):
                item.setLevel(level)
