"""ModelOpt as the fake quantizer of a training: quantize where the placement does, and carry its ranges over to ours.

Any training loop can train what :func:`prepare` returns; ModelOpt's rounding is ours (``amax / 127``, half to even,
-128 to 127). What was trained is exported through our own writer: :func:`float_state` is the state dict of the float
network, :func:`ranges_of` the ranges by module, and :func:`calib.stages.trained.quantize_as_trained` joins them with
the float network's ONNX export.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from calib.core.formats import statedict
from calib.core.formats.quantizers import bare_name
from calib.errors import MissingLibraryError, ModelError, StatisticsError
from calib.types.rangetable import RangeTable

EXTRA = 'pip install "calib-workbench[qat,modelopt]"'
INPUT, WEIGHT = ".input_quantizer", ".weight_quantizer"
DECONVOLUTIONS = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
SETTINGS = ("_disabled", "_num_bits", "_unsigned", "_block_sizes", "_dynamic", "_bias")


def config_for(model: Any, layers: Collection[str]) -> dict[str, Any]:
    """Make ModelOpt's configuration: INT8, weights per channel, inputs per tensor, on these layers alone.

    Weights of transposed convolutions get one scale, as the placement gives them.

    Args:
        model: a ``torch.nn.Module`` before quantization.
        layers: names of modules, as :func:`calib.stages.trained.planned_layers` answers them.

    Raises:
        ModelError: a layer is none of the model's modules.
    """
    modules = dict(model.named_modules())
    strangers = sorted(set(layers) - set(modules))
    if strangers:
        raise ModelError(
            "layers to quantize",
            expected="names of the network's modules",
            got=", ".join(strangers[:5]),
            remedy="plan on the ONNX export of this very network",
        )
    entries: list[dict[str, Any]] = [{"quantizer_name": "*", "enable": False}]
    for name in sorted(layers):
        axis = None if type(modules[name]).__name__ in DECONVOLUTIONS else 0
        shown = name.replace("[", "[[]")
        entries += [
            {"quantizer_name": f"{shown}{WEIGHT}", "cfg": {"num_bits": 8, "axis": axis}, "enable": True},
            {"quantizer_name": f"{shown}{INPUT}", "cfg": {"num_bits": 8, "axis": None}, "enable": True},
        ]
    return {"quant_cfg": entries, "algorithm": "max"}


def prepare(
    model: Any,
    layers: Collection[str],
    *,
    batches: Iterable[Any] = (),
    ranges: RangeTable | None = None,
) -> Any:
    """Put ModelOpt's fake quantizers into a network, ready to be trained by any loop.

    Inputs get the given ranges; those without one, the largest magnitude over the batches. Weights get the largest
    magnitude of each channel. The answer is deterministic: same batches or ranges, same state.

    Args:
        model: a ``torch.nn.Module``; it is changed and returned, its training flag kept.
        layers: names of the modules to quantize.
        batches: float tensors ``[N, C, H, W]``, each passed to the model as its one argument.
        ranges: ranges by module (``MODULE.input_quantizer``), from a build or a checkpoint.

    Raises:
        MissingLibraryError: ModelOpt is not installed.
        ModelError: a layer is none of the model's modules, or has no quantizer in ModelOpt.
        StatisticsError: a layer's input has neither range nor batch.
    """
    quantization = require_modelopt()
    config, training = config_for(model, layers), model.training
    model.eval()
    with _quiet():
        quantized = quantization.quantize(model, config, _forward(list(batches)))
    _give(quantized, ranges)
    _check(quantized, layers)
    return quantized.train(training)


def can_quantize(model: Any, name: str) -> bool:
    """Whether ModelOpt has quantizers for a module of a network: not for one that computes in a way of its own.

    Raises:
        MissingLibraryError: ModelOpt is not installed.
    """
    require_modelopt()
    from modelopt.torch.quantization.nn import QuantModuleRegistry

    module = dict(model.named_modules()).get(name)
    return module is not None and hasattr(module, "weight") and type(module) in QuantModuleRegistry


def resume(model: Any, layers: Collection[str], state: Mapping[str, Any]) -> Any:
    """Put the quantizers into a network and load a state dict that a training of it saved, ranges included.

    Args:
        model: a ``torch.nn.Module`` before quantization.
        layers: as for :func:`prepare`.
        state: of the quantized network.

    Raises:
        MissingLibraryError: ModelOpt is not installed.
        ModelError: the state dict is of another network or of other layers.
    """
    quantization = require_modelopt()
    with _quiet():
        quantized = quantization.quantize(model, config_for(model, layers) | {"algorithm": None}, None)
    held = dict(quantized.named_modules())
    for key, value in state.items():
        if key.endswith(statedict.SUFFIX) and key.removesuffix(statedict.SUFFIX) in held:
            held[key.removesuffix(statedict.SUFFIX)].amax = value
    try:
        quantized.load_state_dict(state)
    except RuntimeError as error:
        got = str(error).splitlines()[-1].strip()[:200]
        remedy = "resume with the network, the layers and the library version that the training began with"
        raise ModelError("checkpoint", expected="the state of this network", got=got, remedy=remedy) from error
    _check(quantized, layers)
    return quantized


def ranges_of(model: Any, place: str = "ModelOpt") -> RangeTable:
    """Take the ranges out of a quantized network: those in force, by module, with the weights they belong to.

    Args:
        model: as :func:`prepare` returns it; wrappers such as DistributedDataParallel may be around it.
        place: what messages call it.

    Raises:
        FormatError: it has no quantizer with a range.
    """
    state = {key: value.detach().cpu().float().numpy() for key, value in model.state_dict().items()}
    settings = {
        bare_name(name): {key: getattr(module, key, None) for key in SETTINGS} for name, module in _quantizers(model)
    }
    arrays = {bare_name(key): value for key, value in state.items() if statedict.wanted(key)}
    return statedict.table_of(arrays, statedict.TORCH, place, settings)


def float_state(model: Any) -> dict[str, Any]:
    """Take the state dict of the float network out of a quantized one: every tensor but the quantizers'."""
    state = {bare_name(key): value for key, value in model.state_dict().items()}
    return {key: value for key, value in state.items() if "_quantizer." not in key}


