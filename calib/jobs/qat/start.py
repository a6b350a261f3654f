"""The ranges a training starts from: a build's, a file's, or those of a calibration of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from calib.core.gate.provenance import check_shape, kept_in_float
from calib.core.graph import analyse
from calib.core.graph.stored import StoredValues
from calib.edges.builddir import PROVENANCE
from calib.edges.files import read_bytes
from calib.edges.models import load_model
from calib.edges.tables import load_table
from calib.errors import CalibError, FormatError, UsageError
from calib.jobs.qat.network import FloatNetwork
from calib.stages.floatlayers import find_float_layers
from calib.stages.foldnorms import fold_norms
from calib.stages.matching import Match, match_networks
from calib.stages.modules import map_modules, to_tensors
from calib.stages.qdqstrip import strip_qdq
from calib.types.rangetable import LEVELS, RangeTable

RANGES = "ranges.json"
ROUNDING = 0.01
"""Share of a weight's largest magnitude that INT8 rounding stays below: half a step is 1/254."""


@dataclass(frozen=True)
class StartRanges:
    """Ranges by tensor name of the network under training.

    Attributes:
        amax: half-width by tensor.
        source: where they come from, for people.
        calibrator: the calibrator that chose them, or empty.
        unmatched: tensors of the source that have no counterpart in the network.
        folder: the build folder, or None.
        calibrated: tensors that the source had no range for, and that were calibrated instead.
        moved: weights that differ from those that the source was calibrated with.
        float_nodes: labels of the network's nodes that the source keeps in float as asked.
    """

    amax: Mapping[str, float]
    source: str
    calibrator: str = ""
    unmatched: tuple[str, ...] = ()
    folder: Path | None = None
    calibrated: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    float_nodes: tuple[str, ...] = ()


def read_start(init: str, calibrator: str | None, network: FloatNetwork) -> StartRanges:
    """Read the ranges of a build folder or of a file of ranges, matched to the network's tensors.

    Raises:
        UsageError: the build has no such calibrator, or its ranges belong to the equalized twin.
        FormatError: the folder or file cannot be read.
    """
    path = Path(init)
    return _of_build(path, calibrator, network) if path.is_dir() else of_table(load_table(str(path)), network)


def of_table(table: RangeTable, network: FloatNetwork) -> StartRanges:
    """Take the ranges of a table, of modules or of tensors, that are of the network's tensors.

    Raises:
        UsageError: not one of them is.
    """
    named, lost = table, tuple[str, ...]()
    if table.naming == "module":
        named, lost = to_tensors(table, map_modules(network.model, network.network))
    known = {item.name for item in network.network.activations}
    amax = {item.name: item.amax if item.scale is None else item.scale * LEVELS for item in named}
    fitting = {name: value for name, value in amax.items() if name in known}
    if not fitting:
        raise UsageError(
            table.place,
            expected=f"ranges of tensors of {network.place}",
            got=f"{len(table)} ranges, none of a tensor that it has",
            remedy="pass a build folder, whose tensors are matched by structure, or map the file with `calib cache "
            "convert`",
        )
    unmatched = (*lost, *(name for name in amax if name not in known))
    return StartRanges(fitting, table.place, "", unmatched)


def _of_build(folder: Path, wanted: str | None, network: FloatNetwork) -> StartRanges:
    provenance = _provenance(folder)
    names = [str(item["name"]) for item in provenance["calibrators"]]
    name = names[0] if wanted is None else wanted
    if name not in names:
        raise UsageError(
            f"--calibrator {wanted}", expected=f"one of the build's: {', '.join(names)}", got=repr(wanted),
            remedy=f"name one of these, or build {folder} with it",
        )  # fmt: skip
    amax = _amax(folder, name)
    if amax is None:
        twin = folder / "equalized.float.onnx"
        raise UsageError(
            f"--calibrator {name}",
            expected="ranges of the network as it is",
            got="ranges of the equalized network",
            remedy=f"train that one: calib qat {twin} --init {folder} --calibrator {name}"
            if network.place != twin.name
            else "build again; ranges.equalized.json is missing",
        )
    quantized = folder / f"{name}.qdq.onnx"
    model = strip_qdq(load_model(quantized), str(quantized)).model
    found = _Counterparts(model, network)
    renamed, unmatched = found.ranges(amax)
    asked = find_float_layers(model, kept_in_float(provenance), provenance["request"]["target"])
    kept = found.nodes(asked.nodes)
    return StartRanges(renamed, f"{folder} ({name})", name, unmatched, folder, moved=found.moved(), float_nodes=kept)


