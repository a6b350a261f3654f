"""Traces of the parts, and what each is fed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calib.edges.feeds import FeedReader
from calib.edges.runners.loader import OrtRuntime
from calib.edges.runners.torchtrace import trace_module
from calib.jobs.diagnose.parts import Part
from calib.stages.diagnose.examine import float_part
from calib.stages.diagnose.onnxtrace import trace_onnx
from calib.stages.diagnose.trace import Trace
from calib.types.data import Dataset
from calib.types.runner import Feeds


def with_float_weights(dataset: Dataset, reference: Part, candidate: Part) -> Part:
    """Let the candidate's float part have float weights, where it stores integers only."""
    if candidate.kind != "qdq" or candidate.model is None:
        return candidate
    key = dataset.records[0].key
    feeds = [
        filled(part, FeedReader(part.dataset(dataset), part.bindings).feeds(key, None))
        for part in (reference, candidate)
    ]
    trace = trace_reference(reference, feeds[0])
    if trace is None:
        return candidate
    return replace(candidate, unquantized=float_part(trace, candidate.model, feeds[1], OrtRuntime(candidate.address)))


def filled(part: Part, feeds: Feeds) -> Feeds:
    """Repeat an image to the batch length that a network demands."""
    rows = part.rows
    return {name: np.repeat(a, rows, axis=0) if rows > 1 and len(a) == 1 else a for name, a in feeds.items()}


def trace_reference(part: Part, feeds: Feeds) -> Trace | None:
    """Trace a reference; None for what has no inside."""
    if part.kind == "torch":
        return trace_module(part.module, feeds, part.address) if hasattr(part.module, "named_modules") else None
    model = part.float_model
    return None if model is None else trace_onnx(model, feeds, OrtRuntime(part.address), part.address)
