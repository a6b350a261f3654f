"""The street itself: where kerbs and buildings lie, the ground, the sky and what closes the view."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.demo.camera import Camera
from calib.demo.canvas import (
    ALBEDO,
    AMBIENT,
    BLACK,
    CHANNELS,
    DEPTH,
    EMISSION,
    RETRO,
    SUN,
    Canvas,
    Floats,
    Mask,
    surface,
)
from calib.demo.classes import BUILDING, PAVEMENT, ROAD, SKY, VEGETATION
from calib.demo.light import Light

BACKDROP_M = 130.0
SIDE_ROAD_WIDTH_M = 7.0
TILE = 256

LEFT, RIGHT = -1.0, 1.0


@dataclass(frozen=True)
class Block:
    """A building or, where ``height`` is 0, a gap in the row of buildings; ``start`` and ``end`` in metres ahead."""

    start: float
    end: float
    height: float


@dataclass(frozen=True)
class Side:
    """One side of the street.

    Attributes:
        sign: -1 left, +1 right.
        kerb: x of the kerb in metres.
        front: x of the building line.
        park: trees and grass in place of buildings.
        blocks: buildings and gaps from near to far.
    """

    sign: float
    kerb: float
    front: float
    park: bool
    blocks: tuple[Block, ...]

    def height_at(self, z: NDArray[np.float32]) -> Floats:
        """Height of the row of buildings at each distance, metres."""
        edges = np.array([block.end for block in self.blocks])
        heights = np.array([block.height for block in self.blocks] + [0.0], np.float32)
        return heights[np.searchsorted(edges, z, side="right")]


@dataclass(frozen=True)
class Street:
    """A straight street seen from its right-hand lane.

    Attributes:
        middle: x of the road's middle in metres.
        half_width: half the width between the kerbs.
        left: the left side.
        right: the right side.
        crossing: z of a zebra crossing, or None.
        asphalt: albedo of the road.
        paving: albedo of the pavement, linear RGB.
    """

    middle: float
    half_width: float
    left: Side
    right: Side
    crossing: float | None
    asphalt: float
    paving: tuple[float, float, float]

    def side(self, sign: float) -> Side:
        """Pick a side by its sign."""
        return self.left if sign < 0 else self.right

    def in_shadow(self, x: ArrayOrFloat, z: Floats, light: Light) -> Mask:
        """Tell whether the sun is hidden by buildings for points on the ground."""
        side = self.side(light.sun_side)
        distance = (side.front - np.asarray(x, np.float32)) * np.float32(side.sign)
        return np.asarray(distance < side.height_at(z) * np.float32(light.shadow_length), bool)


ArrayOrFloat = Floats | float


def choose_street(rng: np.random.Generator) -> Street:
    """Draw the plan of a street."""
    half_width = rng.uniform(3.4, 5.6)
    middle = -half_width * rng.uniform(0.3, 0.55)
    left, right = (_choose_side(sign, middle + sign * half_width, rng) for sign in (LEFT, RIGHT))
    warm = rng.uniform(-0.03, 0.05)
    paving = float(rng.uniform(0.2, 0.42))
    return Street(
        middle=float(middle),
        half_width=float(half_width),
        left=left,
        right=right,
        crossing=float(rng.uniform(8.0, 26.0)) if rng.random() < 0.4 else None,
        asphalt=float(rng.uniform(0.07, 0.17)),
        paving=(paving + warm, paving, paving - warm * 0.8),
    )


def _choose_side(sign: float, kerb: float, rng: np.random.Generator) -> Side:
    front = kerb + sign * rng.uniform(2.0, 5.5)
    park = bool(rng.random() < 0.17)
    blocks: list[Block] = []
    start = float(rng.uniform(-6.0, 1.0))
    storey_base = rng.uniform(6.0, 15.0)
    while start < BACKDROP_M - 15.0:
        end = start + rng.uniform(9.0, 24.0)
        blocks.append(Block(start, end, 0.0 if park else float(np.clip(rng.normal(storey_base, 3.0), 4.5, 24.0))))
        start = float(end)
        if rng.random() < 0.22:
            blocks.append(Block(start, start + SIDE_ROAD_WIDTH_M, 0.0))
            start += SIDE_ROAD_WIDTH_M
    return Side(sign, float(kerb), float(front), park, tuple(blocks))


def noise_tile(rng: np.random.Generator) -> Floats:
    """Make a 256x256 tile of noise of several scales, mean 0, about -1..1."""
    tile = rng.standard_normal((TILE, TILE), np.float32) * np.float32(0.3)
    for cells in (16, 64):
        coarse = rng.standard_normal((cells, cells), np.float32)
        tile += cv2.resize(coarse, (TILE, TILE), interpolation=cv2.INTER_CUBIC) * np.float32(0.35)
    return tile


def paint_sky(canvas: Canvas, camera: Camera, light: Light, tile: Floats) -> None:
    """Fill the image with sky: a gradient from the skyline up, with clouds."""
    height = (np.float32(camera.horizon) - np.arange(camera.rows, dtype=np.float32)) / np.float32(camera.rows)
    share = np.clip(height * np.float32(1.7), 0.0, 1.0)[:, None, None] ** np.float32(0.7)
    low, high = np.array(light.skyline, np.float32), np.array(light.zenith, np.float32)
    clouds = cv2.resize(tile[:48, 64:96], (camera.columns, camera.rows), interpolation=cv2.INTER_CUBIC)
    veil = np.clip(clouds * np.float32(0.9), 0.0, 0.8)[..., None] * np.clip(share * 2.0, 0.0, 1.0)
    canvas.surfaces[..., EMISSION] = (low + (high - low) * share) * (1.0 - veil) + veil * low * np.float32(0.9)
    canvas.label[:] = SKY


def paint_sun(canvas: Canvas, camera: Camera, light: Light, rng: np.random.Generator) -> None:
    """Paint the sun's disc where it stands low ahead; buildings painted later may hide it."""
    column = camera.centre + camera.columns * rng.uniform(-0.3, 0.3)
    row = camera.horizon - camera.rows * rng.uniform(0.08, 0.34)
    turn = np.linspace(0.0, 2.0 * np.pi, 20)
    radius = camera.columns * 0.011
    red, green, blue = (light.sun_disc * share for share in (1.0, 0.78, 0.5))
    ring = np.stack([column + radius * np.cos(turn), row + radius * np.sin(turn)], axis=1)
    canvas.polygon(ring, surface(BLACK, emission=(red, green, blue)), 0.0, SKY)


