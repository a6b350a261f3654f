"""From a table of ranges to what a target can carry: what is dropped, floored or derived, and when to refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from calib.core.formats import ort_table, trt_cache
from calib.core.formats.registry import FORMATS, QDQ
from calib.core.graph import Network
from calib.core.printable import counted, quoted
from calib.core.quantization import DEAD_AMAX, QUANT_MAX, SCALE_FLOOR
from calib.core.rangefaults import REMARK_REMEDIES, Faults, find_faults, input_ranges, worthless
from calib.errors import FormatError
from calib.stages.rangecoverage import EntryCoverage, cover, listed
from calib.types.rangetable import RangeTable, TensorRange

NEEDS_FLOOR = frozenset({trt_cache.KEY, ort_table.FLATBUFFERS, ort_table.TEXT, QDQ})
"""Targets whose reader refuses a range of 0."""
CALIBRATE_AGAIN = (
    "calibrate again with `calib build`: batches must be float32 (numpy's arithmetic makes float64; "
    ".astype(np.float32) undoes it), contiguous, and preprocessed as for inference"
)
PARTIAL = "calibrate again, or pass --partial to convert without them"
ACCEPT = "or pass --partial to accept it"


@dataclass(frozen=True)
class Refusal:
    """Why a table cannot be converted as it is.

    Attributes:
        text: what would be lost or invented.
        remedy: what to do.
        final: whether ``--partial`` does not help.
    """

    text: str
    remedy: str
    final: bool = False


@dataclass(frozen=True)
class Prepared:
    """What a target will be written from.

    Attributes:
        table: usable ranges only, in network order where a network is given.
        coverage: how the source fits the network; None without network.
        dropped: ranges left out because they are wrong.
        dead: ranges of 0; where the target cannot carry those, they became ``DEAD_AMAX``.
        floored: ranges too small for a float32 scale of use, raised to the floor.
        derived: tensors whose range was taken from others' (:class:`EntryCoverage`).
        refusals: what speaks against it.
    """

    table: RangeTable
    coverage: EntryCoverage | None
    dropped: tuple[str, ...]
    dead: tuple[str, ...]
    floored: tuple[str, ...]
    derived: tuple[str, ...]
    refusals: tuple[Refusal, ...]

    def require(self, *, partial: bool) -> None:
        """Stop unless everything is carried, or the user accepts that it is not.

        Raises:
            FormatError: what would be lost, all of it in one message.
        """
        holding = [item for item in self.refusals if item.final or not partial]
        if holding:
            final = [item for item in holding if item.final]
            raise FormatError(
                self.table.place,
                expected="ranges that can be carried over without loss",
                got="; ".join(item.text for item in holding),
                remedy=(final or holding)[0].remedy,
            )


def prepare(table: RangeTable, target: str, network: Network | None, lost: tuple[str, ...] = ()) -> Prepared:
    """Lay a table out for a target.

    Args:
        table: names tensors, or modules where both source and target do.
        target: key of the format to write.
        network: the float network, where it is at hand.
        lost: names that could not be translated between modules and tensors.
    """
    faults = find_faults(table)
    coverage = cover(table, network) if network is not None and table.naming == "tensor" else None
    kept = [item for item in table if item.name not in faults.unusable]
    usable = table.with_ranges(kept)
    derived = cover(usable, network).derived if coverage is not None and network is not None else {}
    whole = {**usable.ranges, **derived}
    floors = target in NEEDS_FLOOR
    return Prepared(
        table=with_floors(usable.with_ranges(_ordered(whole, network)), target),
        coverage=coverage,
        dropped=tuple(item.name for item in table if item.name in faults.unusable),
        dead=faults.dead,
        floored=tuple(item.name for item in whole.values() if floors and _too_small(item)),
        derived=tuple(derived),
        refusals=tuple(_refusals(table, target, faults, coverage, network, lost)),
    )


def with_floors(table: RangeTable, target: str) -> RangeTable:
    """Raise ranges of 0 and scales too small for float32 to what the target's reader takes."""
    return table.with_ranges(_floored(item) for item in table) if target in NEEDS_FLOOR else table