def require_modelopt() -> Any:
    """Import ``modelopt.torch.quantization``.

    Raises:
        MissingLibraryError: it is not installed, or a library that it needs is not.
    """
    try:
        with _quiet():
            from modelopt.torch import quantization
    except ImportError as error:
        raise MissingLibraryError(
            "--backend modelopt", expected="NVIDIA ModelOpt and PyTorch", got=str(error), remedy=EXTRA
        ) from error
    return quantization


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence what ModelOpt says at import and conversion: optional libraries, deprecations, counts of quantizers."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        yield


def _forward(batches: list[Any]) -> Callable[[Any], None] | None:
    def run(model: Any) -> None:
        import torch

        with torch.no_grad():
            for batch in batches:
                model(batch)

    return run if batches else None


def _quantizers(model: Any) -> list[tuple[str, Any]]:
    return [(name, module) for name, module in model.named_modules() if hasattr(module, "_num_bits")]


def _give(model: Any, ranges: RangeTable | None) -> None:
    """Set the given ranges of inputs, and the ranges of weights that calibration did not reach."""
    import torch

    modules = dict(model.named_modules())
    given = {} if ranges is None else {bare_name(item.name): item for item in ranges}
    for name, quantizer in _quantizers(model):
        if quantizer._disabled:
            continue
        item = given.get(name.replace("._input", ".input"))
        if item is not None and name.endswith(INPUT):
            quantizer.amax = torch.tensor(item.exact_scale * 127, dtype=torch.float32)
        if name.endswith(WEIGHT) and quantizer.amax is None:
            weight = modules[name.removesuffix(WEIGHT)].weight.detach()
            axes = tuple(range(weight.ndim)) if quantizer.axis is None else tuple(range(1, weight.ndim))
            quantizer.amax = weight.abs().amax(axes, keepdim=quantizer.axis is not None)


def _check(model: Any, layers: Collection[str]) -> None:
    """Hold what ModelOpt did against what was asked."""
    held = {name: module for name, module in _quantizers(model) if not module._disabled}
    missing = [name for name in sorted(layers) if not {f"{name}{INPUT}", f"{name}{WEIGHT}"} <= set(held)]
    if missing:
        raise ModelError(
            "layers to quantize",
            expected="layers that ModelOpt quantizes: convolutions, transposed convolutions, linear layers",
            got=", ".join(missing[:5]),
            remedy="leave them in float, or use another backend",
        )
    unknown = [name for name, module in held.items() if module.amax is None]
    if unknown:
        raise StatisticsError(
            "layers to quantize",
            expected="a range for the input of each",
            got=f"none for {', '.join(unknown[:5])}",
            remedy="pass calibration batches, or a build whose ranges cover them (--init)",
        )