def paint_ground(canvas: Canvas, camera: Camera, street: Street, light: Light, tile: Floats) -> None:
    """Paint road, pavements and grass below the horizon, with markings, wear and the shadow of buildings."""
    top = int(np.clip(np.floor(camera.horizon) + 1, 0, camera.rows - 1))
    rows = np.arange(top, camera.rows, dtype=np.float32)
    depth = np.repeat((camera.focal * camera.eye / (rows - camera.horizon))[:, None], camera.columns, axis=1)
    depth = np.minimum(depth, 900.0).astype(np.float32)
    x = depth * (np.arange(camera.columns, dtype=np.float32) - np.float32(camera.centre)) / np.float32(camera.focal)
    label = _ground_label(street, x, depth)
    materials = np.zeros((*label.shape, CHANNELS), np.float32)
    materials[..., ALBEDO] = _ground_albedo(street, camera, x, depth, label, tile)
    materials[..., SUN] = 1.0 - street.in_shadow(x, depth, light)
    materials[..., AMBIENT] = materials[..., RETRO] = 1.0
    canvas.surfaces[top:] = materials
    canvas.surfaces[top:, :, DEPTH] = depth
    canvas.label[top:] = label


def _ground_label(street: Street, x: Floats, z: Floats) -> NDArray[np.uint8]:
    lateral = x - np.float32(street.middle)
    label = np.full(x.shape, PAVEMENT, np.uint8)
    for side in (street.left, street.right):
        if side.park:
            label[(x - side.front) * side.sign > 0] = VEGETATION
        for block in side.blocks:
            if block.height == 0.0 and not side.park:
                label[(lateral * side.sign > 0) & (z > block.start) & (z < block.end)] = ROAD
    label[np.abs(lateral) < street.half_width] = ROAD
    return label


