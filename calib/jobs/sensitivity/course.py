"""A network made ready for its race: taken apart, cut for the size it runs at, loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import onnx

from calib.core.graph import Network
from calib.core.scoremap import OutputReading, choose_output, output_makers, with_threshold
from calib.core.sensitivity.relay import Relay, all_shapes, unit_macs
from calib.core.sensitivity.units import Subject, find_units, switched, unique_names
from calib.core.sensitivity.work import Shapes, macs
from calib.edges.feeds import FeedReader
from calib.edges.runners.session import Session, as_array
from calib.errors import ModelError
from calib.jobs.sensitivity.images import Images
from calib.jobs.sensitivity.request import SensitivityRequest
from calib.jobs.sensitivity.subject import Quantized
from calib.stages.batches import batch_length
from calib.stages.evaluate import Scene, filled
from calib.stages.inputs import InputBinding, bind_inputs
from calib.stages.sensitivity import RelayRunner
from calib.stages.sensitivity_scoring import Networks, UnitScorer
from calib.types.data import Dataset
from calib.types.runner import Feeds


@dataclass(frozen=True)
class Course:
    """A network ready for its race.

    Attributes:
        subject: base network and units, their names unique.
        reading: the output that is scored.
        classes: names of the classes; numbers where the manifest has none.
        relay: the network in legs.
        macs: multiply-accumulates of each unit.
        all_macs: of the whole network.
        scorer: scores images.
    """

    subject: Subject
    reading: OutputReading
    classes: tuple[str, ...]
    relay: Relay
    macs: Sequence[int]
    all_macs: int
    scorer: UnitScorer


def prepare(request: SensitivityRequest, quantized: Quantized, images: Images) -> Course:
    """Take the network apart, and cut it for the size of the first image.

    Raises:
        ModelError: it has no units, or its output is no class map.
        UsageError: an output has to be named, or an input is left without source.
    """
    found = find_units(quantized.model, request.mode, request.unit)
    subject = Subject(found.model, found.network, unique_names(found.units), found.stored)
    network = subject.network
    bindings = _bind(network, images.dataset, quantized.path)
    rows, _ = batch_length(bindings, 1)
    reader = FeedReader(images.dataset, bindings)
    first = filled(reader.load(images.keys[0]), rows)
    shapes = all_shapes(subject, {name: array.shape for name, array in first.items()})
    classes = _classes(images.dataset, network, shapes, request.output_name)
    reading = choose_output(network.outputs, output_makers(network), len(classes), request.output_name, quantized.path)
    reading = with_threshold(reading, request.threshold)
    relay = Relay(subject, reading.name, shapes)
    _require_units(relay, reading, quantized.path)
    load = partial(_load, place=quantized.path, request=request)
    networks = Networks(RelayRunner(relay, load), _together(subject, relay, load), as_array)
    scorer = _scorer(networks, reading, len(classes), images, reader, rows)
    work = sum(macs(node, shapes) for node in network.nodes)
    return Course(subject, reading, classes, relay, unit_macs(subject, shapes), work, scorer)


def _bind(network: Network, dataset: Dataset, place: str) -> tuple[InputBinding, ...]:
    names = {tensor.name for tensor in network.inputs}
    own = {name: source for name, source in dataset.inputs.items() if name in names}
    files = {name for record in dataset.records for name in record.inputs}
    return bind_inputs(network, dataset.preprocess, own, place, files)


def _classes(dataset: Dataset, network: Network, shapes: Shapes, wanted: str | None) -> tuple[str, ...]:
    """Classes of the manifest; without any, as many numbers as the output that could be a class map has channels."""
    if dataset.classes is not None and dataset.classes.names:
        return dataset.classes.names
    named = [tensor.name for tensor in network.outputs if wanted in (None, tensor.name)]
    for shape in (shapes.get(name, ()) for name in named):
        if len(shape) == 4:
            return tuple(map(str, range(max(2, min(shape[1], shape[3])))))
    return ("0", "1")


def _require_units(relay: Relay, reading: OutputReading, place: str) -> None:
    if not relay.reachable:
        raise ModelError(
            f"output {reading.name!r} of {place}", expected="quantizers before it", got="none",
            remedy="name another output with --output-name",
        )  # fmt: skip


def _load(model: onnx.ModelProto, place: str, request: SensitivityRequest) -> Session:
    return Session(model, place, request.provider, fuse_quantizers=False, memory="shared")


def _together(subject: Subject, relay: Relay, load: Callable[[onnx.ModelProto], Session]) -> Callable[[Feeds], Any]:
    """The network with every unit switched, from inputs to the output that is scored."""
    whole = switched(subject, [subject.units[number] for number in relay.reachable])
    del whole.graph.output[:]
    whole.graph.output.append(onnx.ValueInfoProto(name=relay.output))
    session = load(whole)

    def run(feeds: Feeds) -> Any:
        return session.run(feeds, {})[relay.output]

    return run


def _scorer(
    networks: Networks, reading: OutputReading, classes: int, images: Images, reader: FeedReader, rows: int
) -> UnitScorer:
    preprocess = images.dataset.preprocess
    if preprocess is None:
        raise AssertionError("preprocessing is required before networks are prepared")

    def feed(scene: Scene) -> Feeds:
        return reader.feeds(scene.key, scene.pixels)

    return UnitScorer(networks, reading, classes, preprocess, feed, rows, int(images.table.thresholds["dark_luma"]))
