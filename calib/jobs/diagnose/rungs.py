"""Which rungs the given parts and the installed runtimes allow, and how each is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.scoremap import OutputReading
from calib.edges.runners.callables import CallableRunner
from calib.edges.runners.loader import OrtRuntime
from calib.edges.tensorrt.library import installed_tensorrt
from calib.errors import CalibError
from calib.jobs.diagnose.parts import Part
from calib.stages.diagnose.halfcheck import is_half, rounding
from calib.stages.diagnose.ladder import Rung
from calib.stages.halve import halve
from calib.types.diagnosis import Stage
from calib.types.runner import Feeds, Runner, to_host


@dataclass(frozen=True)
class Contestant:
    """A rung that runs.

    Attributes:
        rung: which.
        part: whose inputs it takes.
        runner: runs it.
        reading: which output counts and what it is; None before the first run of a Python network.
    """

    rung: Rung
    part: Part
    runner: Runner
    reading: OutputReading | None = None

    def output(self, feeds: Feeds, name: str) -> NDArray[Any]:
        """The output that counts, of one image ``[1, …]``."""
        rows = self.part.rows
        filled = {
            key: np.repeat(item, rows, axis=0) if rows > 1 and len(item) == 1 else item for key, item in feeds.items()
        }
        answer = self.runner.run(filled)
        value = np.array(to_host(answer[name] if name in answer else next(iter(answer.values()))))
        return value[:1] if rows > 1 else value


def make_rungs(reference: Part, candidate: Part, provider: Any) -> tuple[list[Rung], dict[str, Contestant]]:
    """List every rung in order, those that cannot run with the reason, and a contestant for each that can."""
    return _Builder(reference, candidate, provider).build()


class _Builder:
    def __init__(self, reference: Part, candidate: Part, provider: Any) -> None:
        self.reference, self.candidate = reference, candidate
        self.runtime = OrtRuntime(candidate.address, provider)
        self.rungs: list[Rung] = []
        self.contestants: dict[str, Contestant] = {}

    def build(self) -> tuple[list[Rung], dict[str, Contestant]]:
        """Go up the ladder."""
        self._first()
        if self.candidate.kind == "torch":
            self._add("candidate", "candidate, PyTorch", "export", self.candidate, lambda: self._python(self.candidate))
        elif self.candidate.kind in {"float", "qdq"}:
            self._onnx()
        self._engines()
        return self.rungs, self.contestants

    def _first(self) -> None:
        part = self.reference
        if part.kind == "torch":
            self._add("reference", "reference, PyTorch", None, part, lambda: self._python(part))
        elif part.kind == "engine":
            self._add("reference", "reference, TensorRT engine", None, part, lambda: _engine(part))
        else:
            title = "reference, ONNX Runtime without optimizations"
            runtime = OrtRuntime(part.address)
            self._add("reference", title, None, part, lambda: runtime.load(_model(part), optimize=False))

    def _onnx(self) -> None:
        part, model = self.candidate, self.candidate.float_model
        if model is None:
            return
        half, qdq = is_half(model), part.kind == "qdq"
        what = "float part of the candidate" if qdq else "candidate"
        plain: Stage = "fp16" if half else "export"
        literal = rounding(model) if half else model
        self._add(
            "float", f"{what}, ONNX Runtime without optimizations", plain, part, lambda: self._load(literal, False)
        )
        self._add("optimized", f"{what}, optimized", "runtime", part, lambda: self._load(model, True), "float")
        if half:
            self._skip("fp16", "fp16", "float16 cast", "the candidate is in float16 itself")
        else:
            self._add("fp16", f"{what}, cast to float16", "fp16", part, lambda: self._halved(model), "float")
        if qdq:
            whole = _model(part)
            title = "candidate, Q/DQ computed literally"
            self._add("fake-quant", title, "quantization", part, lambda: self._load(whole, False), "float")
            title = "candidate, integer kernels of ONNX Runtime"
            self._add("int8", title, "kernels", part, lambda: self._load(whole, True), "fake-quant")
        else:
            why = "the candidate holds no Q/DQ pair; name a .qdq.onnx or a build folder"
            self._skip("fake-quant", "quantization", "INT8", why)

    def _engines(self) -> None:
        if self.candidate.kind == "engine":
            title = "candidate, TensorRT engine"
            self._add("tensorrt", title, "tensorrt", self.candidate, lambda: _engine(self.candidate), "reference")
            return
        version = installed_tensorrt()
        why = "TensorRT is not installed here" if version is None else "no engine given; `calib engine` builds one"
        self._skip("tensorrt", "tensorrt", "TensorRT", why)

    def _python(self, part: Part) -> Runner:
        return CallableRunner(part.module, part.address)

    def _load(self, model: onnx.ModelProto, optimize: bool) -> Runner:
        return self.runtime.load(model, optimize=optimize)

    def _halved(self, model: onnx.ModelProto) -> Runner:
        return self.runtime.load(rounding(halve(model).model), optimize=False)

    def _add(
        self,
        name: str,
        title: str,
        stage: Stage | None,
        part: Part,
        load: Callable[[], Runner],
        below: str = "reference",
    ) -> None:
        if below in self._skipped:
            below = "float" if "float" in self.contestants else "reference"
        try:
            runner = load()
        except CalibError as error:
            if name == "reference":
                raise
            self.rungs.append(Rung(name, title, stage, below, f"{error.place}: {error.got}"))
            return
        rung = Rung(name, title, stage, None if stage is None else below)
        self.rungs.append(rung)
        self.contestants[name] = Contestant(rung, part, runner)

    @property
    def _skipped(self) -> set[str]:
        return {rung.name for rung in self.rungs if rung.skipped}

    def _skip(self, name: str, stage: Stage, title: str, why: str) -> None:
        self.rungs.append(Rung(name, title, stage, "float", why))


def _model(part: Part) -> onnx.ModelProto:
    if part.model is None:
        raise AssertionError(part.address)
    return part.model


def _engine(part: Part) -> Runner:
    if part.runner is None:
        raise AssertionError(part.address)
    return part.runner


def skipped(rungs: list[Rung], failed: Mapping[str, str]) -> list[Rung]:
    """The rungs, those that failed while running marked so."""
    from dataclasses import replace

    return [replace(rung, skipped=failed[rung.name]) if rung.name in failed else rung for rung in rungs]
