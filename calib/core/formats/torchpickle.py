"""PyTorch's own files read without PyTorch and without executing anything in them.

A checkpoint is a pickle whose tensors lie beside it. Unpickling calls what the file names; here every name leads to an
inert stand-in, whatever it is, so that nothing of the file is ever called or imported. Whole pickled networks and
checkpoints with foreign classes in them (configurations, optimizers) can be read as well: their tensors are found, the
rest stays inert. :mod:`calib.core.formats.torchcontainer` reads the files around the pickles.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

STORAGES: Mapping[str, str] = {
    "DoubleStorage": "f8", "FloatStorage": "f4", "HalfStorage": "f2", "BFloat16Storage": "bf16", "LongStorage": "i8",
    "IntStorage": "i4", "ShortStorage": "i2", "CharStorage": "i1", "ByteStorage": "u1", "BoolStorage": "?",
    "UntypedStorage": "u1",
}  # fmt: skip
DTYPES: Mapping[str, str] = {
    "float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "bf16", "int64": "i8", "int32": "i4",
    "int16": "i2", "int8": "i1", "uint8": "u1", "bool": "?",
}  # fmt: skip


class _Sealed:
    """What the file cannot fill with attributes of its own."""

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""


class Plain(_Sealed, dict[Any, Any]):
    """A dictionary of the file; the attributes that a state dict carries are dropped."""


class Inert(dict[Any, Any]):
    """What stands in for every object of a class or function that the file names: it keeps and does nothing.

    Attributes:
        kind: the dotted name in the file.
        given: what it was to be called with.
        state: what it was to be filled with, mostly its attributes.
    """

    kind = ""

    def __init__(self, *given: Any, **_: Any) -> None:
        super().__init__()
        self.given = given
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        slots = isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], Mapping | None)
        self.state = state[0] or {} if slots else state

    def __call__(self, *given: Any, **_: Any) -> Inert:
        """Answer another stand-in, where the file calls what a function or a class would have answered."""
        return Inert(*given)

    def __hash__(self) -> int:  # type: ignore[override]
        """Serve as a key, whatever it stands for."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        """Equal to itself alone."""
        return self is other

    def append(self, item: Any) -> None:
        """Take an item, as a class derived from list would."""
        self[len(self)] = item

    def extend(self, items: Any) -> None:
        """Take items, as a class derived from list would."""
        for item in items:
            self.append(item)

    def add(self, item: Any) -> None:
        """Take an item, as a class derived from set would."""
        self[item] = None


@dataclass(frozen=True)
class Storage(_Sealed):
    """A run of numbers in the file: where it is, and of what type.

    Attributes:
        key: its name in the file.
        code: element type, a numpy code or ``bf16``.
        count: number of elements.
    """

    key: str
    code: str
    count: int


@dataclass
class Vault:
    """The bytes of the storages: read when a tensor is wanted."""

    fetch: Callable[[str], bytes]
    order: Literal["<", ">"] = "<"
    found: dict[str, Storage] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Tensor(_Sealed):
    """A tensor of the file, its numbers not yet read.

    Attributes:
        storage: where they are.
        vault: the file's storages.
        code: element type; as the storage's, unless the tensor looks at its bytes otherwise.
        offset: of the first element.
        shape: lengths.
        strides: in elements.
    """

    storage: Storage
    vault: Vault
    code: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def array(self) -> NDArray[Any]:
        """Read the numbers; bfloat16 comes as float32.

        Raises:
            ValueError: the tensor reaches out of its storage.
        """
        raw = self.vault.fetch(self.storage.key)
        width = 2 if self.code == "bf16" else np.dtype(self.code).itemsize
        dtype = np.dtype("u2" if self.code == "bf16" else self.code).newbyteorder(self.vault.order)
        if not math.prod(self.shape):
            return np.zeros(self.shape, np.float32 if self.code == "bf16" else dtype.newbyteorder("="))
        steps = tuple(item * width for item in self.strides)
        seen = np.ndarray(self.shape, dtype, raw, self.offset * width, steps)
        native = seen.astype(dtype.newbyteorder("="))
        return (native.astype(np.uint32) << 16).view(np.float32) if self.code == "bf16" else native


class Reader(pickle.Unpickler):
    """An unpickler to whom every name is inert, but for tensors and dictionaries."""

    def __init__(self, stream: io.BytesIO, vault: Vault) -> None:
        super().__init__(stream, encoding="latin-1")
        self.vault = vault

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Answer the stand-in of a class or function; nothing is imported."""
        known = _known(module_name, global_name)
        return known if known is not None else type("Inert", (Inert,), {"kind": f"{module_name}.{global_name}"})

    def persistent_load(self, pid: Any) -> Any:
        """Answer the storage that a tensor refers to, or a module's class, which older files tell with its text."""
        if isinstance(pid, tuple) and len(pid) > 1 and pid[0] == "module":
            return pid[1]
        if not isinstance(pid, tuple) or len(pid) < 5 or pid[0] != "storage":
            return Inert(pid)
        code = getattr(pid[1], "code", None)
        if code is None:
            return Inert(pid)
        storage = Storage(str(pid[2]), code, int(pid[4]))
        self.vault.found[storage.key] = storage
        return (storage, self.vault)


