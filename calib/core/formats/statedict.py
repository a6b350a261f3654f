"""State dicts of pytorch-quantization and ModelOpt: ``MODULE.input_quantizer._amax`` as a table that names modules.

pytorch-quantization writes ``conv._input_quantizer._amax``, ModelOpt ``conv.input_quantizer._amax``; a scalar per
tensor, ``(K, 1, 1, 1)`` per channel of a weight. The weights themselves stand beside them as ``MODULE.weight``.
Learned ranges of pytorch-quantization are ``….clip.clip_value_min`` and ``clip_value_max``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats.arrays import read_npz, read_safetensors, write_npz, write_safetensors
from calib.core.formats.quantizers import Settings, bare_name, foreign_fields, kept_by, settings_remarks
from calib.core.formats.text import malformed, require_unicode_names
from calib.core.quantization import weight_amax
from calib.errors import FormatError, StatisticsError
from calib.types.rangetable import LEVELS, RangeTable, Remark, TensorRange, WeightRange

NPZ, SAFETENSORS, TORCH = "amax-npz", "amax-safetensors", "amax-torch"
SUFFIX = "._amax"
CLIP_MIN, CLIP_MAX = ".clip.clip_value_min", ".clip.clip_value_max"
QUANTIZER = re.compile(r"(?:(?P<module>.+)\.)?_?(?P<quantizer>[A-Za-z0-9_]*?quantizer)\Z")
"""A quantizer's path in the state dict: the module and what of it is quantized."""
PARAMETERS = (".weight", ".bias", ".running_mean", ".running_var")
"""Endings of what a network's weights are compared with."""
OTHERS: Mapping[str, str] = {
    ".activation_post_process.scale": "fake quantization of torch.ao; export the network as Q/DQ ONNX and pass that",
    ".weight_fake_quant.scale": "fake quantization of torch.ao; export the network as Q/DQ ONNX and pass that",
    "_impl.value": "quantizers of Brevitas; export the network with export_onnx_qcdq and pass that",
}


def wanted(name: str) -> bool:
    """Whether a key of a state dict matters here: ranges, quantizers' other fields, weights to compare with."""
    return name.endswith((SUFFIX, *PARAMETERS)) or "quantizer" in name or name in {"weight", "_amax"}


def split_quantizer(key: str) -> tuple[str, str] | None:
    """Take ``conv1._input_quantizer`` apart into module ``conv1`` and quantizer ``input_quantizer``."""
    found = QUANTIZER.match(key)
    return (found["module"] or "", found["quantizer"]) if found else None


def read(data: bytes, place: str, kind: str) -> RangeTable:
    """Read ``_amax`` keys from an npz or a safetensors file.

    Raises:
        FormatError: a damaged file, or one without such keys.
    """
    reader = read_npz if kind == NPZ else read_safetensors
    return table_of(reader(data, place, wanted), kind, place)


def table_of(state: Mapping[str, NDArray[Any]], kind: str, place: str, settings: Settings | None = None) -> RangeTable:
    """Make the table of a state dict.

    Args:
        state: arrays by key; keys that do not matter may be there.
        kind: key of the format.
        place: the file.
        settings: attributes of quantizers, where the file states them: those it disables, or that are not INT8, have
            no range in the answer.

    Raises:
        FormatError: no ``_amax`` key, or one that holds no numbers.
    """
    settings = {bare_name(name): setting for name, setting in (settings or {}).items()}
    stated = _stated(state, place)
    if not stated:
        raise _none(state, place)
    kept = {name: amax for name, amax in stated.items() if kept_by(settings.get(bare_name(name)))}
    of_weights = {name: amax for name, amax in kept.items() if name.endswith("weight_quantizer")}
    unusable = {name: _fault(name, amax, state) for name, amax in of_weights.items()}
    weights = tuple(_weight(name, amax, state) for name, amax in of_weights.items() if not unusable[name])
    activations = {name: amax for name, amax in kept.items() if not name.endswith("weight_quantizer")}
    ranges = {name: TensorRange(name, float(amax.max())) for name, amax in activations.items()}
    wide = tuple(name for name, amax in activations.items() if amax.size > 1)
    text = "have a range per channel; TensorRT takes one a tensor, the largest"
    remarks = [Remark("per_channel_activation", wide, text, blocks=True)] if wide else []
    remarks += [
        Remark("weight_range", tuple(name for name, found in unusable.items() if found == fault), fault, blocks=True)
        for fault in dict.fromkeys(filter(None, unusable.values()))
    ]
    remarks += [*_learned(state), *foreign_fields(state)]
    remarks += settings_remarks(settings, {bare_name(name) for name in stated})
    parameters = {key: value for key, value in state.items() if key.endswith(PARAMETERS) and "quantizer" not in key}
    return RangeTable(ranges, kind, place, weights, naming="module", remarks=tuple(remarks), parameters=parameters)


def _fault(name: str, amax: NDArray[np.float64], state: Mapping[str, NDArray[Any]]) -> str:
    """Say what is wrong with the ranges of a weight; empty where nothing is."""
    if not np.isfinite(amax).all() or (amax < 0).any():
        return "hold ranges that are negative, infinite or NaN"
    weight = _beside(name, state)
    if weight is None or weight.dtype.kind != "f":
        return ""
    aligned = amax.ndim == weight.ndim
    wrong = [
        length for axis, length in enumerate(amax.shape) if length > 1 and not _has_axis(weight, axis, length, aligned)
    ]
    if wrong:
        return "have ranges for another number of channels than their weight has"
    reach = np.abs(np.asarray(weight, np.float64))
    dead = np.any((amax == 0) & (_reach(reach, amax.shape) > 0)) if aligned else np.all(amax == 0) and reach.any()
    return "have a range of 0 where the weight is not 0" if bool(dead) else ""


