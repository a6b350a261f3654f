"""Rows of buildings: façades along the street and the gable walls that face the camera, with windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.demo.camera import Camera
from calib.demo.canvas import ALBEDO, AMBIENT, CHANNELS, EMISSION, RETRO, SUN, Canvas, Colour, Floats, Mask
from calib.demo.classes import BUILDING
from calib.demo.light import Light
from calib.demo.street import Block, Side, Street

NEAR_M = 1.2
GABLE_DEPTH_M = 11.0
WINDOW_LIGHT: tuple[Colour, ...] = ((1.0, 0.72, 0.38), (1.0, 0.86, 0.62), (0.75, 0.88, 1.0))
WALLS: tuple[Colour, ...] = (
    (0.46, 0.40, 0.31),
    (0.55, 0.52, 0.47),
    (0.36, 0.19, 0.14),
    (0.42, 0.27, 0.19),
    (0.28, 0.28, 0.29),
    (0.58, 0.48, 0.28),
    (0.32, 0.38, 0.40),
    (0.62, 0.60, 0.58),
)


@dataclass(frozen=True)
class Style:
    """How a building's walls look; lengths in metres."""

    wall: Colour
    pitch: float
    storey: float
    window: tuple[float, float]
    shop: bool
    lit_share: float
    hashes: NDArray[np.float32]


def choose_style(rng: np.random.Generator) -> Style:
    """Draw a building's style."""
    tint = rng.uniform(0.65, 1.15, 1) * rng.uniform(0.94, 1.06, 3)
    wall = np.clip(np.array(WALLS[rng.integers(len(WALLS))]) * tint, 0.04, 0.8)
    return Style(
        wall=(float(wall[0]), float(wall[1]), float(wall[2])),
        pitch=float(rng.uniform(1.8, 3.4)),
        storey=float(rng.uniform(2.8, 3.6)),
        window=(float(rng.uniform(0.4, 0.7)), float(rng.uniform(0.45, 0.65))),
        shop=bool(rng.random() < 0.4),
        lit_share=float(rng.uniform(0.1, 0.6)),
        hashes=rng.random((32, 64), np.float32),
    )


def paint_building(
    canvas: Canvas, camera: Camera, street: Street, side: Side, block: Block, light: Light, rng: np.random.Generator
) -> None:
    """Paint one building: first the façade along the street, then the gable wall nearer to the camera."""
    style = choose_style(rng)
    _paint_facade(canvas, camera, street, side, block, style, light)
    if block.start > NEAR_M:
        _paint_gable(canvas, camera, side, block, style, light)


def _paint_facade(
    canvas: Canvas, camera: Camera, street: Street, side: Side, block: Block, style: Style, light: Light
) -> None:
    near, far = max(block.start, NEAR_M), block.end
    edges = camera.centre + camera.focal * side.front / np.array([near, far])
    window = _cut(camera, edges, near, block.height)
    if window is None:
        return
    columns, rows = np.arange(window[2], window[3], dtype=np.float32), np.arange(window[0], window[1], dtype=np.float32)
    z = np.float32(camera.focal * side.front) / (columns - np.float32(camera.centre))
    drop = (rows[:, None] - np.float32(camera.horizon)) * z / np.float32(camera.focal)
    up: Floats = np.asarray(np.float32(camera.eye) - drop, np.float32)
    along: Floats = np.broadcast_to(z - np.float32(block.start), up.shape)
    inside = (up >= 0.0) & (up <= block.height) & (z >= near) & (z <= far)
    shadow_top = _shadow_top(street, side, light, z)
    materials = _wall(style, along, up, block.height, light)
    materials[..., SUN] *= (up > shadow_top) * np.float32(0.75 if side.sign != light.sun_side else 0.0)
    canvas.stamp(inside, window[0], window[2], materials, np.broadcast_to(z, up.shape), BUILDING)


def _shadow_top(street: Street, side: Side, light: Light, z: Floats) -> Floats:
    """Height up to which the opposite row of buildings keeps the sun off a façade, metres."""
    opposite = street.side(-side.sign)
    across = abs(side.front - opposite.front)
    return np.asarray(opposite.height_at(z) - np.float32(across / light.shadow_length), np.float32)


