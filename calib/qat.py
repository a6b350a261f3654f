"""Quantization-aware training in one's own loop: ``prepare`` a network, train it, ``export`` its Q/DQ network.

PyTorch is imported on use only.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from calib.core.graph import analyse
from calib.core.plan import PlacementOptions, Target
from calib.core.quantization import SCALE_BITS
from calib.edges.models import load_model, save_model
from calib.errors import UsageError
from calib.jobs.qat.network import FloatNetwork
from calib.jobs.qat.preparing import missing_ranges, plan_model, quantize_trained
from calib.jobs.qat.start import StartRanges, of_table, read_start
from calib.stages.foldnorms import fold_norms
from calib.stages.placement import DEFAULTS, refuse_quantized
from calib.stages.qdq import QdqResult
from calib.types.gate import few
from calib.types.rangetable import RangeTable

if TYPE_CHECKING:
    from calib.edges.qat.wrapped import QatModule

__all__ = ["export", "prepare"]

Ranges = RangeTable | Mapping[str, float] | str | Path


def prepare(
    model: Any,
    ranges: Ranges,
    example: Any = None,
    *,
    calibrator: str | None = None,
    target: Target = "trt11",
    options: PlacementOptions = DEFAULTS,
    learn_scales: bool = True,
    learn_weight_scales: bool = False,
    scale_bits: int = SCALE_BITS,
    exporter: str = "torchscript",
    opset: int | None = None,
    dynamic_size: bool = False,
    input_names: Sequence[str] = (),
) -> QatModule:
    """Make a network that computes with fake quantization where TensorRT will quantize, ready to be trained.

    Batch normalisation is folded into the layer before it, or, where it stands apart, keeps its statistics.

    Args:
        model: a float ``torch.nn.Module``, an ONNX file, or an ``onnx.ModelProto``.
        ranges: where to start: a build folder, a file of ranges in any format that calib reads, a table of ranges, or
            amax by tensor name.
        example: for a module: its input, or a tuple of them; the first axis is the batch and stays open.
        calibrator: whose ranges of a build folder; None for the release's.
        target: whose placement rules apply.
        options: placement choices; layers that a build folder keeps in float stay so anyway.
        learn_scales: whether the scales of activations are parameters.
        learn_weight_scales: whether the scales of weights are parameters; else they follow the weights.
        scale_bits: significant bits that scales keep, 24 for all; with few, the sums of products come out exactly in
            float32, so that runtimes, which add in different orders, agree (docs/qat.md).
        exporter: ``torchscript`` or ``dynamo``, for a module.
        opset: of the module's export, 13 to 20; None for the exporter's usual one.
        dynamic_size: whether height and width of the module's export stay open.
        input_names: what the inputs of the module's export are called, where ranges by tensor call them so; default
            ``input``, ``input1``, …

    Warns:
        UserWarning: tensors that would be quantized have no range, so that their layers stay float.

    Returns:
        a module with the call and the answer of the one given. Its parameters are the weights and, unless they are
        fixed, the logarithms of the scales relative to the start.

    Raises:
        UsageError: the ranges fit no tensor, an argument is of another kind, an example is missing, or tied
            concatenations would learn apart.
        ModelError: the network cannot be exported or trained.
    """
    if options.tie_concat and learn_scales:
        raise UsageError(
            "options.tie_concat", expected="learn_scales=False with it", got="learnt scales, which would not stay tied",
            remedy="pass learn_scales=False, or leave the concatenations untied",
        )  # fmt: skip
    from calib.edges.qat.wrapped import QatModule

    inputs = _as_tuple(example)
    like = None if isinstance(model, str | Path | onnx.ModelProto) else _as_module(model)
    given = _float_model(model, inputs, exporter, opset, dynamic_size, tuple(input_names))
    origin = fold_norms(given).model
    start = _start(ranges, calibrator, FloatNetwork(origin, analyse(origin), {}, "the network"))
    options = replace(options, float_nodes=options.float_nodes | set(start.float_nodes))
    raised, plan = plan_model(origin, start.amax, target, options)
    _warn_of_lack(origin, start, target)
    return QatModule(
        raised,
        plan,
        origin=origin,
        amax=dict(start.amax),
        target=target,
        options=options,
        like=like,
        example=inputs,
        learn_scales=learn_scales,
        learn_weight_scales=learn_weight_scales,
        scale_bits=scale_bits,
    )


def export(module: QatModule, path: str | Path) -> QdqResult:
    """Write the Q/DQ ONNX network of a prepared module, with its weights and scales of now.

    Args:
        module: what :func:`prepare` gave; wrappers (DistributedDataParallel, compile) are looked through.
        path: the file; written under a temporary name, then renamed.

    Returns:
        the network, with the account of how it came about.

    Raises:
        UsageError: the module was not made by :func:`prepare`.
        StatisticsError: a weight or a scale is not finite.
        OutputError: the file cannot be written.
    """
    from calib.edges.qat.wrapped import QatModule

    inner: Any = module
    while not isinstance(inner, QatModule):
        wrapped = getattr(inner, "module", None) or getattr(inner, "_orig_mod", None)
        if wrapped is None:
            raise UsageError(
                "export", expected="a module that calib.qat.prepare made", got=type(module).__name__,
                remedy="train and pass the module that prepare returned",
            )  # fmt: skip
        inner = wrapped
    inner.refuse_broken()
    result, _ = quantize_trained(inner.origin, inner, inner.start_amax, inner.target, inner.options)
    save_model(result.model, Path(path))
    return result


def _float_model(
    model: Any,
    example: tuple[Any, ...],
    exporter: str,
    opset: int | None,
    dynamic_size: bool,
    names: tuple[str, ...],
) -> onnx.ModelProto:
    if isinstance(model, str | Path):
        model = load_model(model)
    if isinstance(model, onnx.ModelProto):
        refuse_quantized(analyse(model))
        return model
    if not example:
        raise UsageError(
            "example", expected="an input of the network, to export it with", got="none",
            remedy="pass example=torch.randn(2, 3, H, W)",
        )  # fmt: skip
    from calib.edges.qat.exporting import ExportOptions, export_module

    options = ExportOptions(exporter=exporter, opset=opset, dynamic_size=dynamic_size, inputs=names)
    return export_module(model, example, options, type(model).__name__)


def _as_tuple(example: Any) -> tuple[Any, ...]:
    if example is None:
        return ()
    return tuple(example) if isinstance(example, Sequence) else (example,)


def _as_module(model: Any) -> Any:
    from torch import nn

    if not isinstance(model, nn.Module):
        raise UsageError(
            "model", expected="a torch.nn.Module, the path of an ONNX file, or an onnx.ModelProto",
            got=type(model).__name__, remedy="pass the network itself",
        )  # fmt: skip
    return model


def _start(ranges: Ranges, calibrator: str | None, network: FloatNetwork) -> StartRanges:
    if isinstance(ranges, str | Path):
        return read_start(str(ranges), calibrator, network)
    if isinstance(ranges, RangeTable):
        return of_table(ranges, network)
    if not isinstance(ranges, Mapping):
        raise UsageError(
            "ranges", expected="a build folder, a file of ranges, a RangeTable, or amax by tensor name",
            got=type(ranges).__name__, remedy="make a build with `calib build` and pass its folder",
        )  # fmt: skip
    return StartRanges({name: _number(name, amax) for name, amax in ranges.items()}, "the ranges given")


def _number(name: str, amax: Any) -> float:
    try:
        return float(amax)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"ranges[{name!r}]", expected="one number, the amax of the tensor", got=repr(amax)[:80],
            remedy="pass one amax a tensor, float; ranges per channel are those of weights alone",
        ) from error  # fmt: skip


def _warn_of_lack(model: onnx.ModelProto, start: StartRanges, target: Target) -> None:
    """Say which layers stay float for want of a range: nothing else would tell before the engine is slow."""
    lacking = missing_ranges(model, start.amax, target)
    if lacking:
        unknown = f"; ranges of no tensor: {few(start.unmatched)}" if start.unmatched else ""
        warnings.warn(
            f"{start.source}: no range for {few(lacking)}, so layers that read them stay float{unknown}. Calibrate "
            "this very network, pass a build folder (tensors are matched by structure), or name its inputs as the "
            "ranges do with input_names=",
            stacklevel=3,
        )
