"""Compile numeric kernels once a machine, and go on where the compiled code cannot be kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

P = ParamSpec("P")
R = TypeVar("R")
_Untyped: Any = FunctionCache
_helpers: Any = cgutils


def compiled(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compile a function on its first call, without the GIL, and keep the machine code for later processes.

    Numba keeps it beside the source file, else in the user's cache folder (``NUMBA_CACHE_DIR`` overrides both). Where
    neither can be written, or the disk is full or over quota, the function is compiled again in each process.
    """
    dispatcher: Any = njit(nogil=True, **options)(function)
    with contextlib.suppress(RuntimeError, OSError):  # no folder that can be written
        dispatcher._cache = _Cache(function)
    kept: Callable[P, R] = dispatcher
    return kept


def compiled_loosely(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function whose sums may be taken in any order.

    They become vector instructions; last digits differ between kinds of processors, not between runs.
    """
    return compiled(function, fastmath={"reassoc", "contract"})


def compiled_helper(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that only compiled functions call: quicker, and kept as a part of these."""
    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    helper: Callable[P, R] = njit(**options)(function)
    return helper


class _Cache(_Untyped):  # type: ignore[misc]  # numba is untyped
    """Numba's cache, whose failures cost time and nothing else."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  # a damaged file raises whatever unpickling it raises
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # noqa: BLE001  # likewise; and a full disk
            self.disable()


def _prefetch(typing_context: Any, array: Any, index: Any) -> tuple[Any, Callable[..., Any]]:
    """Signature of :data:`prefetch`, and what makes its instruction."""
    del typing_context, index

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        structure = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        instruction = _helpers.get_or_insert_function(builder.module, function, "llvm.prefetch")
        place = builder.bitcast(builder.gep(structure.data, [arguments[1]]), byte)
        builder.call(instruction, [place, number(READ), number(KEEP), number(DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


READ, KEEP, DATA = 0, 3, 1
"""For reading, to be kept in all caches, and no instructions (LLVM Language Reference, llvm.prefetch)."""

prefetch: Any = intrinsic(_prefetch)
"""``prefetch(array, index)``, for compiled functions: fetch the cache line of a contiguous array's item from memory
and do not wait for it."""
