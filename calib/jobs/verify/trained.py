"""Hold the folder of a training against itself: what learnt ranges and trained weights give, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import onnx
from numpy.typing import NDArray

from calib.core.gate.provenance import REBUILD
from calib.core.graph import Network, analyse
from calib.core.graph.stored import StoredValues
from calib.core.plan import PlacementOptions
from calib.core.trainable import trainable_constants
from calib.core.trtcache import parse
from calib.edges.files import read_bytes
from calib.edges.models import load_model
from calib.errors import CalibError
from calib.jobs.qat.artifacts import CACHE_NAME, NAME, QDQ_NAME, TWIN_NAME, make_cache
from calib.jobs.qat.start import RANGES
from calib.jobs.verify.comparing import UNREADABLE, check_cache, check_images, check_network, check_release, reason
from calib.jobs.verify.subject import Subject
from calib.stages.placement import DEFAULTS
from calib.stages.qdq import quantize_model
from calib.stages.qdqread import read_qdq
from calib.types.gate import Check, few
from calib.types.rangetable import WeightRange

TRAIN_AGAIN = f"train again, or restore the folder as `calib qat` left it; {REBUILD}"


def check_training(subject: Subject) -> list[Check]:
    """Make cache and Q/DQ network once more from ranges and trained weights, and compare them with the files."""
    return [*_check(subject), check_images(subject), check_release(subject)]


def _check(subject: Subject) -> Iterator[Check]:
    try:
        amax = _learnt(json.loads(read_bytes(str(subject.folder / RANGES))))
        twin = load_model(subject.folder / TWIN_NAME)
        weights = _weights(subject)
    except (CalibError, KeyError, TypeError, *UNREADABLE) as error:
        yield Check(TWIN_NAME, "fail", f"cannot be read: {reason(error)}", TRAIN_AGAIN)
        return
    yield _check_twin(subject, twin)
    request = subject.request
    try:
        cache, _ = make_cache(analyse(twin), amax, request["trt_version"], request["cache_algorithm"])
        wanted = quantize_model(twin, amax, request["target"], _placement(subject), weights).model
    except CalibError as error:
        yield Check(NAME, "fail", f"cannot be made again: {error.got}", error.remedy)
        return
    yield check_cache(subject.folder / CACHE_NAME, parse(cache))
    yield check_network(subject.folder / QDQ_NAME, wanted, "Q/DQ network")


def _learnt(ranges: Mapping[str, Any]) -> dict[str, float]:
    return {item["name"]: float(item["ranges"][NAME]["amax"]) for item in ranges["tensors"]}


def _weights(subject: Subject) -> dict[str, WeightRange]:
    """Scales of weights that were learnt; the others are made anew from the weights."""
    if not subject.request.get("learn_weight_scales") and subject.request.get("backend") != "modelopt":
        return {}
    table = read_qdq(load_model(subject.folder / QDQ_NAME), QDQ_NAME)
    return {item.name: item for item in table.weights}


def _placement(subject: Subject) -> PlacementOptions:
    """The placement that was trained: ModelOpt quantizes fewer layers than the rules would."""
    recorded = subject.provenance.get("training", {}).get("float_nodes", ())
    return replace(DEFAULTS, float_nodes=frozenset(map(str, recorded)))


def _check_twin(subject: Subject, twin: onnx.ModelProto) -> Check:
    """See that training changed the weights and nothing else of the float network."""
    differing = list(_changed(subject.model, subject.network, twin))
    if differing:
        detail = f"not the network that was trained: {few(differing)}"
        return Check(TWIN_NAME, "fail", detail, TRAIN_AGAIN)
    return Check(TWIN_NAME, "pass", "the float network with other weights")


def _changed(model: onnx.ModelProto, network: Network, twin: onnx.ModelProto) -> Iterator[str]:
    stored, other = StoredValues(model), StoredValues(twin)
    trained = set(trainable_constants(network, stored))
    if [_bare(node, trained) for node in model.graph.node] != [_bare(node, trained) for node in twin.graph.node]:
        yield "other nodes or attributes"
    for name in stored.initializers.keys() ^ other.initializers.keys():
        yield f"{name!r} in one of them only"
    for name in stored.initializers.keys() & other.initializers.keys():
        before, after = stored.value(name), other.value(name)
        if not _may_follow(before, after, name in trained):
            yield f"{name!r} has another shape or value"


def _may_follow(before: NDArray[Any] | None, after: NDArray[Any] | None, trained: bool) -> bool:
    """Whether a stored tensor may have become this one: weights change their values, others nothing."""
    if before is None or after is None or before.shape != after.shape or before.dtype != after.dtype:
        return before is None and after is None
    return trained or before.tobytes() == after.tobytes()


def _bare(node: onnx.NodeProto, trained: set[str]) -> bytes:
    """A node without the value of a trained constant."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    if node.op_type == "Constant" and node.output[0] in trained:
        del bare.attribute[:]
    return bytes(bare.SerializeToString(deterministic=True))
