"""The networks under training, of either backend, and their teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from calib.core.graph import analyse
from calib.jobs.qat.backends import MODELOPT
from calib.jobs.qat.freezing import freeze_weights
from calib.jobs.qat.ground import Ground
from calib.jobs.qat.network import Origin, example_of, export_float
from calib.jobs.qat.request import QatRequest
from calib.types.data import Dataset
from calib.types.rangetable import WeightRange

if TYPE_CHECKING:
    from calib.edges.qat.module import OnnxModule


class TrainedNetwork(Protocol):
    """What a training leaves: weights and ranges by names of the float network's tensors."""

    def trained_values(self) -> Mapping[str, Any]:
        """Read the trained weights, float32 arrays."""

    def activation_amax(self) -> dict[str, float]:
        """Read the range of every quantized activation."""

    def weight_ranges(self) -> Mapping[str, WeightRange]:
        """Read the ranges of weights that shall hold instead of their largest magnitudes."""


@dataclass(frozen=True)
class Student:
    """A network to train.

    Attributes:
        network: a ``torch.nn.Module`` that answers with the tensor the loss is put on.
        finish: reads what training made; the network is on the CPU then.
    """

    network: Any
    finish: Callable[[], TrainedNetwork]


def make_student(request: QatRequest, ground: Ground, origin: Origin, dataset: Dataset, tensor: str) -> Student:
    """Make the network with fake quantization.

    Args:
        request: says whose.
        ground: network, ranges and plan.
        origin: holds the factory's module.
        dataset: tells the size of the input.
        tensor: the scores to train on.

    Raises:
        ModelError: the network cannot be trained.
    """
    if request.backend == MODELOPT:
        return _of_modelopt(request, ground, origin, dataset, tensor)
    from calib.edges.qat.module import OnnxModule

    network = OnnxModule(
        ground.model,
        ground.plan,
        network=analyse(ground.model),
        outputs=(tensor,),
        learn_scales=bool(request.learn_scales),
        learn_weight_scales=request.learn_weight_scales,
        **({} if request.scale_bits is None else {"scale_bits": request.scale_bits}),
    )
    return _of_graph(network, request)


def make_control(request: QatRequest, ground: Ground, origin: Origin, dataset: Dataset, tensor: str) -> Student:
    """Make the float network, whatever the backend; takes what :func:`make_student` takes."""
    del origin, dataset
    return _of_graph(_float_network(ground, tensor), request)


def make_teacher(ground: Ground, tensor: str) -> Any:
    """Make the float network to distil from: it is not trained."""
    from calib.edges.qat.trainer import frozen

    return frozen(_float_network(ground, tensor))


def _float_network(ground: Ground, tensor: str) -> OnnxModule:
    from calib.edges.qat.module import OnnxModule

    return OnnxModule(ground.model, network=analyse(ground.model), outputs=(tensor,))


def _of_graph(network: OnnxModule, request: QatRequest) -> Student:
    freeze_weights(network, request.freeze)
    return Student(network, lambda: network)


def _of_modelopt(request: QatRequest, ground: Ground, origin: Origin, dataset: Dataset, tensor: str) -> Student:
    from calib.edges.qat.modelopt import Export, ModelOptModule

    export = Export(
        ground.network.model,
        lambda module: export_float(replace(origin, module=module), request, dataset),
        example_of(request, dataset),
        origin.address,
    )
    network = ModelOptModule(origin.module, ground.placement.layers, ground.plan, export, tensor)
    return Student(network, network.learnt)
