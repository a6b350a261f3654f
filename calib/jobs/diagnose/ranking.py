"""After a diagnosis: which of the candidate's quantizers cost what, each alone on."""

from __future__ import annotations

from calib.errors import UsageError
from calib.jobs.diagnose.request import DiagnoseRequest
from calib.jobs.diagnose.run import Diagnosis
from calib.jobs.sensitivity import Sensitivity, SensitivityRequest, measure_sensitivity
from calib.types.progress import Progress

FOLDER = "sensitivity"
"""Inside the folder of the diagnosis."""


def rank_quantizers(request: DiagnoseRequest, done: Diagnosis, progress: Progress) -> Sensitivity:
    """Rank the quantizers of the network that was diagnosed, on as many images of the same split.

    Raises:
        UsageError: the candidate holds no quantizers.
        CalibError: it cannot be measured.
    """
    candidate = done.document["parts"]["candidate"]
    if candidate["kind"] != "qdq":
        raise UsageError(
            "--sensitivity",
            expected="a candidate with Q/DQ pairs: a Q/DQ ONNX file or a build folder",
            got=f"{candidate['address']}, which has none",
            remedy=f"leave it out; the diagnosis itself is in {done.folder}",
        )
    return measure_sensitivity(
        SensitivityRequest(
            network=candidate["address"],
            data=request.data,
            output=request.output / FOLDER,
            split=request.split,
            num_images=request.num_images,
            output_name=request.output_name,
            seed=request.seed,
            root=request.root,
            preprocess=request.candidate_preprocess or request.preprocess,
            workers=request.workers,
            provider=request.provider,
        ),
        progress,
    )