def _ground_albedo(
    street: Street, camera: Camera, x: Floats, z: Floats, label: NDArray[np.uint8], tile: Floats
) -> Floats:
    lateral = x - np.float32(street.middle)
    fine = tile[(z * 9).astype(np.int32) % TILE, (x * 24).astype(np.int32) % TILE]
    coarse = tile[(z * 1.3).astype(np.int32) % TILE, (x * 7).astype(np.int32) % TILE]
    wear = np.minimum(np.float32(9.0) / z, 1.0) * np.float32(0.14) * fine + np.float32(0.13) * coarse
    palette = np.zeros((VEGETATION + 1, 3), np.float32)
    palette[ROAD], palette[PAVEMENT], palette[VEGETATION] = street.asphalt, street.paving, (0.09, 0.17, 0.04)
    albedo = palette[label]
    joints = (np.mod(z, 0.9) < 0.07) | (np.mod(np.abs(lateral), 0.9) < 0.07)
    albedo[joints & (label == PAVEMENT) & (z < 14.0)] *= np.float32(0.72)
    kerbstone = np.abs(np.abs(lateral) - np.float32(street.half_width) - 0.12) < 0.12
    albedo[kerbstone & (label == PAVEMENT)] *= np.float32(1.35)
    albedo[_markings(street, camera, lateral, z) & (label == ROAD)] = np.float32(0.62)
    return np.asarray(albedo * np.maximum(np.float32(1.0) + wear, np.float32(0.3))[..., None])


def _markings(street: Street, camera: Camera, lateral: Floats, z: Floats) -> Mask:
    """Find painted lines: a dashed middle, solid edges, a zebra crossing. Lines stay half a pixel wide when far."""
    half_line = np.maximum(np.float32(0.07), z * np.float32(0.3 / camera.focal))
    inside = np.abs(lateral) < street.half_width
    lines = (np.abs(lateral) < half_line) & (np.mod(z, 6.0) < 3.0)
    lines |= np.abs(np.abs(lateral) - np.float32(street.half_width - 0.35)) < half_line
    if street.crossing is not None:
        across = (z > street.crossing) & (z < street.crossing + 3.2)
        lines = np.where(across, np.mod(lateral, 1.0) < 0.5, lines)
        lines |= np.abs(z - np.float32(street.crossing - 1.2)) < np.maximum(np.float32(0.15), half_line)
    return np.asarray(lines & inside, bool)


def paint_backdrop(canvas: Canvas, camera: Camera, rng: np.random.Generator) -> None:
    """Close the view with a far row of houses and trees."""
    x = -150.0
    while x < 150.0:
        width, height = rng.uniform(8.0, 26.0), rng.uniform(6.0, 18.0)
        house = rng.random() < 0.6
        tone = rng.uniform(0.1, 0.35)
        material = surface((tone, tone * 0.95, tone * 0.9) if house else (0.05, 0.09, 0.03), sun=0.5, ambient=0.8)
        top = [0.0, height, height, 0.0] if house else [0.0, height * 0.55, height * 0.8, 0.0]
        pixels = camera.project([x, x + 0.1 * width, x + 0.9 * width, x + width], top, BACKDROP_M)
        canvas.polygon(pixels, material, BACKDROP_M, BUILDING if house else VEGETATION)
        x += width * rng.uniform(0.55, 0.95)
