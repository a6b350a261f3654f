"""The files of a training: networks, cache, ranges, curves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import onnx

from calib.core.graph import analyse
from calib.core.plan import QuantizationPlan
from calib.core.quantization import QUANT_MAX
from calib.core.trtcache import render
from calib.edges.builddir import RELEASE, BuildFolder
from calib.edges.files import write_atomic
from calib.edges.models import save_model
from calib.edges.provenance import host
from calib.jobs.qat.network import FloatNetwork
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.start import StartRanges
from calib.jobs.qat.training import Trained
from calib.stages.cachefile import cache_entries
from calib.stages.qdq import QdqResult, quantize_model
from calib.types.rangetable import WeightRange
from calib.types.statistics import DynamicRange

FLOAT_NAME, QDQ_NAME, CONTROL_NAME, TRAINING = "float.onnx", "qat.qdq.onnx", "control.onnx", "training.json"


def learnt_ranges(trained: Trained, start: StartRanges) -> dict[str, float]:
    """The range of every tensor: as learnt where it was quantized, else as it was at the start."""
    scales = trained.network.scales()
    learnt = {name: float(scale) * QUANT_MAX for name, scale in scales.items() if scale.ndim == 0 and "#" not in name}
    return {name: learnt.get(name, amax) for name, amax in start.amax.items()}


def export_trained(
    network: FloatNetwork, trained: Trained, start: StartRanges, request: QatRequest
) -> tuple[QdqResult, dict[str, float]]:
    """Make the Q/DQ network of the trained weights and learnt ranges, with the writer that makes those of PTQ."""
    from calib.edges.qat.module import with_values

    amax = learnt_ranges(trained, start)
    model = with_values(network.model, trained.network.trained_values())
    return quantize_model(model, amax, request.target, weights=weight_ranges(trained)), amax


def weight_ranges(trained: Trained) -> dict[str, WeightRange]:
    """Learnt scales of weights, as the writer takes them; empty where scales follow the weights."""
    found: dict[str, WeightRange] = {}
    network = trained.network
    for pair in network.plan.weights:
        scales = network.scales().get(pair.tensor)
        if scales is not None:
            from calib.core.quantization import weight_amax

            value = network.trained_values()[pair.tensor]
            found[pair.tensor] = WeightRange(pair.tensor, scales, pair.axis, weight_amax(value, pair.axis))
    return found


def control_model(network: FloatNetwork, control: Trained) -> onnx.ModelProto:
    """The float network with the control's weights."""
    from calib.edges.qat.module import with_values

    return with_values(network.model, control.network.trained_values())


def write_outputs(
    folder: BuildFolder,
    request: QatRequest,
    network: FloatNetwork,
    start: StartRanges,
    plan: QuantizationPlan,
    trained: Trained,
    control: Trained | None,
) -> Mapping[str, Any]:
    """Write every file of the folder."""
    del plan
    quantized, amax = export_trained(network, trained, start, request)
    save_model(network.model, folder.path / FLOAT_NAME)
    save_model(quantized.model, folder.path / QDQ_NAME)
    if control is not None:
        save_model(control_model(network, control), folder.path / CONTROL_NAME)
    ranges = {name: DynamicRange(value, 0.0, 0.0) for name, value in amax.items()}
    entries, _ = cache_entries(analyse(network.model), ranges)
    cache = render(entries, request.trt_version, request.cache_algorithm).render()
    write_atomic(folder.path / RELEASE, cache)
    document = {
        "qat": {"settings": asdict(trained.settings), **trained.state.as_json()},
        "control": None if control is None else {"settings": asdict(control.settings), **control.state.as_json()},
        "start": {"source": start.source, "unmatched": list(start.unmatched)},
        "host": host(),
    }
    write_atomic(folder.path / TRAINING, json_bytes(document))
    return document


def json_bytes(document: Any) -> bytes:
    """Indented JSON with a final newline."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
