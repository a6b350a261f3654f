"""Pairs between a layer and what fuses into it."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.follow import FUSIBLE
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.strip import dequantizes, quantizes
from calib.core.lint.subject import Subject

LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List Q/DQ pairs that stand between a layer and the activation behind it."""
    network = subject.network
    for item in subject.quantizers:
        layer = network.producer(item.node.input(0))
        if item.quantizes and layer is not None and layer.op_type in LAYERS and not layer.domain:
            behind = [
                network.nodes[use.node]
                for pair in network.consumers.get(item.node.outputs[0], ())
                if dequantizes(network.nodes[pair.node])
                for use in network.consumers.get(network.nodes[pair.node].outputs[0], ())
            ]
            fusing = [node for node in behind if node.op_type in FUSIBLE]
            alone = all(quantizes(network.nodes[use.node]) for use in network.consumers.get(layer.outputs[0], ()))
            if fusing and alone:
                yield at(item.node, f"between {layer.label} and {fusing[0].label} ({fusing[0].op_type})")


RULE = Rule(
    id="qdq-fusion",
    title="Q/DQ between a layer and the activation that would fuse into it",
    why=(
        "TensorRT fuses an activation or BatchNormalization into the layer before it if nothing stands between. A "
        "pair there makes three kernels of one, and rounds values that the activation is about to cut."
    ),
    remedy="quantize what the next layer reads, not what this one makes: the pair belongs behind the activation",
    sources=(TRT_QUANTIZED,),
    levels=levels(trt="warning"),
    check=check,
)
