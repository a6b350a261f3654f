"""Whose fake quantization a training uses: which options it allows, what it needs installed, which layers it takes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version

from calib.core.plan import PlacementOptions
from calib.core.quantization import SCALE_BITS
from calib.errors import UsageError
from calib.jobs.qat.network import FloatNetwork, Origin, is_factory
from calib.jobs.qat.request import QatRequest
from calib.stages.floatlayers import find_float_layers
from calib.stages.placement import DEFAULTS
from calib.stages.trained import place_on_modules
from calib.types.gate import few
from calib.types.progress import Progress

MODELOPT, DISTRIBUTION = "modelopt", "nvidia-modelopt"
ALL_BITS = 24


def settle_backend(request: QatRequest) -> QatRequest:
    """Fill in what the request leaves to the backend.

    Raises:
        UsageError: it asks ModelOpt for an ONNX file, or for scales that ModelOpt does not have.
    """
    if request.backend != MODELOPT:
        learns = True if request.learn_scales is None else request.learn_scales
        return replace(request, learn_scales=learns, scale_bits=request.scale_bits or SCALE_BITS)
    if not is_factory(request.model):
        raise UsageError(
            request.model,
            expected="module:factory, as --backend modelopt puts quantizers into a PyTorch module",
            got="an ONNX file",
            remedy="name the factory and pass its --weights, or use --backend calib, which trains ONNX networks",
        )
    if request.freeze:
        raise UsageError(
            f"--freeze {request.freeze[0]}",
            expected="none with --backend modelopt, where batch normalisations stay apart from the weights",
            got="--freeze",
            remedy="set requires_grad = False on parameters in the factory, or use --backend calib",
        )
    refused = {
        "--learn-scales": bool(request.learn_scales),
        "--learn-weight-scales": request.learn_weight_scales,
        f"--scale-bits {request.scale_bits}": request.scale_bits not in (None, ALL_BITS),
    }
    for flag, given in refused.items():
        if given:
            raise UsageError(
                flag,
                expected="ranges that stay as they are, with all their bits, with --backend modelopt",
                got=flag,
                remedy=f"leave {flag.split()[0]} out, or use --backend calib",
            )
    return replace(request, learn_scales=False, scale_bits=ALL_BITS)


def require_backend(request: QatRequest) -> None:
    """Refuse to begin without the backend's library.

    Raises:
        MissingLibraryError: it is not installed.
    """
    if request.backend == MODELOPT:
        from calib.edges.qat_modelopt import require_modelopt

        require_modelopt()


def backend_versions(request: QatRequest) -> dict[str, str]:
    """Versions of the backend's library, which the result depends on."""
    if request.backend != MODELOPT:
        return {}
    try:
        return {DISTRIBUTION: version(DISTRIBUTION)}
    except PackageNotFoundError:  # imported from a source tree
        return {DISTRIBUTION: "unknown"}


@dataclass(frozen=True)
class Placement:
    """Which layers are quantized.

    Attributes:
        options: placement choices, for plan and writer.
        layers: names of the modules that get quantizers; empty where the plan puts them on tensors.
        asked: labels of nodes that stay in float as asked.
    """

    options: PlacementOptions = DEFAULTS
    layers: tuple[str, ...] = ()
    asked: frozenset[str] = frozenset()

    def tell(self, progress: Progress) -> None:
        """Say what stays float: as asked, and because the backend cannot quantize it."""
        if self.asked:
            progress.note(f"in float as asked: {few(sorted(self.asked))}")
        kept = sorted(self.options.float_nodes - self.asked)
        if kept:
            progress.note(f"ModelOpt does not quantize {len(kept)} nodes that INT8 could have: {few(kept)}")


def choose_placement(
    request: QatRequest, origin: Origin, network: FloatNetwork, float_nodes: Collection[str] = ()
) -> Placement:
    """Choose what is quantized: by the placement rules, and with ModelOpt of these what it has quantizers for.

    Args:
        request: what was asked for, layers to keep in float included.
        origin: holds the factory's module.
        network: the float network.
        float_nodes: labels of nodes that the ranges' build keeps in float.

    Raises:
        UsageError: nothing would be quantized, or a pattern of layers names nothing.
    """
    own = find_float_layers(network.model, request.keep_float, request.target)
    asked = frozenset({*own.nodes, *float_nodes})
    options = replace(DEFAULTS, float_nodes=asked)
    if request.backend != MODELOPT:
        return Placement(options, asked=asked)
    from calib.edges.qat_modelopt import can_quantize

    layers, options = place_on_modules(
        network.model, lambda name: can_quantize(origin.module, name), request.target, options
    )
    if not layers:
        raise UsageError(
            f"--backend modelopt {request.model}",
            expected="a module with layers that ModelOpt quantizes: convolutions, linear layers",
            got="none among those that the placement quantizes",
            remedy="use --backend calib, which quantizes the exported graph",
        )
    return Placement(options, layers, asked)
