"""The files of a training: networks, cache, ranges, curves, images, provenance."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.graph import Network
from calib.core.trtcache import render
from calib.edges.builddir import RELEASE, REPORT, TRAINING, VOUCHERS
from calib.edges.evaluation.sources import SELECTION
from calib.edges.files import write_atomic
from calib.edges.models import load_model
from calib.edges.written import Written, describe_file, json_bytes, save_described
from calib.jobs.qat.ground import Ground
from calib.jobs.qat.preparing import quantize_trained
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.start import RANGES
from calib.jobs.qat.training import Trained
from calib.stages.cachefile import Coverage, cache_entries
from calib.stages.qdq import QdqResult
from calib.types.statistics import DynamicRange

NAME = "qat"
"""Name of the variant: of its files, and in evaluations."""
FLOAT_NAME, CONTROL_NAME = "float.onnx", "control.onnx"
QDQ_NAME, TWIN_NAME, CACHE_NAME = f"{NAME}.qdq.onnx", f"{NAME}.float.onnx", f"{NAME}.cache"


def planned_names(*, control: bool) -> Iterator[str]:
    """Names of the files that a training writes, with or without a float control."""
    yield from (FLOAT_NAME, QDQ_NAME, TWIN_NAME, CACHE_NAME, RELEASE, RANGES, SELECTION, TRAINING, REPORT, *VOUCHERS)
    if control:
        yield CONTROL_NAME


@dataclass(frozen=True)
class Product:
    """What training gave, before it is written.

    Attributes:
        quantized: the Q/DQ network.
        twin: the same weights without Q/DQ.
        amax: range of every tensor.
        learnt: of these, the quantized ones.
        weights: trained weights by tensor name.
        cache: bytes of the cache.
        coverage: what the cache covers.
        control: the float network with the control's weights, or None.
    """

    quantized: QdqResult
    twin: onnx.ModelProto
    amax: Mapping[str, float]
    learnt: Mapping[str, float]
    weights: Mapping[str, Any]
    cache: bytes
    coverage: Coverage
    control: onnx.ModelProto | None


def make_product(request: QatRequest, ground: Ground, trained: Trained, control: Trained | None) -> Product:
    """Turn trained modules into networks and a cache."""
    from calib.edges.qat.module import with_values

    network, options = ground.network, ground.placement.options
    quantized, amax = quantize_trained(network.model, trained.network, ground.start.amax, request.target, options)
    cache, coverage = make_cache(network.network, amax, request.trt_version, request.cache_algorithm)
    return Product(
        quantized=quantized,
        twin=with_values(network.model, trained.network.trained_values()),
        amax=amax,
        learnt=trained.network.activation_amax(),
        weights=trained.network.trained_values(),
        cache=cache,
        coverage=coverage,
        control=None if control is None else with_values(network.model, control.network.trained_values()),
    )


def make_cache(
    network: Network, amax: Mapping[str, float], trt_version: str, cache_algorithm: str
) -> tuple[bytes, Coverage]:
    """Render the cache of ranges: its scales are those of the Q/DQ network, to the bit."""
    ranges = {name: DynamicRange(value) for name, value in amax.items()}
    entries, coverage = cache_entries(network, ranges)
    return render(entries, trt_version, cache_algorithm).render(), coverage


def ranges_of_training(network: Network, start: Mapping[str, float], product: Product) -> dict[str, Any]:
    """Describe every tensor's range at the start and after training, in the shape of a build's ``ranges.json``."""
    return {
        "schema": 1,
        "calibrators": [{"name": name, "spec": name, "parameters": {}} for name in (NAME, "start")],
        "tensors": [
            {
                "name": item.name,
                "op": item.op_type,
                "count": None,
                "quantized": item.name in product.learnt,
                "ranges": {NAME: {"amax": product.amax[item.name]}, "start": {"amax": start[item.name]}},
            }
            for item in network.activations
            if item.name in product.amax
        ],
    }


def write_networks(folder: Path, kept: Path, product: Product) -> Iterator[Written]:
    """Write the float network, the Q/DQ network, its cache, and the control.

    Args:
        folder: where.
        kept: file of the float network.
        product: what training gave.

    Raises:
        OutputError: the folder cannot be written.
    """
    write_atomic(folder / RELEASE, product.cache)
    yield describe_file(folder / RELEASE, f"the release artifact: {CACHE_NAME}, for TensorRT <= 10")
    yield from save_described(
        folder / QDQ_NAME, product.quantized.model, "trained weights and learnt ranges, with Q/DQ"
    )
    write_atomic(folder / CACHE_NAME, product.cache)
    yield describe_file(folder / CACHE_NAME, f"the learnt ranges; belongs to {TWIN_NAME}")
    yield from save_described(folder / TWIN_NAME, product.twin, "the trained weights without Q/DQ, for the cache")
    yield from _copy(kept, folder / FLOAT_NAME, "the float network that training started from")
    if product.control is not None:
        yield from save_described(folder / CONTROL_NAME, product.control, "the float network, fine-tuned alike")


def _copy(source: Path, target: Path, purpose: str) -> Iterator[Written]:
    """Copy a network with the file of its weights, where it has one; the names of both are those of the target."""
    weights = source.with_name(f"{source.name}.data")
    if weights.exists():
        yield from save_described(target, load_model(source), purpose)
    else:
        write_atomic(target, source.read_bytes())
        yield describe_file(target, purpose)


def write_records(
    folder: Path, ranges: Mapping[str, Any], training: Mapping[str, Any], images: Mapping[str, tuple[str, str]]
) -> Iterator[Written]:
    """Write ranges, curves and images.

    Args:
        folder: where.
        ranges: of :func:`ranges_of_training`.
        training: what ``training.json`` holds.
        images: sha256 and purpose by key.
    """
    write_atomic(folder / RANGES, json_bytes(ranges))
    yield describe_file(folder / RANGES, "every tensor's range, at the start and learnt")
    write_atomic(folder / TRAINING, json_bytes(training))
    yield describe_file(folder / TRAINING, "settings, curves, cost, and what changed in ranges and weights")
    lines = [
        json.dumps({"image": key, "sha256": digest, "sampler": purpose, "score": 0.0, "rank": rank})
        for rank, (key, (digest, purpose)) in enumerate(sorted(images.items()), 1)
    ]
    write_atomic(folder / SELECTION, "".join(f"{line}\n" for line in lines).encode())
    yield describe_file(folder / SELECTION, "the images trained on, one a line")
