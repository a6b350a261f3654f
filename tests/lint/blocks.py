"""Building blocks of segmentation networks in plain PyTorch, of the kinds that torchvision, timm and mmseg have.

Weights are drawn at random and normalised layers get running statistics of a trained network's kind: what is linted
here is what exporters write.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = 16
SIZE = 64


def conv_bn(cin: int, cout: int, k: int = 1, act: type[nn.Module] | None = nn.ReLU, **settings) -> nn.Sequential:
    padding = settings.pop("padding", settings.get("dilation", 1) * (k // 2))
    layers = [nn.Conv2d(cin, cout, k, padding=padding, bias=False, **settings), nn.BatchNorm2d(cout)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Bottleneck(nn.Module):
    """ResNet: 1x1, 3x3, 1x1 with a projected and a plain shortcut, behind the stem with its max pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, CHANNELS, 7, stride=2), nn.MaxPool2d(3, 2, 1))
        self.first, self.second = self._body(CHANNELS, 2), self._body(4 * CHANNELS, 1)
        self.project = conv_bn(CHANNELS, 4 * CHANNELS, 1, None, stride=2)
        self.head = nn.Conv2d(4 * CHANNELS, 5, 1)

    @staticmethod
    def _body(cin: int, stride: int) -> nn.Sequential:
        last = conv_bn(CHANNELS, 4 * CHANNELS, 1, None)
        return nn.Sequential(conv_bn(cin, CHANNELS), conv_bn(CHANNELS, CHANNELS, 3, stride=stride), last)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(self.project(x) + self.first(x))
        return self.head(F.relu(x + self.second(x)))


