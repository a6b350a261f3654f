"""State dicts in PyTorch's own files, read and written without PyTorch: nothing in them is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats import statedict
from calib.core.formats.checkpoint import Checkpoint, any_state, arrays_of, find_state
from calib.core.formats.quantizers import bare_name
from calib.core.formats.text import malformed
from calib.core.formats.torchcontainer import read_checkpoint, write_checkpoint
from calib.core.formats.torchpickle import Tensor
from calib.types.rangetable import RangeTable, Remark


def read(data: bytes, place: str) -> RangeTable:
    """Read ``_amax`` keys from a checkpoint, however deep it hides its state dict.

    Raises:
        FormatError: no checkpoint, a damaged one, or one without such keys.
    """
    content = read_checkpoint(data, place)
    found = find_state(content)
    if found is None:
        return statedict.table_of(dict.fromkeys(any_state(content), np.zeros(0)), statedict.TORCH, place)
    table = statedict.table_of(_arrays(found.state, place), statedict.TORCH, place, found.settings)
    return table.remarked(*_choice(found, place))


def _arrays(state: Mapping[str, Tensor], place: str) -> dict[str, NDArray[Any]]:
    try:
        return arrays_of(state, statedict.wanted)
    except Exception as error:
        got = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise malformed(f"{place}: byte 0", "tensors inside the file's data", got) from error


def _choice(found: Checkpoint, place: str) -> Iterator[Remark]:
    """Say which of several state dicts was taken, and whether another one has other ranges."""
    mine = _ranges(found.state)
    for path, state in found.others.items():
        theirs = _ranges(state)
        other = tuple(key for key in mine if key in theirs and not _equal(mine[key], theirs[key], place))
        where = f"{found.path or 'the top'} was read, not {path or 'the top'}"
        text = f"have another range there: {where}" if other else f"of several state dicts {where}; the ranges agree"
        yield Remark("several_states", other, text)


def _ranges(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = ((key.removesuffix(statedict.SUFFIX), value) for key, value in state.items())
    return {bare_name(name): value for name, value in found if f"{name}{statedict.SUFFIX}" in state}


def _equal(first: Tensor, second: Tensor, place: str) -> bool:
    one, other = (_arrays({statedict.SUFFIX: item}, place)[statedict.SUFFIX] for item in (first, second))
    return bool(np.array_equal(one, other))


def write(table: RangeTable) -> bytes:
    """Write ``_amax`` keys as ``torch.load`` reads them.

    Raises:
        FormatError: the table names tensors, not modules, or a name is no UTF-8.
    """
    return write_checkpoint(statedict.module_state(table))
