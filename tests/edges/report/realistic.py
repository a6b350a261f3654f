"""A build report as a real run would fill it: 240 tensors of common shapes and 100 drawn street scenes."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.edges.report.model import (
    AmountSection,
    BuildReport,
    Command,
    ConcatLoss,
    DeadChannels,
    Decision,
    Distribution,
    ImagesSection,
    Notice,
    OutputFile,
    PlacementSection,
    ProvenanceSection,
    RangeCell,
    Subject,
    TensorRow,
    Thumbnail,
)
from calib.edges.report.thumbnails import thumbnail_jpeg

CALIBRATORS = ("entropy", "minmax", "percentile", "mse", "per-channel")
CLASSES = (
    "Sky",
    "Building",
    "Pole",
    "Road",
    "Pavement",
    "Tree",
    "SignSymbol",
    "Fence",
    "Car",
    "Pedestrian",
    "Bicyclist",
)
CLASS_SHARES = (0.17, 0.24, 0.01, 0.29, 0.08, 0.1, 0.012, 0.015, 0.06, 0.007, 0.003)


def draw_scene(rng: np.random.Generator, dusk: bool) -> NDArray[np.uint8]:
    """Draw a street with sky, houses, road, cars and poles."""
    light = rng.uniform(0.22, 0.4) if dusk else rng.uniform(0.85, 1.0)
    image = np.zeros((240, 320, 3), np.float32)
    horizon = int(rng.integers(95, 125))
    top, low = np.array([110, 160, 215]), np.array([220, 215, 200])
    image[:horizon] = np.linspace(top, low, horizon)[:, None]
    image[horizon:] = np.array([96, 98, 104])
    x = 0
    while x < 320:
        width, height = int(rng.integers(28, 70)), int(rng.integers(30, horizon - 10))
        colour = rng.uniform(90, 190, 3).tolist()
        cv2.rectangle(image, (x, horizon - height), (x + width, horizon + 4), colour, -1)
        x += width
    cv2.fillPoly(image, [np.array([[130, horizon], [185, horizon], [330, 240], [-10, 240]])], (84, 86, 92))
    for step in range(6):
        y = horizon + 8 + step * step * 4
        cv2.rectangle(image, (157, y), (160, y + 3 + step * 2), (215, 215, 205), -1)
    for _ in range(int(rng.integers(1, 4))):
        cx, cy = int(rng.integers(30, 280)), int(rng.integers(horizon + 5, 200))
        size = max(6, (cy - horizon) // 3 + 6)
        cv2.rectangle(image, (cx, cy), (cx + size * 2, cy + size), rng.uniform(30, 220, 3).tolist(), -1)
        cv2.circle(image, (cx + size // 2, cy + size), max(2, size // 4), (20, 20, 20), -1)
        cv2.circle(image, (cx + size * 3 // 2, cy + size), max(2, size // 4), (20, 20, 20), -1)
    for _ in range(int(rng.integers(1, 5))):
        px = int(rng.integers(0, 320))
        cv2.line(image, (px, horizon - 50), (px, horizon + 30), (70, 70, 74), 2)
    noisy = image * light + rng.normal(0, 4, image.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def draw_values(rng: np.random.Generator, kind: str, n: int = 60_000) -> NDArray[np.float64]:
    """Draw activations of one shape."""
    scale = float(np.exp(rng.normal(0.3, 0.7)))
    if kind == "laplace":
        return rng.laplace(0, scale, n)
    if kind == "normal":
        return rng.normal(0, scale, n)
    if kind == "relu":
        return np.maximum(rng.normal(-0.3 * scale, scale, n), 0)
    if kind == "relu6":
        return np.clip(rng.normal(1, 2 * scale, n), 0, 6)
    if kind == "sigmoid":
        return 1 / (1 + np.exp(-rng.normal(0, 2, n)))
    return np.append(rng.laplace(0, scale / 3, n - 3), [30 * scale, -22 * scale, 26 * scale])


def histogram_of(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Count magnitudes in 2048 or fewer bins of a power-of-two width."""
    amax = float(np.abs(values).max())
    exponent = math.ceil(math.log2(amax / 2048)) if amax else 0
    index = np.floor(np.abs(values) / 2.0**exponent).astype(np.int64)
    return np.bincount(index).astype(np.int64), exponent


def clipped(bins: NDArray[np.int64], exponent: int, amax: float) -> float:
    """Share of values in bins beyond the one that holds ``amax``."""
    first = math.floor(amax / 2.0**exponent) + 1
    return float(bins[first:].sum()) / float(bins.sum())


def ranges_of(values: NDArray[np.float64], bins: NDArray[np.int64], exponent: int) -> dict[str, RangeCell]:
    """Plausible thresholds: quantiles of the magnitudes, and the full range."""
    size = np.abs(values)
    amaxes = {
        "entropy": float(np.quantile(size, 0.9993)),
        "minmax": float(size.max()),
        "percentile": float(np.quantile(size, 0.9999)),
        "mse": float(np.quantile(size, 0.9997)),
        "per-channel": float(size.max()) * 0.55,
    }
    return {name: RangeCell(amax, clipped(bins, exponent, amax)) for name, amax in amaxes.items()}


