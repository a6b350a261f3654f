"""What an engine is built from: the network, its cache or Q/DQ pairs, its plan; all of it checked against the build."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx

from calib.core.engine.shapes import ShapeRange, complete_shapes, parse_shapes
from calib.core.gate.provenance import check_shape, kept_in_float
from calib.core.graph import Network, analyse
from calib.core.plan import Decision
from calib.core.roles import COMPUTE
from calib.core.trtcache import CalibrationCache, parse
from calib.edges.builddir import PROVENANCE, RELEASE
from calib.edges.files import sha256_file
from calib.edges.models import load_model
from calib.edges.provenance import model_digest
from calib.errors import ModelError, UsageError
from calib.jobs.build.sources import EQUALIZED
from calib.jobs.engine.request import EngineRequest
from calib.stages.floatlayers import find_float_layers
from calib.stages.halve import halve
from calib.stages.placement import MINIMUM_OPSET, plan_quantization
from calib.types.data import Preprocess

PAD_BY_INPUTS = 11
"""First opset whose Pad takes what it adds as an input."""
EQUALIZED_FILE = f"{EQUALIZED}.float.onnx"
PINNED_REASONS = frozenset({"logits", "gate", "global_context", "excluded", "deconv_float", "softmax", "normalisation"})
"""Why a layer is kept in float by choice; the others have no INT8 kernel, and TensorRT finds that out itself."""


@dataclass(frozen=True)
class EngineSource:
    """Everything an engine is built from.

    Attributes:
        place: the network's file.
        model: the network.
        network: its analysis.
        label: the calibrator.
        cache: the calibration cache, and its file; None for a Q/DQ network.
        cache_file: likewise.
        decisions: what the plan says of every layer.
        shapes: of inputs that leave lengths open.
        provenance: of the build.
        notes: what the user should know.
        cast: whether the network's float parts were cast to float16, so that it is no longer the file's.
    """

    place: Path
    model: onnx.ModelProto
    network: Network
    label: str
    cache: CalibrationCache | None
    cache_file: Path | None
    decisions: Sequence[Decision]
    shapes: Mapping[str, ShapeRange]
    provenance: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    cast: bool = False

    def pinned(self, fp16: bool) -> dict[str, str]:
        """Layers to pin to float, by the name that TensorRT's parser gives them."""
        kind = "fp16" if fp16 else "fp32"
        chosen = [item for item in self.decisions if item.status == "float" and item.reason in PINNED_REASONS]
        return {parser_name(self.network, item.node): kind for item in chosen}


def parser_name(network: Network, index: int) -> str:
    """Name that TensorRT's ONNX parser gives a node: its own, or ``node_of_OUTPUT`` where it has none."""
    node = network.nodes[index]
    return node.name or f"node_of_{next(filter(None, node.outputs), '')}"


def read_source(request: EngineRequest) -> EngineSource:
    """Read and check what the engine is built from.

    Raises:
        UsageError: no build folder, an unknown variant, a missing ``--model``, or unfit shapes.
        ModelError: a file is not the one that the build wrote, or not the network it was built from.
    """
    provenance = _read_provenance(request.folder)
    labels = [item["name"] for item in provenance["calibrators"]]
    if request.variant not in (None, *labels):
        raise UsageError(
            f"--variant {request.variant}", expected="one of " + ", ".join(labels), got=repr(request.variant),
            remedy="name a calibrator of this build",
        )  # fmt: skip
    label = request.variant or labels[0]
    asked = parse_shapes(request.shapes)
    if request.target == "trt11":
        return _explicit(request, provenance, label, asked)
    return _implicit(request, provenance, label, asked)


def _read_provenance(folder: Path) -> Mapping[str, Any]:
    try:
        document = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(
            str(folder), expected="a build folder", got=f"no readable {PROVENANCE}",
            remedy="name the folder that `calib build -o` wrote",
        ) from error  # fmt: skip
    shape = check_shape(document)
    if shape.status != "pass":
        raise UsageError(str(folder), expected="a build of this calib", got=shape.detail, remedy=shape.remedy)
    found: Mapping[str, Any] = document
    return found


def _built(folder: Path, provenance: Mapping[str, Any], name: str) -> Path:
    """A file of the build, as it was built."""
    path = folder / name
    recorded = provenance["outputs"].get(name)
    if not path.is_file() or sha256_file(path) != recorded:
        raise ModelError(
            str(path),
            expected="the file as it was built",
            got="no such file" if not path.is_file() else "one that was changed since",
            remedy="`calib verify` says more; build again",
        )
    return path