def _known(module: str, name: str) -> Any:
    if (module, name) in _SAFE:
        return _Call(_SAFE[module, name])
    if module in {"torch", "torch.storage"} and name in STORAGES:
        return type(name, (Inert,), {"kind": name, "code": STORAGES[name]})
    if module == "torch" and name in DTYPES:
        return _Dtype(DTYPES[name])
    return None


@dataclass(frozen=True)
class _Dtype(_Sealed):
    code: str


@dataclass(frozen=True)
class _Call(_Sealed):
    """A function of ours under a name of the file's."""

    function: Callable[..., Any]

    def __call__(self, *given: Any) -> Any:
        return self.function(*given)


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Any:
    return _typed(storage, offset, shape, strides, None)


def _tensor_v3(
    storage: Any, offset: Any, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> Any:
    return _typed(storage, offset, shape, strides, dtype) if isinstance(dtype, _Dtype) else Inert(storage)


def _typed(storage: Any, offset: Any, shape: Any, strides: Any, dtype: _Dtype | None) -> Any:
    if not isinstance(storage, tuple) or len(storage) != 2 or not isinstance(storage[0], Storage):
        return Inert(storage)
    held, vault = storage
    lengths, steps = tuple(map(int, shape)), tuple(map(int, strides))
    sound = len(lengths) == len(steps) <= 32 and min((*lengths, *steps, int(offset)), default=0) >= 0
    if not sound:
        raise pickle.UnpicklingError(f"a tensor of shape {lengths} with strides {steps}")
    return Tensor(held, vault, dtype.code if dtype else held.code, int(offset), lengths, steps)


def _parameter(data: Any, *_: Any) -> Any:
    return data


def _of_type(_rebuild: Any, _kind: Any, arguments: Any, *_: Any) -> Any:
    """A tensor of a class derived from Tensor: as its plain rebuild would make it."""
    return _rebuild(*arguments) if isinstance(_rebuild, _Call) else Inert(arguments)


def _ordered(*items: Any) -> Plain:
    return Plain(*items) if all(isinstance(item, Mapping | list) for item in items) else Plain()


def _default(*_: Any) -> Plain:
    return Plain()


def _shape(*lengths: Any) -> tuple[Any, ...]:
    return tuple(lengths[0]) if lengths and isinstance(lengths[0], tuple | list) else ()


def _items(*items: Any) -> list[Any]:
    return list(items[0]) if items and isinstance(items[0], tuple | list) else []


_SAFE: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _ordered,
    ("collections", "defaultdict"): _default,
    ("torch", "Size"): _shape,
    ("builtins", "set"): _items,
    ("builtins", "frozenset"): _items,
    ("__builtin__", "set"): _items,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _of_type,
    ("torch._tensor", "_rebuild_from_type"): _of_type,
}
"""Names of the file that mean data; what they lead to builds dictionaries, lists and tensors, and calls nothing."""
