"""Small PyTorch networks for tests of training; importing this needs PyTorch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 5


def unit(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout), nn.ReLU()
    )


class Gate(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        squeezed = F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1)))
        return x * torch.sigmoid(self.expand(squeezed))


class Small(nn.Module):
    """A residual block, a gate, a pooled branch, a transposed convolution, a concatenation, an upsampled head."""

    def __init__(self, classes: int = CLASSES, width: int = 8) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = unit(3, width)
        self.down = unit(width, 2 * width, stride=2)
        self.depth = unit(2 * width, 2 * width, groups=2 * width)
        self.point = nn.Sequential(nn.Conv2d(2 * width, 2 * width, 1, bias=False), nn.BatchNorm2d(2 * width))
        self.gate = Gate(2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.mix = unit(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def features(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.stem(image)
        coarse = self.down(fine)
        coarse = self.gate(F.relu(coarse + self.point(self.depth(coarse))))
        up = self.up(F.max_pool2d(coarse, 2))
        up = F.interpolate(up, size=fine.shape[2:], mode="bilinear", align_corners=False)
        return self.mix(torch.cat([fine, up], 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image))


class Named(Small):
    """Answers with a dictionary, as torchvision's networks do, auxiliary head included."""

    def __init__(self) -> None:
        super().__init__()
        self.aux = nn.Conv2d(8, CLASSES, 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.features(image)
        return {"out": self.head(features), "aux": self.aux(features)}


class Plain(nn.Module):
    """The least network that can be trained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.head = unit(3, 8), nn.Conv2d(8, CLASSES, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.first(image))


class Scaled(Plain):
    """Learns a factor on the picture, which is no weight of a layer, and whose name the export folds away."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(image * self.gain.unsqueeze(0))


class Classes(Plain):
    """Answers with class numbers."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(image).argmax(1)


class OwnConv(nn.Conv2d):
    """A convolution that computes in a way of its own."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return F.conv2d(image, self.weight, self.bias, self.stride, self.padding)


class Own(Plain):
    """Has no layer to quantize that PyTorch's own classes compute."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(OwnConv(3, 8, 3, padding=1), nn.ReLU())
