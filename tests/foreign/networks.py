"""A small segmentation network with everything that quantizers treat differently, and its float export."""

from __future__ import annotations

import io
import warnings

import onnx


def network(*, seed: int = 0, classes: int = 4, width: int = 8):
    """Batch normalisation, a residual block, a depthwise layer, a gate, a transposed convolution, a head."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, 1, 1, groups=width, bias=False)
            self.bn2 = nn.BatchNorm2d(width)

        def forward(self, x):
            inner = torch.relu(self.bn1(self.conv1(x)))
            return torch.relu(x + self.bn2(self.conv2(inner)))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
            self.layer1 = nn.Sequential(Block(width), Block(width))
            self.pool = nn.MaxPool2d(2)
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, width, 1), nn.Sigmoid()
            )
            self.up = nn.ConvTranspose2d(width, width, 2, 2)
            self.fuse = nn.Conv2d(2 * width, width, 3, 1, 1)
            self.head = nn.Conv2d(width, classes, 1)

        def forward(self, x):
            skip = self.stem(x)
            deep = self.up(self.pool(self.layer1(skip)))
            return self.head(torch.relu(self.fuse(torch.cat([skip, deep * self.gate(deep)], 1))))

    torch.manual_seed(seed)
    made = Net()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.3, 3)
    nn.init.normal_(made.head.weight, 0, 1)
    return made.eval()


def images(count: int = 4, *, seed: int = 1, size: tuple[int, int] = (64, 96)):
    """Draw smooth input, one tensor ``[1, 3, H, W]`` each."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    small = torch.randn(count, 3, size[0] // 8, size[1] // 8, generator=generator)
    return list(torch.nn.functional.interpolate(small, size=size, mode="bilinear").split(1))


def exported(module, example, *, dynamo: bool = True, opset: int = 18) -> onnx.ModelProto:
    """Export a module as ``image`` to ``logits``."""
    import torch

    stream = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        options = {"input_names": ["image"], "output_names": ["logits"], "opset_version": opset}
        if dynamo:
            torch.onnx.export(module, (example,), dynamo=True, verbose=False, **options).save(stream)
        else:
            torch.onnx.export(module, (example,), stream, dynamo=False, **options)
    return onnx.load_from_string(stream.getvalue())