def tensor(rng: np.random.Generator, name: str, op: str, kind: str, flags: tuple[str, ...] = ()) -> TensorRow:
    """Make one row."""
    values = draw_values(rng, kind)
    bins, exponent = histogram_of(values)
    return TensorRow(
        name,
        op,
        values.size * 100,
        float(values.min()),
        float(values.max()),
        bins * 100,
        exponent,
        ranges_of(values, bins, exponent),
        flags,
    )


def special_rows() -> list[TensorRow]:
    """Dead, never observed and derived tensors."""
    floor = dict.fromkeys(CALIBRATORS, RangeCell(127 * 2.0**-24, 0.0))
    empty = np.zeros(0, np.int64)
    return [
        TensorRow(
            "/aspp/convs.4/Relu_output_0", "Relu", 92_160, 0.0, 0.0, np.array([92_160]), 0, floor, ("dead", "floored")
        ),
        TensorRow("/aux/Sigmoid_output_0", "Sigmoid", 0, math.inf, -math.inf, empty, 0, {}, ("never observed",)),
    ]


def realistic_tensors(n: int = 240, seed: int = 3) -> tuple[TensorRow, ...]:
    """Rows in network order with the names PyTorch's exporter gives."""
    rng = np.random.default_rng(seed)
    kinds = ("laplace", "relu", "normal", "relu6", "relu", "normal", "outlier", "sigmoid")
    ops = {"laplace": "Conv", "relu": "Relu", "normal": "Add", "relu6": "Clip", "outlier": "Mul", "sigmoid": "Sigmoid"}
    rows = [tensor(rng, "image", "input", "normal")]
    for index in range(n - 3):
        kind = kinds[int(rng.integers(len(kinds)))]
        derived = ("derived",) if kind == "relu6" and index % 3 == 0 else ()
        name = f"/encoder/features.{index // 9}/block.{index % 9}/{ops[kind]}_output_0"
        rows.append(tensor(rng, name, ops[kind], kind, derived))
    rows[60:60] = special_rows()
    return tuple(rows)


def realistic_images(n: int = 100, seed: int = 5) -> ImagesSection:
    """Thumbnails, and distributions enriched in dark frames."""
    rng = np.random.default_rng(seed)
    thumbs = []
    for rank in range(1, n + 1):
        dusk = rank <= n // 2
        pixels = draw_scene(rng, dusk)
        scores = {"luma": float(pixels.mean()) / 255, "small": float(rng.integers(0, 30))}
        thumbs.append(
            Thumbnail(
                f"images/train/{'0001TP' if dusk else '0016E5'}_{rank:05d}.jpg",
                thumbnail_jpeg(pixels),
                rank,
                "dark-regions" if dusk else "random",
                float(rng.uniform(0, 1)),
                scores,
            )
        )
    edges = tuple(np.linspace(0, 1, 21).tolist())
    centres = (np.array(edges[1:]) + np.array(edges[:-1])) / 2
    day, dark = (np.exp(-((centres - m) ** 2) / (2 * s * s)) for m, s in ((0.48, 0.1), (0.16, 0.06)))
    areas = np.exp(-((np.arange(18) - 8) ** 2) / 18)
    sides = tuple(round(2 ** (power / 2), 3) for power in range(2, 21))
    shares = np.array(CLASS_SHARES)
    factor = np.array([0.8, 0.95, 1.4, 0.98, 1.0, 1.0, 1.7, 1.0, 1.05, 2.1, 1.9])
    object_unit = "side of a square of the same area, pixels of network input"
    return ImagesSection(
        (
            Distribution(
                "Light: mean luma", tuple(day * 5 + dark), tuple(day * 2 + dark * 2.2), edges, (), "luma, 0..1"
            ),
            Distribution("Light: pixels", tuple(day * 3 + dark), tuple(day * 2 + dark), edges, (), "luma, 0..1"),
            Distribution(
                "Scale: objects", tuple(areas), tuple(areas * np.linspace(2.4, 0.7, 18)), sides, (), object_unit
            ),
            Distribution("Classes: pixels", tuple(shares), tuple(shares * factor), (), CLASSES, ""),
        ),
        tuple(thumbs),
        (
            "dark-regions found 124 of 367 images with mean luma under 0.25; 50 were asked for.",
            "Dropped 3 near-duplicates (perceptual hash within 4 bits).",
        ),
    )