def _has_axis(weight: NDArray[Any], axis: int, length: int, aligned: bool) -> bool:
    return weight.shape[axis] == length if aligned else length in weight.shape


def _reach(magnitude: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Largest magnitude along every axis that the ranges have one value for, in the ranges' shape."""
    axes = tuple(place for place, length in enumerate(shape) if length == 1)
    return np.asarray(magnitude.max(axes, keepdims=True, initial=0.0))


def _beside(name: str, state: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Find the weight that a quantizer belongs to."""
    found = split_quantizer(name)
    return state.get(f"{found[0]}.weight" if found and found[0] else "weight")


def _stated(state: Mapping[str, NDArray[Any]], place: str) -> dict[str, NDArray[np.float64]]:
    """Gather amax by quantizer: as stated, or the larger end of a learned range."""
    found: dict[str, NDArray[np.float64]] = {}
    for key, value in state.items():
        if key.endswith((SUFFIX, CLIP_MAX)):
            ending = SUFFIX if key.endswith(SUFFIX) else CLIP_MAX
            amax = _numbers(value, f"{place}: {key}")
            low = state.get(f"{key.removesuffix(ending)}{CLIP_MIN}") if ending == CLIP_MAX else None
            name = key.removesuffix(ending)
            found[name] = amax if low is None else np.maximum(np.abs(amax), np.abs(_numbers(low, f"{place}: {name}")))
    return found


def _none(state: Mapping[str, NDArray[Any]], place: str) -> FormatError:
    foreign = (what for ending, what in OTHERS.items() if any(key.endswith(ending) for key in state))
    remedy = next(foreign, "pass the state dict of the quantized network, after calibration")
    return malformed(place, "keys that end in ._amax (pytorch-quantization, ModelOpt)", "none", remedy)


def _learned(state: Mapping[str, NDArray[Any]]) -> list[Remark]:
    """Remark on learned ranges whose ends differ: symmetric INT8 takes the larger one."""
    names = []
    for key, high in state.items():
        low = state.get(key.removesuffix(CLIP_MAX) + CLIP_MIN) if key.endswith(CLIP_MAX) else None
        if low is not None and not np.array_equal(-np.asarray(low, np.float64), np.asarray(high, np.float64)):
            names.append(key.removesuffix(CLIP_MAX))
    text = "learned a range that is not symmetric; TensorRT takes the larger of its ends on both sides"
    return [Remark("asymmetric", tuple(names), text, blocks=True)] if names else []


def _numbers(value: NDArray[Any], place: str) -> NDArray[np.float64]:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or not array.size:
        raise malformed(place, "numbers", f"{array.size} of type {array.dtype}")
    with np.errstate(invalid="ignore"):  # a NaN is passed on, not complained of
        return array.astype(np.float64)


def _weight(name: str, amax: NDArray[np.float64], state: Mapping[str, NDArray[Any]]) -> WeightRange:
    """Take a weight's ranges and what the weight beside them would give."""
    long = [place for place, length in enumerate(amax.shape) if length > 1]
    axis = long[0] if len(long) == 1 else None
    with np.errstate(over="ignore", invalid="ignore"):
        scales = np.asarray((amax.reshape(-1) if axis is not None else amax.max()) / LEVELS, np.float32)
    weight = _beside(name, state)
    observed = None if weight is None else _observed(np.asarray(weight), axis, amax.shape)
    return WeightRange(name, scales.astype(np.float64), axis, observed, rank=amax.ndim or None)


def _observed(weight: NDArray[Any], axis: int | None, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    if weight.dtype.kind != "f" or not weight.size:
        return None
    if axis is not None and (weight.ndim != len(shape) or weight.shape[axis] != shape[axis]):
        return None
    try:
        return weight_amax(weight, axis)
    except StatisticsError:
        return None


def write(table: RangeTable, kind: str) -> bytes:
    """Write ``_amax`` keys as float32, ready for ``load_state_dict(strict=False)``.

    Raises:
        FormatError: the table names tensors, not modules, or a name is no UTF-8.
    """
    arrays = module_state(table)
    return write_npz(arrays) if kind == NPZ else write_safetensors(arrays, {"format": "pt"})


def module_state(table: RangeTable) -> dict[str, NDArray[np.float32]]:
    """Make the arrays of a state dict, float32: scalars, and ``[C, 1, 1, 1]`` for a weight of rank 4.

    Raises:
        FormatError: the table names tensors, not modules, or a name is no UTF-8.
    """
    require_unicode_names(table, "a state dict")
    if table.naming != "module":
        raise FormatError(
            table.place,
            expected="ranges by module",
            got="ranges by tensor",
            remedy="pass the network with --model, so that tensors can be found in its modules",
        )
    arrays = {f"{item.name}{SUFFIX}": np.asarray(item.amax, np.float32) for item in table}
    for item in table.weights:
        amax = np.asarray(item.scales * LEVELS, np.float32)
        shape = [-1 if place == item.axis else 1 for place in range(item.rank or 0)]
        arrays[f"{item.name}{SUFFIX}"] = amax.reshape(shape) if amax.ndim and -1 in shape else amax
    return arrays
