"""What a state dict says of its quantizers beside their ranges, and what of it no symmetric INT8 range can carry."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from calib.types.rangetable import Remark

Settings = Mapping[str, Mapping[str, Any]]
"""Attributes by quantizer, as ModelOpt's metadata and the modules of both libraries hold them (``_num_bits``)."""

FIELDS: Mapping[str, tuple[str, str]] = {
    "_pre_quant_scale": (
        "pre_quant_scale",
        "have a _pre_quant_scale (SmoothQuant, AWQ): their ranges hold for scaled activations only",
    ),
    "_bias_value": ("asymmetric", "subtract a bias before they quantize, which TensorRT cannot"),
    "_zero_point": ("asymmetric", "have a zero point, which TensorRT rejects"),
    "zero_point": ("asymmetric", "have a zero point, which TensorRT rejects"),
}
"""Fields of a quantizer that change what its range means, with the remark's code and text."""
HARMLESS = frozenset({"_amax", "_amax_pre", "_amax_post"})
TEXTS: Mapping[str, str] = {
    "disabled": "are disabled in the checkpoint; their ranges are left out",
    "not_int8": "do not quantize to INT8 (4 bits, FP8, blocks); they carry no INT8 range and are left out",
    "unsigned": "quantize 0..amax in 255 steps; INT8 is signed and a bit coarser",
    "asymmetric": "subtract a bias before they quantize, which TensorRT cannot",
    "uncalibrated": "are enabled but were never calibrated: no range, and their layers stay in float",
    "dynamic": "take their range from every input as it comes; a TensorRT range is fixed, so they carry none",
}
QUIET = frozenset({"disabled", "uncalibrated", "dynamic"})


WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def bare_name(name: str) -> str:
    """Take what wrappers add off a module's name: DataParallel's and DDP's ``module.``, torch.compile's, FSDP's."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    parts = name.split(".")
    return ".".join(part for part in parts if part not in WRAPPERS)


def foreign_fields(state: Iterable[str]) -> Iterator[Remark]:
    """Remark on the fields of quantizers, ranges apart, that a symmetric INT8 range cannot carry."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for key in state:
        name, _, field = key.rpartition(".")
        if not name.endswith("quantizer") or field in HARMLESS:
            continue
        known = FIELDS.get(field, ("foreign_field", f"hold {field}, which no INT8 range can carry"))
        found.setdefault(known, {})[name] = None
    yield from (Remark(code, tuple(names), text, blocks=True) for (code, text), names in found.items())


def kept_by(setting: Mapping[str, Any] | None) -> bool:
    """Whether a quantizer with these attributes has an INT8 range that is in force."""
    return setting is None or not (setting.get("_disabled") is True or _not_int8(setting))


def settings_remarks(settings: Settings, stated: Collection[str]) -> Iterator[Remark]:
    """Remark on what the attributes of quantizers say.

    Args:
        settings: attributes by quantizer.
        stated: the quantizers that have a range in the file.
    """
    found: dict[str, list[str]] = {}
    for name, setting in settings.items():
        code = _trouble(setting, stated=name in stated)
        if code:
            found.setdefault(code, []).append(name)
    for code, names in found.items():
        yield Remark(code, tuple(names), TEXTS[code], blocks=code not in QUIET)


def _trouble(setting: Mapping[str, Any], *, stated: bool) -> str:
    """Name what is odd about a quantizer, the gravest first; nothing where it is disabled and has no range anyway."""
    if setting.get("_disabled") is True:
        return "disabled" if stated else ""
    checks = (
        ("not_int8", _not_int8(setting)),
        ("asymmetric", setting.get("_bias") is not None),
        ("dynamic", setting.get("_dynamic") is True and not stated),
        ("uncalibrated", not stated),
        ("unsigned", setting.get("_unsigned") is True),
    )
    return next((code for code, holds in checks if holds), "")


def _not_int8(setting: Mapping[str, Any]) -> bool:
    return setting.get("_num_bits", 8) != 8 or bool(setting.get("_block_sizes"))
