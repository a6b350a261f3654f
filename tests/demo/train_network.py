"""Train the demo's network on the demo's scenes and export it to ONNX.

    python tests/demo/train_network.py --output calib/demo/network.onnx

Needs torch besides the package's own libraries. The network is MobileNet-like on purpose (depthwise convolutions,
linear bottlenecks, squeeze and excitation, hard-swish, resize and concat): what is hard to quantize in real ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as fn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from calib.demo.classes import CLASS_NAMES, VOID
from calib.demo.dataset import PlannedScene, encode_image, plan_scenes, plan_split
from calib.demo.scenes import COLUMNS, ROWS

TRAINING_STREAM = 1000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LIGHT_SHARES = {"day": 0.68, "dusk": 0.22, "night": 0.10}


class Excite(nn.Module):
    """Squeeze and excitation: a gate a channel from the channel means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, max(channels // 4, 8), 1)
        self.expand = nn.Conv2d(max(channels // 4, 8), channels, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Scale the channels of ``[N, C, H, W]``."""
        gate = fn.relu(self.squeeze(fn.adaptive_avg_pool2d(features, 1)))
        return features * fn.hardsigmoid(self.expand(gate))


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Convolution and batch normalisation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(outputs)]


class Inverted(nn.Module):
    """Inverted residual with a linear bottleneck (MobileNetV2/V3)."""

    def __init__(
        self, inputs: int, outputs: int, *, expand: int, kernel: int = 3, stride: int = 1, heavy: bool = False
    ) -> None:
        super().__init__()
        wide = inputs * expand
        activation = nn.Hardswish if heavy else nn.ReLU
        layers = [*conv(inputs, wide), activation(), *conv(wide, wide, kernel, stride, wide), activation()]
        layers += [Excite(wide)] if heavy else []
        self.body = nn.Sequential(*layers, *conv(wide, outputs))
        self.skip = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        """Answer ``[N, outputs, H / stride, W / stride]``."""
        return features + self.body(features) if self.skip else self.body(features)


class Separable(nn.Sequential):
    """Depthwise then pointwise convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(*conv(inputs, inputs, 3, groups=inputs), nn.ReLU(), *conv(inputs, outputs), nn.ReLU())


class DemoNetwork(nn.Module):
    """Encoder to 1/16 with a global gate, decoder with skips to 1/2."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stage2 = nn.Sequential(*conv(3, 16, 3, 2), nn.Hardswish(), Inverted(16, 16, expand=2))
        self.stage4 = nn.Sequential(Inverted(16, 24, expand=4, stride=2), Inverted(24, 24, expand=3))
        self.stage8 = nn.Sequential(
            Inverted(24, 40, expand=3, kernel=5, stride=2, heavy=True), Inverted(40, 40, expand=3, heavy=True)
        )
        self.stage16 = nn.Sequential(
            Inverted(40, 64, expand=3, kernel=5, stride=2, heavy=True),
            Inverted(64, 64, expand=3, kernel=5, heavy=True),
        )
        self.context = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 64, 1), nn.Sigmoid())
        self.bridge = nn.Sequential(*conv(64, 64), nn.ReLU())
        self.up_eighth = Separable(64 + 40, 48)
        self.up_quarter = Separable(48 + 24, 32)
        self.up_half = Separable(32 + 16, 24)
        self.refine = Separable(24, 24)
        self.classify = nn.Conv2d(24, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Map ``image [N, 3, H, W]`` to ``logits [N, classes, H, W]``; H and W multiples of 16."""
        half = self.stage2(image)
        quarter = self.stage4(half)
        eighth = self.stage8(quarter)
        deep = self.stage16(eighth)
        deep = self.bridge(deep) * self.context(deep)
        features = self.up_eighth(torch.cat([double(deep), eighth], 1))
        features = self.up_quarter(torch.cat([double(features), quarter], 1))
        features = self.refine(self.up_half(torch.cat([double(features), half], 1)))
        return double(self.classify(features))


def double(features: Tensor) -> Tensor:
    """Resize by two, bilinearly."""
    return fn.interpolate(features, scale_factor=2.0, mode="bilinear", align_corners=False)


def draw(scene: PlannedScene) -> tuple[np.ndarray, np.ndarray]:
    """Draw a scene as a reader of the data set gets it: RGB after JPEG, and the label."""
    cv2.setNumThreads(1)
    drawn = scene.draw()
    decoded = cv2.imdecode(np.frombuffer(encode_image(drawn.image), np.uint8), cv2.IMREAD_COLOR)
    return np.ascontiguousarray(decoded[..., ::-1]), drawn.label


def draw_all(scenes: list[PlannedScene], workers: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw scenes in parallel: uint8 images ``[N, H, W, 3]`` and labels ``[N, H, W]``."""
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        pairs = list(pool.map(draw, scenes, chunksize=16))
    return np.stack([image for image, _ in pairs]), np.stack([label for _, label in pairs])


def to_input(images: Tensor) -> Tensor:
    """Preprocess uint8 ``[N, H, W, 3]`` as the manifest says: float32 ``[N, 3, H, W]``, channels last in memory."""
    mean, std = (torch.tensor(values, device=images.device) for values in (MEAN, STD))
    scaled = (images.float() / 255.0 - mean) / std
    return scaled.permute(0, 3, 1, 2)


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def batches(count: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Give shuffled batches of indices without end."""
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(count)
        yield from (order[start : start + size] for start in range(0, count - size + 1, size))


def class_weights(labels: np.ndarray) -> Tensor:
    """Weigh classes by the inverse fourth root of their frequency, mean 1."""
    share = np.bincount(labels[labels != VOID], minlength=len(CLASS_NAMES)) / (labels != VOID).sum()
    weights = np.maximum(share, 1e-4) ** -0.25
    return torch.tensor(weights / weights.mean(), dtype=torch.float32)


def train(network: nn.Module, images: np.ndarray, labels: np.ndarray, options: argparse.Namespace) -> None:
    """Train in place with AdamW and a one-cycle rate."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=options.rate, weight_decay=options.decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, options.rate, total_steps=options.steps, pct_start=0.15)
    weights = class_weights(labels).to(options.device)
    started, total = time.monotonic(), 0.0
    network.train()
    for step, rows in zip(range(options.steps), batches(len(images), options.batch, options.seed), strict=False):
        inputs = to_input(torch.from_numpy(images[rows]).to(options.device))
        target = torch.from_numpy(labels[rows]).long().to(options.device)
        loss = fn.cross_entropy(network(inputs), target, weights, ignore_index=VOID)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        total += loss.item()
        if step % 50 == 49:
            say(f"step {step + 1} loss {total / 50:.4f} {time.monotonic() - started:.0f} s")
            total = 0.0


@torch.inference_mode()
def confusion(network: nn.Module, images: np.ndarray, labels: np.ndarray, device: str) -> np.ndarray:
    """Count pixels by label (rows) and prediction (columns), void left out."""
    network.eval()
    classes = len(CLASS_NAMES)
    counts = np.zeros((classes, classes), np.int64)
    for start in range(0, len(images), 16):
        logits = network(to_input(torch.from_numpy(images[start : start + 16]).to(device)))
        found, wanted = logits.argmax(1).cpu().numpy(), labels[start : start + 16]
        kept = wanted != VOID
        pairs = wanted[kept].astype(np.int64) * classes + found[kept]
        counts += np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return counts


def iou(counts: np.ndarray) -> np.ndarray:
    """Intersection over union of each class, over the whole set."""
    return np.diag(counts) / np.maximum(counts.sum(0) + counts.sum(1) - np.diag(counts), 1)


def score(network: nn.Module, options: argparse.Namespace) -> dict[str, object]:
    """Score the network on the demo's ``val`` split: mIoU whole and by light, IoU by class."""
    scenes = plan_split("val")
    images, labels = draw_all(scenes, options.workers)
    groups = np.array([scene.group for scene in scenes])
    counts = {
        group: confusion(network, images[groups == group], labels[groups == group], options.device)
        for group in ("day", "dusk", "night")
    }
    whole = iou(np.sum(list(counts.values()), axis=0))
    return {
        "miou": round(float(whole.mean()), 4),
        "light": {group: round(float(iou(part).mean()), 4) for group, part in counts.items()},
        "classes": {name: round(float(value), 4) for name, value in zip(CLASS_NAMES, whole, strict=True)},
    }


def export(network: nn.Module, path: Path) -> None:
    """Export with a dynamic batch; the exporter folds batch normalisation into the convolutions."""
    network = network.cpu().eval()
    torch.onnx.export(
        network,
        (torch.zeros(1, 3, ROWS, COLUMNS),),
        str(path),
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("calib/demo/network.onnx"))
    parser.add_argument("--images", type=int, default=6000, help="scenes drawn for training")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--decay", type=float, default=0.0, help="weight decay")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that draw")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cache", type=Path, help="keep the drawn scenes in this .npz file")
    parser.add_argument("--state", type=Path, help="also write the trained weights here")
    return parser.parse_args()


def training_set(options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Draw the training scenes, or read them from the cache."""
    if options.cache and options.cache.is_file():
        with np.load(options.cache) as kept:
            return kept["images"], kept["labels"]
    counts = {group: round(options.images * share) for group, share in LIGHT_SHARES.items()}
    images, labels = draw_all(plan_scenes(counts, TRAINING_STREAM), options.workers)
    if options.cache:
        np.savez(options.cache, images=images, labels=labels)
    return images, labels


def main() -> None:
    """Draw, train, score, export."""
    options = parse()
    torch.manual_seed(options.seed)
    started = time.monotonic()
    images, labels = training_set(options)
    say(f"drew {len(images)} scenes, {time.monotonic() - started:.0f} s")
    network = DemoNetwork(len(CLASS_NAMES)).to(options.device, memory_format=torch.channels_last)
    say(f"{sum(weight.numel() for weight in network.parameters())} weights")
    train(network, images, labels, options)
    if options.state:
        torch.save(network.state_dict(), options.state)
    say(json.dumps(score(network, options), indent=2))
    export(network, options.output)
    say(f"wrote {options.output} ({options.output.stat().st_size} bytes), {time.monotonic() - started:.0f} s in all")


if __name__ == "__main__":
    main()
