"""Accuracy from a stored evaluation, which must be of these very networks, or from a fresh one."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.core.gate.accuracy import (
    evaluation_problems,
    find_measured,
    is_evaluation,
    judge_measured,
    network_digest,
)
from calib.core.maxdrop import Limit, Verdict
from calib.edges.builddir import EVALUATION
from calib.edges.files import sha256_file
from calib.errors import FormatError, UsageError
from calib.jobs.verify.request import VerifyRequest
from calib.jobs.verify.signatures import evaluation_file
from calib.jobs.verify.subject import Subject
from calib.types.gate import Check, few
from calib.types.progress import Progress

EVALUATE = "run `calib evaluate MODEL DIR --data … --split … -o DIR/evaluation`, or verify with --fresh --data …"


def check_accuracy(
    subject: Subject,
    request: VerifyRequest,
    limits: Sequence[Limit],
    signed: Mapping[str, str],
    progress: Progress,
) -> list[Check]:
    """Judge the released variant by the gate's limits.

    Args:
        subject: the folder.
        request: where the evaluation is, or that a fresh one is wanted.
        limits: none leaves accuracy unchecked.
        signed: sha256 of the files that a verified signature covers.
        progress: of a fresh evaluation.

    Raises:
        UsageError: an unknown variant, class or slice; or a fresh evaluation without data.
        FormatError: the file named is no evaluation.
    """
    if not limits:
        return [Check("accuracy", "skip", "give --max-drop to check it")]
    variant = _variant(subject, request)
    if request.fresh:
        return _judged(subject, request, variant, limits, _evaluate(subject, request, variant, progress))
    file = request.evaluation or evaluation_file(subject.folder)
    if file is None:
        return [Check("accuracy", "fail", "no stored evaluation to judge by", EVALUATE)]
    document = _read(file)
    if request.key is not None and signed.get(EVALUATION) != sha256_file(file):
        detail = f"{file.name} is not covered by the signature"
        return [Check("accuracy", "fail", detail, "evaluate first, then sign: `calib sign` covers evaluation.json")]
    return _judged(subject, request, variant, limits, document)


def _variant(subject: Subject, request: VerifyRequest) -> str:
    if request.variant in (None, *subject.labels):
        return request.variant or subject.labels[0]
    raise UsageError(
        f"--variant {request.variant}",
        expected="one of " + ", ".join(subject.labels),
        got=repr(request.variant),
        remedy="name a calibrator of this build, or leave it out for the release artifact's",
    )


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = json.loads(file.read_bytes())
    except OSError as error:
        raise UsageError(
            f"--evaluation {file}", expected="a readable file", got=str(error.strerror).lower(), remedy=EVALUATE
        ) from error
    except (ValueError, RecursionError):
        document = None
    if not is_evaluation(document):
        raise FormatError(str(file), expected="an evaluation.json of schema 1", got="something else", remedy=EVALUATE)
    found: Mapping[str, Any] = document
    return found


def _judged(
    subject: Subject, request: VerifyRequest, variant: str, limits: Sequence[Limit], document: Mapping[str, Any]
) -> list[Check]:
    problem = _calibration_split(subject, document)
    if problem:
        return [Check("accuracy", "fail", problem, "evaluate on images that were not calibrated on")]
    measured = find_measured(document, network_digest(subject.digests), _candidate(subject, variant))
    if isinstance(measured, str):
        return [Check("accuracy", "fail", f"the evaluation is of something else: {measured}", EVALUATE)]
    torn = evaluation_problems(measured)
    if torn:
        return [Check("accuracy", "fail", f"the evaluation contradicts itself: {few(torn, 2)}", EVALUATE)]
    verdicts = judge_measured(measured, limits, request.gate_by)
    return [_check(variant, verdict) for verdict in verdicts]


def _calibration_split(subject: Subject, document: Mapping[str, Any]) -> str:
    data, asked = document["data"], subject.request
    if data.get("manifest_sha256") == asked["manifest"] and data.get("split") == asked["split"]:
        return f"measured on split {asked['split']}, which was calibrated on"
    return ""


def _candidate(subject: Subject, variant: str) -> str:
    outputs, name = subject.provenance["outputs"], f"{variant}.qdq.onnx"
    return network_digest({key: outputs[key] for key in (name, f"{name}.data") if key in outputs})


def _check(variant: str, verdict: Verdict) -> Check:
    lost = "unknown" if verdict.drop is None else f"{verdict.drop:.2f} points lost"
    interval = "" if verdict.ci95 is None else f" [{verdict.ci95[0]:.2f}, {verdict.ci95[1]:.2f}]"
    detail = f"{variant}: {lost}{interval}" + (f"; {verdict.reason}" if verdict.reason else "")
    if verdict.passed:
        return Check(f"accuracy {verdict.limit}", "pass", detail)
    remedy = "see the evaluation's report; try other images, another calibrator, or float layers"
    return Check(f"accuracy {verdict.limit}", "fail", detail, remedy)


def _evaluate(subject: Subject, request: VerifyRequest, variant: str, progress: Progress) -> Mapping[str, Any]:
    """Evaluate the float network and the variant's Q/DQ network now."""
    from calib.jobs.evaluate import EvaluateRequest, run_evaluation

    split = request.evaluation_split or subject.evaluation_split
    if request.data is None or split is None:
        raise UsageError(
            "--fresh",
            expected="--data, and a split to evaluate on",
            got="no --data" if request.data is None else "no --evaluation-split",
            remedy="give both; the labels of that split are what accuracy is measured by",
        )
    with tempfile.TemporaryDirectory(prefix="calib-verify-") as output:
        asked = EvaluateRequest(
            models=[str(subject.folder / f"{variant}.qdq.onnx")],
            reference=str(request.model),
            data=request.data,
            output=Path(output),
            split=split,
            root=request.root,
            preprocess=request.preprocess,
            workers=request.workers,
            pictures=0,
        )
        return run_evaluation(asked, progress).document