class InvertedResidual(nn.Module):
    """MobileNetV3: expand, depthwise, squeeze-and-excitation, project, with hard swish and hard sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        wide = 4 * CHANNELS
        self.stem = conv_bn(3, CHANNELS, 3, nn.Hardswish, stride=2)
        self.expand = conv_bn(CHANNELS, wide, 1, nn.Hardswish)
        self.depthwise = conv_bn(wide, wide, 5, nn.Hardswish, groups=wide)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.squeeze, self.excite = nn.Conv2d(wide, CHANNELS, 1), nn.Conv2d(CHANNELS, wide, 1)
        self.project = conv_bn(wide, CHANNELS, 1, None)
        self.head = nn.Conv2d(CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(self.pool(y)))))
        return self.head(x + self.project(y))


class ASPP(nn.Module):
    """DeepLabV3: dilated branches and an image-level one, then scores at the input's size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, CHANNELS, 3, stride=4)
        self.branches = nn.ModuleList(conv_bn(CHANNELS, CHANNELS, 3, dilation=rate) for rate in (1, 2, 4))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), conv_bn(CHANNELS, CHANNELS))
        self.project = nn.Sequential(conv_bn(4 * CHANNELS, CHANNELS), nn.Dropout(0.5))
        self.head = nn.Conv2d(CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        outs = [branch(y) for branch in self.branches]
        outs.append(F.interpolate(self.pool(y), size=y.shape[-2:], mode="bilinear", align_corners=False))
        y = self.head(self.project(torch.cat(outs, 1)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)


class PyramidPooling(nn.Module):
    """PSPNet: adaptive pools of 1, 2, 4 cells, spread by bilinear resizing with aligned corners."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_bn(3, CHANNELS, 3, stride=4)
        self.stages = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(n), conv_bn(CHANNELS, 8)) for n in (1, 2, 4))
        self.head = nn.Conv2d(CHANNELS + 24, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        pooled = [F.interpolate(s(x), size=x.shape[2:], mode="bilinear", align_corners=True) for s in self.stages]
        return self.head(torch.cat([x, *pooled], 1))


class FPN(nn.Module):
    """Feature pyramid: lateral convolutions, nearest enlargement, sums."""

    def __init__(self) -> None:
        super().__init__()
        self.downs = nn.ModuleList(conv_bn(3 if i == 0 else CHANNELS, CHANNELS, 3, stride=2) for i in range(3))
        self.laterals = nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 1) for _ in range(3))
        self.head = nn.Conv2d(CHANNELS, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for down in self.downs:
            x = down(x)
            maps.append(x)
        top = self.laterals[2](maps[2])
        for lateral, below in zip(self.laterals[1::-1], maps[1::-1], strict=False):
            top = lateral(below) + F.interpolate(top, scale_factor=2.0, mode="nearest")
        return self.head(top)


class UNet(nn.Module):
    """U-Net: max pool down, transposed convolution up, a skip by concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.bottom = conv_bn(3, CHANNELS, 3), conv_bn(CHANNELS, 2 * CHANNELS, 3)
        self.up = nn.ConvTranspose2d(2 * CHANNELS, CHANNELS, 2, 2)
        self.uneven = nn.ConvTranspose2d(CHANNELS, CHANNELS, 3, 2, 1, output_padding=1)
        self.join = conv_bn(2 * CHANNELS, CHANNELS, 3)
        self.head = nn.Conv2d(CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.enter(x)
        y = self.up(self.bottom(F.max_pool2d(skip, 2)))
        return self.head(self.uneven(self.join(torch.cat([skip, y], 1))))


class SegFormer(nn.Module):
    """SegFormer: overlapping patches, attention with reduced keys, depthwise mixing in the feed-forward part, GELU."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, width = heads, 2 * CHANNELS
        self.patch = nn.Conv2d(3, width, 7, 4, 3)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.q, self.kv, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, 2, 2)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.mix = nn.Conv2d(4 * width, 4 * width, 3, padding=1, groups=4 * width)
        self.head = nn.Conv2d(width, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x)
        b, c, h, w = x.shape
        x = self.norms[0](x.flatten(2).transpose(1, 2))
        x = x + self.attend(self.norms[1](x), b, c, h, w)
        x = x + self.feed(self.norms[2](x), b, h, w)
        return self.head(self.norms[3](x).transpose(1, 2).reshape(b, c, h, w))

    def attend(self, x: Tensor, b: int, c: int, h: int, w: int) -> Tensor:
        q = self.q(x).reshape(b, -1, self.heads, c // self.heads).transpose(1, 2)
        small = self.reduce(x.transpose(1, 2).reshape(b, c, h, w)).flatten(2).transpose(1, 2)
        kv = self.kv(small).reshape(b, -1, 2, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ kv[0].transpose(-2, -1)) * (c // self.heads) ** -0.5
        return self.out((scores.softmax(-1) @ kv[1]).transpose(1, 2).reshape(b, -1, c))

    def feed(self, x: Tensor, b: int, h: int, w: int) -> Tensor:
        x = self.up(x)
        mixed = self.mix(x.transpose(1, 2).reshape(b, -1, h, w)).flatten(2).transpose(1, 2)
        return self.down(F.gelu(mixed))


class GroupNormHead(nn.Module):
    """A detection-style mask head: convolutions with group normalisation, bilinear enlargement."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 3, 2, 1)
        self.tower = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.GroupNorm(4, CHANNELS), nn.ReLU())
        self.head = nn.Conv2d(CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.tower(self.stem(x))
        return self.head(F.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False))


class PixelShuffleHead(nn.Module):
    """Sub-pixel enlargement (DUpsampling, ESPCN) and its inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, 20 * 4, 3, padding=1), nn.PixelShuffle(2))
        self.head = nn.Sequential(nn.LeakyReLU(0.1), nn.Conv2d(20, 5, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class FlowWarp(nn.Module):
    """SFNet's alignment: a learnt flow moves one map onto another by grid sampling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.flow = conv_bn(3, CHANNELS, 3, stride=2), nn.Conv2d(CHANNELS, 2, 3, padding=1)
        self.head = nn.Conv2d(CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        grid = torch.tanh(self.flow(y)).permute(0, 2, 3, 1)
        return self.head(F.grid_sample(y, grid, mode="bilinear", padding_mode="border", align_corners=True))


class ConvNeXt(nn.Module):
    """ConvNeXt: depthwise 7x7, layer normalisation over channels last, pointwise layers, GELU, layer scale."""

    def __init__(self) -> None:
        super().__init__()
        width = 2 * CHANNELS
        self.stem, self.depthwise = nn.Conv2d(3, width, 4, 4), nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(1e-6 * torch.ones(width))
        self.head = nn.Conv2d(width, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return self.head(x + y.permute(0, 3, 1, 2))


class EncoderLayer(nn.Module):
    """A plain transformer encoder layer on a flattened map, as SETR and DETR have it."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 2 * CHANNELS, 8, 8)
        self.layer = nn.TransformerEncoderLayer(2 * CHANNELS, 2, 64, batch_first=True, activation="gelu")
        self.head = nn.Conv2d(2 * CHANNELS, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x)
        b, c, h, w = x.shape
        y = self.layer(x.flatten(2).transpose(1, 2))
        return self.head(y.transpose(1, 2).reshape(b, c, h, w))


BLOCKS: dict[str, type[nn.Module]] = {
    "bottleneck": Bottleneck,
    "inverted_residual": InvertedResidual,
    "aspp": ASPP,
    "pyramid_pooling": PyramidPooling,
    "fpn": FPN,
    "unet": UNet,
    "segformer": SegFormer,
    "encoder_layer": EncoderLayer,
    "group_norm": GroupNormHead,
    "pixel_shuffle": PixelShuffleHead,
    "flow_warp": FlowWarp,
    "convnext": ConvNeXt,
}


def build(name: str) -> nn.Module:
    """Make a block with fixed weights, in evaluation mode."""
    torch.manual_seed(0)
    block = BLOCKS[name]()
    for module in block.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
    return block.eval()