def _ordered(ranges: Mapping[str, TensorRange], network: Network | None) -> list[TensorRange]:
    """Network order, then what the network does not have in file order."""
    names = [] if network is None else [item.name for item in network.activations if item.name in ranges]
    return [ranges[name] for name in dict.fromkeys((*names, *ranges))]


def _too_small(item: TensorRange) -> bool:
    return 0 < item.exact_scale < SCALE_FLOOR["float32"] or (item.amax > 0 and item.exact_scale == 0)


def _floored(item: TensorRange) -> TensorRange:
    if item.amax == 0:
        return TensorRange(item.name, DEAD_AMAX)
    if _too_small(item):
        return TensorRange.of_scale(item.name, SCALE_FLOOR["float32"])
    return item


def _refusals(
    table: RangeTable,
    target: str,
    faults: Faults,
    coverage: EntryCoverage | None,
    network: Network | None,
    lost: tuple[str, ...],
) -> Iterator[Refusal]:
    if not table.ranges and not table.weights:
        yield Refusal("no range at all", "calibrate again with `calib build`", final=True)
        return
    yield from _worthless(table, network)
    yield from _misfit(coverage, target)
    for names, what in (
        (faults.nonfinite, "infinite or NaN"),
        (faults.implausible, "beyond 1e30, as no activation is"),
        (faults.minute, "next to nothing, as if digits were missing"),
        (faults.negative, "negative"),
    ):
        if names:
            yield Refusal(f"{counted(len(names), 'range is', 'ranges are')} {what} ({listed(names)})", PARTIAL)
    if lost:
        remedy = "pass the network that the state dict belongs to, or --partial to convert without them"
        subject = counted(len(lost), "quantizer has", "quantizers have")
        yield Refusal(f"{subject} no tensor in the network ({listed(lost)})", remedy)
    clipped = clipped_weights(table) if target != QDQ and FORMATS[target].naming == "tensor" else ()
    if clipped:
        subject = counted(len(clipped), "weight has", "weights have")
        text = f"{subject} ranges other than the largest magnitudes ({listed(clipped)})"
        yield Refusal(text, "TensorRT computes weight ranges itself; pass --partial to accept its own")
    for remark in table.remarks:
        if remark.blocks:
            remedy = REMARK_REMEDIES.get(remark.code, "quantize again for TensorRT")
            yield Refusal(f"{remark.sentence} ({listed(remark.names)})", f"{remedy}, {ACCEPT}")


def _worthless(table: RangeTable, network: Network | None) -> Iterator[Refusal]:
    inputs = None if network is None else [item.name for item in network.inputs]
    ranges = input_ranges(table, inputs) if table.naming == "tensor" else ()
    for name, text in worthless(ranges).items():
        amax = table.ranges[name].amax
        yield Refusal(
            f"input {quoted(name)} has amax {amax:.4g}: {text}; no range behind it is real", CALIBRATE_AGAIN, final=True
        )


def _misfit(coverage: EntryCoverage | None, target: str) -> Iterator[Refusal]:
    if coverage is None:
        return
    if not coverage.matched or coverage.other_network:
        ours = counted(len(coverage.matched), "tensor of the network has", "tensors of the network have")
        others = counted(len(coverage.foreign), "range is", "ranges are")
        remedy = "pass the network that was calibrated, or carry the names over with `calib cache rename`"
        text = f"{ours} a range, {others} of others ({listed(coverage.foreign)}): another network or export"
        yield Refusal(text, remedy, final=True)
    elif coverage.foreign and target == QDQ:
        subject = counted(len(coverage.foreign), "range is of a tensor", "ranges are of tensors")
        text = f"{subject} the network does not have ({listed(coverage.foreign)})"
        yield Refusal(text, "pass the export that was calibrated, or --partial to convert without them")


def clipped_weights(table: RangeTable) -> tuple[str, ...]:
    """Name the weights whose ranges are not their largest magnitudes: only Q/DQ and state dicts can carry those."""
    return tuple(item.name for item in table.weights if item.follows_weight is False)


def amax_of(table: RangeTable) -> dict[str, float]:
    """Answer amax by tensor such that ``amax / 127`` is the exact scale."""
    return {item.name: item.amax if item.scale is None else item.scale * QUANT_MAX for item in table}