def _explicit(
    request: EngineRequest, provenance: Mapping[str, Any], label: str, asked: Mapping[str, ShapeRange]
) -> EngineSource:
    """The Q/DQ network; with FP16, its float parts cast and written beside the engine."""
    place = _built(request.folder, provenance, f"{label}.qdq.onnx")
    if f"{place.name}.data" in provenance["outputs"]:
        _built(request.folder, provenance, f"{place.name}.data")
    model = load_model(place)
    decisions = qdq_decisions(analyse(model))
    cast, notes = _halved(model, request.folder) if request.fp16 else (None, ())
    model = model if cast is None else cast
    network = analyse(model)
    shapes = complete_shapes(network.inputs, asked, _preprocess(provenance))
    return EngineSource(
        place, model, network, label, None, None, decisions, shapes, provenance, notes, cast=cast is not None
    )


def _halved(model: onnx.ModelProto, folder: Path) -> tuple[onnx.ModelProto | None, tuple[str, ...]]:
    """The network with its float parts in float16, and what to say of it; None where it stays in float32."""
    try:
        found = halve(model, _observed(folder))
    except ModelError as error:
        return None, (f"what is not INT8 stays in float32: {error.got}",)
    return found.model, (f"nodes cast to float16: {len(found.half)}, left in float32: {len(found.kept)}",)


def _observed(folder: Path) -> dict[str, float]:
    """Largest magnitude observed of each tensor; nothing where ranges.json cannot be read."""
    found: dict[str, float] = {}
    for path in sorted(folder.glob("ranges*.json")):
        try:
            tensors = json.loads(path.read_bytes())["tensors"]
            amax = {item["name"]: max(abs(item["minimum"] or 0), abs(item["maximum"] or 0)) for item in tensors}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found |= {name: max(value, found.get(name, 0.0)) for name, value in amax.items()}
    return found


def _implicit(
    request: EngineRequest, provenance: Mapping[str, Any], label: str, asked: Mapping[str, ShapeRange]
) -> EngineSource:
    """The float network with the variant's cache."""
    place = _float_network(request, provenance, label)
    model = load_model(place)
    network = analyse(model)
    first = label == provenance["calibrators"][0]["name"]
    cache_file = _built(request.folder, provenance, RELEASE if first else f"{label}.cache")
    cache = parse(cache_file.read_bytes(), str(cache_file))
    kept = find_float_layers(model, kept_in_float(provenance), "trt10").options()
    ranges = {item.name: item.amax for item in cache.entries}
    plan = plan_quantization(_at_any_opset(network), ranges, "trt10", kept)
    shapes = complete_shapes(network.inputs, asked, _preprocess(provenance))
    return EngineSource(place, model, network, label, cache, cache_file, plan.decisions, shapes, provenance)


def _at_any_opset(network: Network) -> Network:
    """The network as one whose operator set has Q/DQ: with a cache TensorRT quantizes whatever the set."""
    known = MINIMUM_OPSET.values()
    sufficient = max(known) if network.opset >= PAD_BY_INPUTS else min(known)  # operators are read as they are written
    return replace(network, opsets={**network.opsets, "": max(network.opset, sufficient)})


def _float_network(request: EngineRequest, provenance: Mapping[str, Any], label: str) -> Path:
    parameters = next(item["parameters"] for item in provenance["calibrators"] if item["name"] == label)
    if parameters.get("equalize"):
        return _built(request.folder, provenance, EQUALIZED_FILE)
    if request.model is None:
        raise UsageError(
            "--model",
            expected="the float network that was calibrated, for --target trt10",
            got="none",
            remedy="name it: --model NET.onnx (a cache holds ranges only)",
        )
    load_model(request.model)
    if sorted(model_digest(request.model).values()) != sorted(provenance["request"]["model"].values()):
        raise ModelError(
            str(request.model),
            expected="the network that was calibrated",
            got="another, or other weights",
            remedy="a cache holds ranges of one set of weights only: build again with this network",
        )
    return request.model


def _preprocess(provenance: Mapping[str, Any]) -> Preprocess | None:
    stated = provenance["preprocess"]
    if stated is None:
        return None
    fields: dict[str, Any] = {key: tuple(item) if isinstance(item, list) else item for key, item in stated.items()}
    try:
        return Preprocess(**fields)
    except TypeError:  # written by a calib that knew other keys; --shapes says what this would
        return None


def qdq_decisions(network: Network) -> tuple[Decision, ...]:
    """What a Q/DQ network says of its layers: INT8 where every data operand comes out of a DequantizeLinear."""
    found = []
    for index in network.order:
        node = network.nodes[index]
        if node.op_type not in COMPUTE or node.domain:
            continue
        producers = [network.producer(name) for name in node.inputs[:2]]
        int8 = all(made is not None and made.op_type == "DequantizeLinear" for made in producers)
        status, reason = ("int8", "quantized") if int8 else ("float", "excluded")
        found.append(Decision(index, node.label, node.op_type, status, reason))  # type: ignore[arg-type]
    return tuple(found)
