"""Files of ``torch.save`` made by hand, opcode by opcode: PyTorch's own, foreign classes in them, and hostile ones."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage", "uint16": "BFloat16Storage"}


@dataclass(frozen=True)
class Name:
    """A class or function by name."""

    module: str
    name: str


@dataclass(frozen=True)
class Call:
    """A call of a function, then perhaps a state for what it gives."""

    function: Name
    arguments: tuple[Any, ...] = ()
    state: Any = None


@dataclass(frozen=True)
class New:
    """An object with attributes."""

    kind: Name
    state: Any


@dataclass(frozen=True)
class Persistent:
    """A reference to something outside the pickle."""

    identity: Any


@dataclass
class File:
    """A file to be: its content, and the bytes of its tensors."""

    content: Any
    pieces: list[tuple[str, int, bytes]] = field(default_factory=list)

    def dump(self, value: Any) -> bytes:
        if isinstance(value, np.ndarray | np.generic):
            return self.dump(self.tensor(np.asarray(value)))
        plain = {type(None): b"N", bool: b"\x88" if value is True else b"\x89"}
        if type(value) in plain:
            return plain[type(value)]
        return getattr(self, f"_{type(value).__name__.lower()}")(value)

    def tensor(self, array: np.ndarray, *, offset: int = 0, strides: tuple[int, ...] | None = None) -> Call:
        key, kind = str(len(self.pieces)), STORAGES[array.dtype.name]
        self.pieces.append((key, array.size, np.ascontiguousarray(array).tobytes()))
        steps = tuple(item // array.itemsize for item in np.zeros(array.shape, array.dtype).strides)
        storage = Persistent(("storage", Name("torch", kind), key, "cpu", array.size))
        hooks = Call(Name("collections", "OrderedDict"))
        shown = (storage, offset, array.shape, strides or steps, False, hooks)
        return Call(Name("torch._utils", "_rebuild_tensor_v2"), shown)

    def _str(self, value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()

    def _int(self, value: int) -> bytes:
        encoded = pickle.encode_long(value)
        return b"\x8a" + bytes([len(encoded)]) + encoded

    def _float(self, value: float) -> bytes:
        return b"G" + struct.pack(">d", value)

    def _tuple(self, value: tuple) -> bytes:
        return b"(" + b"".join(map(self.dump, value)) + b"t"

    def _list(self, value: list) -> bytes:
        return b"](" + b"".join(map(self.dump, value)) + b"e"

    def _dict(self, value: dict) -> bytes:
        return b"}(" + b"".join(self.dump(key) + self.dump(item) for key, item in value.items()) + b"u"

    def _name(self, value: Name) -> bytes:
        return f"c{value.module}\n{value.name}\n".encode()

    def _call(self, value: Call) -> bytes:
        made = self.dump(value.function) + self.dump(value.arguments) + b"R"
        return made if value.state is None else made + self.dump(value.state) + b"b"

    def _new(self, value: New) -> bytes:
        return self.dump(value.kind) + b")\x81" + self.dump(value.state) + b"b"

    def _persistent(self, value: Persistent) -> bytes:
        return self.dump(value.identity) + b"Q"

    def archive(self, prefix: bytes = b"") -> bytes:
        """The form since PyTorch 1.6; ``prefix`` are opcodes that leave the stack empty."""
        pickled = b"\x80\x02" + prefix + self.dump(self.content) + b"."
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("net/data.pkl", pickled)
            for key, _, raw in self.pieces:
                archive.writestr(f"net/data/{key}", raw)
        return stream.getvalue()

    def legacy(self) -> bytes:
        """The form before PyTorch 1.6."""
        content = self.dump(self.content)
        system = {"protocol_version": 1001, "little_endian": True}
        heads = [self.dump(LEGACY_MAGIC), self.dump(1001), self.dump(system), content]
        heads.append(self.dump([key for key, _, _ in self.pieces]))
        tail = b"".join(struct.pack("<q", count) + raw for _, count, raw in self.pieces)
        return b"".join(b"\x80\x02" + item + b"." for item in heads) + tail


def module(tensors: dict[str, Any] | None = None, children: dict[str, Any] | None = None, **attributes: Any) -> New:
    """A network of PyTorch, pickled whole; its class is nobody's."""
    state = {"training": False, "_parameters": {}, "_buffers": tensors or {}, "_modules": children or {}, **attributes}
    return New(Name("somewhere.models", "Net"), state)