def realistic_placement(tensors: int = 240) -> PlacementSection:
    """Decisions of a DeepLab-like network."""
    gate = "squeeze-and-excitation gate: one position per image, nothing to gain and much to lose"
    decisions = [Decision(f"/encoder/features.{index // 4}/Conv_{index}", "Conv", "int8") for index in range(74)]
    decisions += [Decision(f"/encoder/features.{index}/Relu", "Relu", "fused") for index in range(52)]
    decisions += [Decision(f"/decoder/Reshape_{index}", "Reshape", "follows") for index in range(6)]
    decisions += [Decision(f"/encoder/se.{index}/Mul", "Mul", "float", gate) for index in range(11)]
    decisions += [Decision(f"/encoder/se.{index}/Pool", "GlobalAveragePool", "float", gate) for index in range(11)]
    decisions += [
        Decision(f"/decoder/up.{index}/Resize", "Resize", "float", "interpolation runs in float", f"/up.{index}/out")
        for index in range(4)
    ]
    decisions.append(Decision("/head/Conv", "Conv", "float", "last layer before a graph output"))
    decisions.append(Decision("/head/Softmax", "Softmax", "float", "exponentials need more than 8 bits"))
    return PlacementSection(
        tuple(decisions),
        "trt10",
        (11, 13),
        (
            ConcatLoss("/decoder/Concat_2", "/decoder/up.2/Relu_output_0", 2.8, 14.4, 2.362),
            ConcatLoss("/decoder/Concat_2", "/aspp/convs.4/Relu_output_0", 0.0, 14.4, math.inf),
        ),
        (DeadChannels("encoder.features.7.conv.weight", (3, 17, 80)), DeadChannels("aspp.convs.4.weight", (255,))),
        tensors - 2,
        {"/aux/Sigmoid_output_0": "never observed", "/aux/Conv_output_0": "never observed"},
        {f"/decoder/Shape_{index}_output_0": "shape arithmetic" for index in range(14)},
    )


def realistic_amount() -> AmountSection:
    """A curve that settles at 96 images."""
    counts = (8, 16, 24, 32, 48, 64, 96, 128)
    return AmountSection(
        counts,
        {
            "entropy": tuple(0.9 / count**0.78 for count in counts),
            "percentile": tuple(1.6 / count**0.85 for count in counts),
            "minmax": tuple(3.1 / count**0.8 for count in counts),
        },
        0.05,
        96,
        "bits, 95th percentile over tensors",
        "The entropy ranges settle at 32 images; minmax is still moving at 128.",
    )


def realistic_provenance() -> ProvenanceSection:
    """Hashes, versions, files and commands."""
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    return ProvenanceSection(
        {
            "Inputs": {
                "model": "deeplabv3plus_mnv2.onnx",
                "model sha256": digest,
                "manifest": "camvid.yaml",
                "manifest sha256": digest[::-1],
            },
            "Parameters": {
                "sampler": "dark-regions:fraction=0.5",
                "entropy": "levels=128",
                "percentile": "percentile=99.99",
                "seed": "0",
                "preprocess": "rgb 352x480 bilinear, 1/255, ImageNet mean and std",
            },
            "Versions": {"calib": "0.1.0", "onnxruntime": "1.27.0", "numpy": "2.4.1", "python": "3.11.9"},
        },
        (
            OutputFile("calibration.cache", 14_230, "release artifact for TensorRT 10: the entropy ranges", digest),
            OutputFile(
                "entropy.qdq.onnx",
                18_730_112,
                "Q/DQ network for TensorRT 11, and for TensorRT 10 without a cache",
                digest,
            ),
            OutputFile("ranges.json", 214_000, "every tensor's range by every calibrator", digest),
            OutputFile("statistics.npz", 4_180_000, "mergeable statistics: calibrate again without the images", digest),
            OutputFile("selection.jsonl", 18_400, "the chosen images with scores", digest),
        ),
        (
            Command(
                "TensorRT 10: engine from the cache",
                "trtexec --onnx=deeplab.onnx --int8 --fp16 --calib=out/calibration.cache --saveEngine=deeplab.engine",
                "The cache is only read if its header matches the TensorRT version.",
            ),
            Command(
                "TensorRT 11: engine from the Q/DQ network",
                "trtexec --onnx=out/entropy.qdq.onnx --saveEngine=deeplab.engine",
            ),
            Command("Measure what it cost", "calib evaluate out --data camvid.yaml --split val -o eval"),
        ),
    )


def realistic_report(tensors: int = 240, images: int = 100) -> BuildReport:
    """The whole report."""
    return BuildReport(
        Subject(
            "deeplabv3plus_mnv2.onnx",
            "camvid",
            "train",
            ("dark-regions:fraction=0.5",),
            images,
            367,
            CALIBRATORS,
            "10.14.1",
            "0.1.0",
            "calibration.cache",
        ),
        (
            Notice(
                "warning",
                "Few small objects: 18 images hold 90 % of them",
                "The small-objects slice rests on few images; consider mix:small-objects=0.3.",
                "images",
            ),
        ),
        realistic_images(images),
        realistic_tensors(tensors),
        realistic_placement(tensors),
        realistic_amount(),
        realistic_provenance(),
    )
