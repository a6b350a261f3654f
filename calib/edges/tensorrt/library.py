"""TensorRT's Python package: found and of the right major version, or an account of why not; its log."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import TYPE_CHECKING, Any

from calib.errors import MissingLibraryError

if TYPE_CHECKING:
    import tensorrt as trt

INSTALL = {10: "pip install 'tensorrt<11'", 11: "pip install 'tensorrt>=11'"}
MISSING_SCALE = "Missing scale and zero-point for tensor "
DISTRIBUTIONS = ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu13-bindings", "tensorrt-cu12-bindings")


def installed_tensorrt() -> str | None:
    """Version of the installed TensorRT package, by its metadata alone; None where there is none."""
    for name in DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def load_tensorrt(major: int) -> ModuleType:
    """Import TensorRT.

    Args:
        major: version that is needed, 10 or 11.

    Raises:
        MissingLibraryError: it is not installed, does not import, or is of another major version.
    """
    try:
        import tensorrt
    except Exception as error:
        raise MissingLibraryError(
            f"TensorRT {major}",
            expected="its Python package",
            got=f"{type(error).__name__}: {error}"[:200],
            remedy=INSTALL[major],
        ) from error
    found = str(getattr(tensorrt, "__version__", ""))
    if found.partition(".")[0] != str(major):
        raise MissingLibraryError(
            f"TensorRT {major}",
            expected=f"version {major}.x",
            got=f"version {found or 'unknown'}",
            remedy=f"{INSTALL[major]}, or name the other --target",
        )
    return tensorrt


class Log:
    """What TensorRT said, by severity name."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def add(self, severity: str, text: str) -> None:
        """Keep a message; progress messages are not kept."""
        if severity in ("INTERNAL_ERROR", "ERROR", "WARNING"):
            self.entries.append((severity, text.strip()))

    @property
    def errors(self) -> list[str]:
        """Errors, in order."""
        return [text for severity, text in self.entries if severity != "WARNING"]

    @property
    def missing_scales(self) -> list[str]:
        """Tensors that TensorRT found no scale for, as it names them."""
        found = [text.partition(MISSING_SCALE)[2] for _, text in self.entries if MISSING_SCALE in text]
        return list(dict.fromkeys(text.partition(", expect")[0].strip() for text in found))

    def why(self) -> str:
        """The errors in one line, for an error message."""
        return "; ".join(dict.fromkeys(self.errors))[:600] or "no reason given"


def make_logger(log: Log) -> trt.ILogger:
    """A TensorRT logger that keeps what it is told."""
    import tensorrt as trt

    class KeepingLogger(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)

        def log(self, severity: Any, msg: str) -> None:
            log.add(str(getattr(severity, "name", severity)), msg)

    return KeepingLogger()
