"""What a network's tensors are: activations in order, constants, element types, channel axes, derivations."""

from calib.core.graph.analysis import analyse
from calib.core.graph.constants import ConstantReader
from calib.core.graph.elements import inferred
from calib.core.graph.network import (
    FLOAT_TYPES,
    Activation,
    Attribute,
    Derivation,
    GraphTensor,
    Network,
    Node,
    Shape,
    Uncovered,
    Use,
)

__all__ = [
    "FLOAT_TYPES",
    "Activation",
    "Attribute",
    "ConstantReader",
    "Derivation",
    "GraphTensor",
    "Network",
    "Node",
    "Shape",
    "Uncovered",
    "Use",
    "analyse",
    "inferred",
]