def _paint_gable(canvas: Canvas, camera: Camera, side: Side, block: Block, style: Style, light: Light) -> None:
    ends = np.array([side.front, side.front + side.sign * GABLE_DEPTH_M])
    edges = camera.centre + camera.focal * ends / block.start
    window = _cut(camera, edges, block.start, block.height)
    if window is None:
        return
    columns, rows = np.arange(window[2], window[3], dtype=np.float32), np.arange(window[0], window[1], dtype=np.float32)
    x = (columns - np.float32(camera.centre)) * np.float32(block.start / camera.focal)
    up = np.float32(camera.eye) - (rows[:, None] - np.float32(camera.horizon)) * np.float32(block.start / camera.focal)
    up, along = np.broadcast_arrays(up, (x - np.float32(side.front)) * np.float32(side.sign))
    inside = (along >= 0.0) & (along <= GABLE_DEPTH_M) & (up >= 0.0) & (up <= block.height)
    materials = _wall(style, along + np.float32(40.0), up, block.height, light)
    materials[..., SUN] *= np.float32(0.3)
    canvas.stamp(inside, window[0], window[2], materials, float(block.start), BUILDING)


def _cut(camera: Camera, edges: NDArray[np.float64], near: float, height: float) -> tuple[int, int, int, int] | None:
    """Find the part of the image a wall can cover: top, bottom, left, right; None when it is out of sight."""
    scale = camera.pixels_per_metre(near)
    top = int(np.clip(np.floor(camera.horizon + (camera.eye - height) * scale), 0, camera.rows))
    bottom = int(np.clip(np.ceil(camera.horizon + camera.eye * scale) + 1, 0, camera.rows))
    left = int(np.clip(np.floor(edges.min()), 0, camera.columns))
    right = int(np.clip(np.ceil(edges.max()) + 1, 0, camera.columns))
    return (top, bottom, left, right) if right > left and bottom > top else None


def _wall(style: Style, along: Floats, up: Floats, height: float, light: Light) -> Floats:
    """Make surfaces ``[h, w, 10]`` of a wall from metres along it and metres above the ground."""
    cells = np.abs(np.floor(along / np.float32(style.pitch))).astype(np.int32) % 32
    storeys = np.clip(np.floor(up / np.float32(style.storey)), 0, 63).astype(np.int32)
    chance = style.hashes[cells, storeys]
    window, shop = _openings(style, along, up, height)
    materials = np.empty((*up.shape, CHANNELS), np.float32)
    tone = np.float32(1.0) + np.float32(0.1) * (chance - np.float32(0.5))
    tone *= np.where(np.mod(up, np.float32(style.storey)) < 0.22, np.float32(1.12), np.float32(1.0))
    tone *= np.where(up > height - 0.5, np.float32(0.7), np.float32(1.0))
    materials[..., ALBEDO] = np.array(style.wall, np.float32) * tone[..., None]
    materials[..., ALBEDO][window] = np.array((0.05, 0.065, 0.08), np.float32)
    materials[..., SUN] = np.where(window, np.float32(1.6), np.float32(1.0))
    materials[..., AMBIENT] = np.clip(np.float32(0.55) + up * np.float32(0.04), 0.0, 1.0)
    materials[..., AMBIENT][window] = np.float32(1.9)
    materials[..., RETRO] = 1.0
    materials[..., EMISSION] = _window_light(style, chance, window, shop, light)
    return materials


def _openings(style: Style, along: Floats, up: Floats, height: float) -> tuple[Mask, Mask]:
    """Find windows (shop windows included), and shop windows alone."""
    across = np.mod(along, np.float32(style.pitch)) / np.float32(style.pitch)
    upward = np.mod(up, np.float32(style.storey)) / np.float32(style.storey)
    margin = (1.0 - style.window[0]) / 2.0
    upper = (across > margin) & (across < 1.0 - margin) & (upward > 0.28) & (upward < 0.28 + style.window[1])
    window = upper & (up < height - 0.8)
    shop = (up < style.storey) & (up > 0.5) & (upward < 0.82) & (across > 0.08) & (across < 0.92) & style.shop
    return np.asarray(np.where(up < style.storey, shop | (window & (not style.shop)), window), bool), shop


def _window_light(style: Style, chance: Floats, window: Mask, shop: Mask, light: Light) -> Floats:
    glow = np.zeros((*chance.shape, 3), np.float32)
    if light.lamps == 0.0:
        return glow
    hues = np.array(WINDOW_LIGHT, np.float32)
    lit = window & ((chance < style.lit_share) | shop)
    strength = np.float32(light.lamps) * (np.float32(0.012) + np.float32(0.05) * np.mod(chance * 37.0, 1.0) ** 3)
    strength = np.where(shop, strength + np.float32(0.03), strength)
    hue = (np.mod(chance * 91.0, 1.0) * len(hues)).astype(np.int32)
    glow[lit] = (hues[hue] * strength[..., None])[lit]
    return glow
