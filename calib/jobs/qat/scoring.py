"""What a training needs of a network, seen to before anything is calibrated: scores, inputs, operators, weights."""

from __future__ import annotations

from calib.core.scoresource import ScoreSource, find_scores
from calib.edges.feeds import bind_dataset
from calib.errors import ManifestError, ModelError, UsageError
from calib.jobs.qat.backends import MODELOPT
from calib.jobs.qat.freezing import freeze_weights
from calib.jobs.qat.network import FloatNetwork
from calib.jobs.qat.request import QatRequest
from calib.jobs.qat.splits import Splits
from calib.types.gate import few
from calib.types.progress import Progress


def source_of(request: QatRequest, network: FloatNetwork, splits: Splits) -> ScoreSource:
    """Find the scores to train on.

    Raises:
        ManifestError: the manifest names no classes.
        ModelError: the network has no scores of these classes.
        UsageError: several outputs could be meant.
    """
    return find_scores(network.network, class_count(splits), request.output_name, network.place)


def class_count(splits: Splits) -> int:
    """Count the classes of the labels.

    Raises:
        ManifestError: the manifest names none.
    """
    classes = splits.train.classes
    if classes is None or not classes.names:
        raise ManifestError(
            splits.train.manifest_path, expected="classes, to train on labels", got="none",
            remedy="add classes: [NAME, …] in train-id order",
        )  # fmt: skip
    return len(classes.names)


def refuse_untrainable(request: QatRequest, network: FloatNetwork, splits: Splits, progress: Progress) -> None:
    """Refuse before calibration what would only be found after it.

    Args:
        request: what was asked for.
        network: the float network.
        splits: images.
        progress: is told of channels that no class of the manifest goes with.

    Raises:
        ModelError: no scores of these classes, an operator that cannot be trained through, a weight that is not finite.
        UsageError: the output is not clear, a pattern of ``--freeze`` names nothing, or nothing is left to train.
        ManifestError: the inputs do not fit.
    """
    from calib.edges.qat.module import OnnxModule

    source = source_of(request, network, splits)
    _tell_channels(source, network, class_count(splits), progress)
    bind_dataset(network.network, splits.train, network.place)
    module = OnnxModule(network.model, network=network.network, outputs=(source.tensor,))
    if request.backend != MODELOPT:
        freeze_weights(module, request.freeze)
    _refuse_broken(module, network.place)
    if not any(item.requires_grad for item in module.parameters()):
        _refuse_idle(request, network.place)


def _tell_channels(source: ScoreSource, network: FloatNetwork, classes: int, progress: Progress) -> None:
    shape = network.network.shapes.get(source.tensor)
    channels = None if shape is None or len(shape) <= source.class_axis else shape[source.class_axis]
    if channels is not None and channels > classes and not source.meaning.startswith("binary"):
        progress.warn(
            f"{source.tensor} of {network.place} has {channels} channels and the manifest {classes} classes: "
            f"training looks at the first {classes} alone. Was the network trained on these classes?"
        )


def _refuse_broken(module: object, place: str) -> None:
    import torch

    weights = module.weights  # type: ignore[attr-defined]
    broken = [name for name in weights.names() if not bool(torch.isfinite(weights[name]).all())]
    if broken:
        raise ModelError(
            place, expected="finite weights", got=f"NaN or infinity in {few(broken, 3)}",
            remedy="start from a network whose training did not diverge",
        )  # fmt: skip


def _refuse_idle(request: QatRequest, place: str) -> None:
    """No weight can learn: scales may, but not the control."""
    if not (request.learn_scales or request.learn_weight_scales):
        raise UsageError(
            place, expected="something to train", got="no weight that is not frozen, and fixed scales",
            remedy="freeze fewer weights (--freeze), or let the scales learn (--learn-scales)",
        )  # fmt: skip
    if request.control:
        raise UsageError(
            place, expected="weights that the control can train", got="none that is not frozen",
            remedy="pass --no-control: without weights to learn, the float network is its own control",
        )  # fmt: skip
