"""Compile numeric kernels once a machine, and go on where the compiled code cannot be kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from numba import njit
from numba.core.caching import FunctionCache

P = ParamSpec("P")
R = TypeVar("R")
_Untyped: Any = FunctionCache


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
