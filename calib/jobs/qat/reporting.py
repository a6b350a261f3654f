"""What a training did, as its report shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calib import __version__
from calib.edges.report.filling import placement_section
from calib.edges.report.formatting import listed, plural
from calib.edges.report.model import Command, Notice, OutputFile, ProvenanceSection
from calib.edges.report.training import TrainingReport, render_training
from calib.edges.written import Written
from calib.jobs.qat.artifacts import CONTROL_NAME, FLOAT_NAME, QDQ_NAME, TWIN_NAME, Product
from calib.jobs.qat.ground import PTQ
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.training import UNLIMITED

Json = Mapping[str, Any]
COLLAPSE = 0.05
"""Loss of mIoU on held-out training images that no chance explains."""


def render_training_report(
    request: QatRequest, training: Json, product: Product, provenance: Json, files: Sequence[Written]
) -> bytes:
    """Render ``report.html``."""
    report = TrainingReport(
        document=training,
        version=__version__,
        placement=placement_section(product.quantized, product.coverage),
        notices=tuple(notices(training, product)),
        provenance=ProvenanceSection(
            _groups(request, provenance),
            tuple(OutputFile(item.name, item.size, item.purpose, item.sha256) for item in files),
            tuple(_commands(request, training)),
        ),
    )
    return render_training(report)


def notices(training: Json, product: Product) -> Iterator[Notice]:
    """What the reader must know before relying on the result."""
    start = training["start"]
    if fell(training):
        yield Notice(
            "warning",
            "the network ended below its start on the validation images",
            "Lower --lr, train longer, or let the distillation weigh more (--distill --distill-weight).",
            "curves",
        )
    if start["calibrated"]:
        names = start["calibrated"]
        yield Notice(
            "warning",
            f"{plural(len(names), 'tensor')} had no range in {start['source']} and were calibrated: {listed(names)}",
        )
    if start["unmatched"]:
        names = start["unmatched"]
        title = f"{plural(len(names), 'tensor')} of {start['source']} are not in the network: {listed(names)}"
        yield Notice("info", title)
    for finding in product.quantized.notes:
        if finding.code in {"per_tensor_fallback", "hidden_layers"}:
            yield Notice("warning", finding.text, section="placement")


def fell(training: Json) -> bool:
    """Whether the network ended below its start: at all, or, on images that choose nothing, by more than noise."""
    curve = training["qat"]["curve"]
    noise = COLLAPSE if training["data"]["validation"]["held_out"] else 0.0
    return bool(curve[-1]["miou"] < curve[0]["miou"] - noise)


def _commands(request: QatRequest, training: Json) -> Iterator[Command]:
    networks = [QDQ_NAME] + ([CONTROL_NAME] if training["control"] else [])
    ptq = f"{PTQ}/" if request.init is None else _from_folder(request.init, request.output)
    data = _from_folder(request.data, request.output)
    yield Command(
        "Accuracy, with intervals, beside the float network and PTQ",
        f"calib evaluate {FLOAT_NAME} {ptq} . --data {data} --split SPLIT -o evaluation",
        f"The folder stands for {', '.join(networks)}; take a split that was neither trained nor validated on.",
    )
    yield Command(
        "TensorRT 11: engine from the Q/DQ network",
        f"trtexec --onnx={QDQ_NAME} --saveEngine=model.engine",
        "TensorRT 10 reads it, too: --int8 --fp16.",
    )
    yield Command(
        f"TensorRT {request.trt_version}: engine from the float twin and the cache",
        f"trtexec --onnx={TWIN_NAME} --int8 --fp16 --calib=calibration.cache --saveEngine=model.engine",
        f"The cache belongs to {TWIN_NAME}, whose weights are the trained ones.",
    )


def _from_folder(given: str, folder: Path) -> str:
    """A path as it is called from inside the folder, where the commands are run; a shipped manifest's name stays."""
    path = Path(given)
    return os.path.relpath(path, folder) if path.exists() and not path.is_absolute() else given


def _groups(request: QatRequest, provenance: Json) -> dict[str, dict[str, str]]:
    asked = provenance["request"]
    settings = provenance["calibrators"][0]["parameters"]
    return {
        "Input": {
            **{f"sha256 of {name}": digest for name, digest in asked["model"].items()},
            "sha256 of the manifest": asked["manifest"],
            "network": request.model,
            "split": asked["split"],
        },
        "Training": {key.replace("_", " "): _setting(key, value) for key, value in settings.items()},
        "Versions": dict(asked["versions"]),
    }


def _setting(key: str, value: Any) -> str:
    """A setting in words: steps without a limit are told apart from a number of them."""
    return "until the time is up" if key == "steps" and value == UNLIMITED else str(value)
