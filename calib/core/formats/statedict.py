"""State dicts of pytorch-quantization and ModelOpt: ``MODULE.input_quantizer._amax`` as a table that names modules.

pytorch-quantization writes ``conv._input_quantizer._amax``, ModelOpt ``conv.input_quantizer._amax``; a scalar per
tensor, ``(K, 1, 1, 1)`` per channel of a weight. The weights themselves stand beside them as ``MODULE.weight``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats.arrays import read_npz, read_safetensors, write_npz, write_safetensors
from calib.core.formats.text import malformed, require_unicode_names
from calib.core.quantization import weight_amax
from calib.errors import FormatError, StatisticsError
from calib.types.rangetable import LEVELS, RangeTable, Remark, TensorRange, WeightRange

NPZ, SAFETENSORS, TORCH = "amax-npz", "amax-safetensors", "amax-torch"
SUFFIX = "._amax"
QUANTIZER = re.compile(r"(?:(?P<module>.+)\.)?_?(?P<quantizer>[A-Za-z0-9_]*?quantizer)\Z")
"""A quantizer's path in the state dict: the module and what of it is quantized."""
PRE_SCALE = "._pre_quant_scale"


def wanted(name: str) -> bool:
    """Whether a key of a state dict matters here: ranges, and weights to compare theirs with."""
    return name.endswith((SUFFIX, PRE_SCALE, ".weight")) or name in {"weight", "_amax"}


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


def table_of(state: Mapping[str, NDArray[Any]], kind: str, place: str) -> RangeTable:
    """Make the table of a state dict.

    Args:
        state: arrays by key; keys that do not matter may be there.
        kind: key of the format.
        place: the file.

    Raises:
        FormatError: no ``_amax`` key, or one that holds no numbers.
    """
    ranges: dict[str, TensorRange] = {}
    weights: list[WeightRange] = []
    per_channel: list[str] = []
    for key, value in state.items():
        if not key.endswith(SUFFIX):
            continue
        name, amax = key.removesuffix(SUFFIX), _numbers(value, f"{place}: {key}")
        if name.endswith("weight_quantizer"):
            weights.append(_weight(name, amax, state))
        elif amax.size == 1:
            ranges[name] = TensorRange(name, float(amax.reshape(())))
        else:
            per_channel.append(name)
            ranges[name] = TensorRange(name, float(amax.max(initial=0.0)))
    if not ranges and not weights:
        remedy = "pass the state dict of the quantized network, after calibration"
        raise malformed(place, "keys that end in ._amax (pytorch-quantization, ModelOpt)", "none", remedy)
    remarks = tuple(_remarks(state, per_channel))
    return RangeTable(ranges, kind, place, tuple(weights), naming="module", remarks=remarks)


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
    found = split_quantizer(name)
    weight = state.get(f"{found[0]}.weight" if found and found[0] else "weight")
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


def _remarks(state: Mapping[str, NDArray[Any]], per_channel: list[str]) -> Iterator[Remark]:
    if per_channel:
        text = "have a range per channel; TensorRT takes one a tensor, the largest"
        yield Remark("per_channel_activation", tuple(per_channel), text, blocks=True)
    smoothed = tuple(key.removesuffix(PRE_SCALE) for key in state if key.endswith(PRE_SCALE))
    if smoothed:
        text = "have a _pre_quant_scale (SmoothQuant, AWQ): their ranges hold for scaled activations only"
        yield Remark("pre_quant_scale", smoothed, text, blocks=True)


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