def layers_in_float(init: str | None) -> tuple[str, ...]:
    """Patterns of the layers that a build folder keeps in float; nothing for a file of ranges.

    Raises:
        FormatError: the folder has no readable provenance.
    """
    return kept_in_float(_provenance(Path(init))) if init is not None and Path(init).is_dir() else ()


def _provenance(folder: Path) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = json.loads(read_bytes(str(folder / PROVENANCE)))
        shape = check_shape(found)
        if shape.status != "pass":
            raise ValueError(shape.detail)
        return found
    except (CalibError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            str(folder),
            expected=f"a build folder with {PROVENANCE}",
            got=f"{type(error).__name__}: {error}".splitlines()[0],
            remedy="make one with `calib build`, or leave --init out",
        ) from error


def _amax(folder: Path, name: str) -> dict[str, float] | None:
    """The calibrator's ranges of every tensor that was observed; None where it is not in the file."""
    place = str(folder / RANGES)
    try:
        found: Any = json.loads(read_bytes(place))
        if name not in {item["name"] for item in found["calibrators"]}:
            return None
        return {
            item["name"]: float(item["ranges"][name]["amax"])
            for item in found["tensors"]
            if item["count"] != 0 and name in item["ranges"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            place, expected="ranges as `calib build` writes them", got=f"{type(error).__name__}: {error}",
            remedy="build again",
        ) from error  # fmt: skip


class _Counterparts:
    """What belongs together in a build's network and the one to train.

    Batch normalisation may be folded in one of the two alone, so that a convolution's sum in the one is none in the
    other; both are folded before they are matched, which leaves the names of what remains.

    Args:
        build: the build's network, without its pairs.
        network: the one to train.
    """

    def __init__(self, build: onnx.ModelProto, network: FloatNetwork) -> None:
        self._alike = analyse(build).has_nodes_of(network.network)
        self._theirs, self._mine = fold_norms(build).model, fold_norms(network.model).model
        self._known, self._own = analyse(self._theirs), analyse(self._mine)

    @cached_property
    def _match(self) -> Match:
        return match_networks(self._theirs, self._known, self._mine, self._own)

    def ranges(self, amax: Mapping[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
        """Carry ranges over to the network's own tensor names; also name those of tensors that it does not have."""
        if self._alike:
            return dict(amax), ()
        pairs, left = self._match.pairs, set(self._match.left)
        found = {pairs[name]: value for name, value in amax.items() if name in pairs}
        return found, tuple(name for name in amax if name in left)

    def nodes(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Find the network's own nodes for those of the build's, which may be named otherwise."""
        if not labels or self._known.has_nodes_of(self._own):
            return tuple(labels)
        made = (node.outputs[0] for node in self._known.nodes if node.label in set(labels))
        producers = (self._own.producer(self._match.pairs[name]) for name in made if name in self._match.pairs)
        return tuple(node.label for node in producers if node is not None)

    def moved(self) -> tuple[str, ...]:
        """Name the weights of both networks that differ by more than the rounding to INT8 that a build may hold."""
        before, found = StoredValues(self._theirs), []
        for tensor in self._mine.graph.initializer:
            old = before.value(tensor.name) if tensor.name in before.initializers else None
            new = numpy_helper.to_array(tensor)
            if old is None or old.shape != new.shape or new.ndim < 2 or new.dtype != np.float32 or not new.size:
                continue
            largest = max(float(np.abs(old).max()), float(np.abs(new).max()))
            if float(np.abs(new - old).max()) > ROUNDING * largest:
                found.append(tensor.name)
        return tuple(found)
