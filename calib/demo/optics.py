"""From painted surfaces to the pixels of a camera: light, haze, glare, exposure and sensor noise."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.demo.camera import Camera
from calib.demo.canvas import ALBEDO, AMBIENT, DEPTH, EMISSION, RETRO, SUN, Canvas, Floats, Mask
from calib.demo.classes import ROAD
from calib.demo.light import Light

HEADLAMP_INTENSITY = 9.0
STREET_LAMP_INTENSITY = 2.0
READ_NOISE = 0.0012
SHOT_NOISE = 0.013
LENS_BLUR_PX = 0.45


@dataclass(frozen=True)
class Lamp:
    """A street lamp's light: position in metres (see :class:`calib.demo.camera.Camera`)."""

    x: float
    y: float
    z: float


def develop(
    canvas: Canvas, camera: Camera, light: Light, lamps: list[Lamp], wetness: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Light the scene and photograph it: uint8 RGB ``[rows, columns, 3]``.

    Args:
        canvas: what was painted.
        camera: the camera it was painted with.
        light: the light of the scene.
        lamps: street lamps that are near enough to matter.
        wetness: 0 for a dry road, 1 for one that mirrors lamps.
        rng: source of the sensor's noise.
    """
    radiance = _radiance(canvas, camera, light, lamps)
    if wetness > 0.0:
        _mirror(radiance, canvas.label == ROAD, camera, wetness)
    _add_haze(radiance, canvas.surfaces[..., DEPTH], light)
    return _expose(radiance * np.float32(light.gain), light.gain, rng)


def _radiance(canvas: Canvas, camera: Camera, light: Light, lamps: list[Lamp]) -> Floats:
    surfaces = canvas.surfaces
    incoming = surfaces[..., AMBIENT, None] * np.array(light.ambient, np.float32)
    incoming += surfaces[..., SUN, None] * np.array(light.sun, np.float32)
    if light.lamps > 0.0 or light.headlamps > 0.5:
        right, up = _positions(surfaces[..., DEPTH], camera)
        incoming += _headlamps(surfaces, right, up, light)[..., None] * np.array((1.0, 0.97, 0.88), np.float32)
        for lamp in lamps:
            glow = _street_lamp(surfaces[..., DEPTH], right, up, lamp) * np.float32(light.lamps)
            incoming += glow[..., None] * np.array((1.0, 0.78, 0.48), np.float32)
    return np.asarray(incoming * surfaces[..., ALBEDO] + surfaces[..., EMISSION], np.float32)


def _positions(depth: Floats, camera: Camera) -> tuple[Floats, Floats]:
    """Find where each pixel's surface is: metres to the right, and metres above the ground."""
    columns = (np.arange(camera.columns, dtype=np.float32) - np.float32(camera.centre)) / np.float32(camera.focal)
    rows = (np.arange(camera.rows, dtype=np.float32) - np.float32(camera.horizon)) / np.float32(camera.focal)
    return depth * columns, np.float32(camera.eye) - depth * rows[:, None]


def _headlamps(surfaces: Floats, right: Floats, up: Floats, light: Light) -> Floats:
    """Light of the camera car's own dipped headlamps: two soft cones ahead, cut off above lamp height."""
    depth = np.maximum(surfaces[..., DEPTH], np.float32(2.0))
    sideways = right / (np.float32(0.35) * depth + np.float32(1.0))
    cut_off = np.clip(np.float32(1.15) - (up - np.float32(0.7)) * np.float32(0.55), np.float32(0.04), np.float32(1.0))
    falloff = np.float32(HEADLAMP_INTENSITY * 0.01 * light.headlamps) / (np.float32(20.0) + depth * depth)
    return np.asarray(falloff * np.exp(-sideways * sideways) * cut_off * surfaces[..., RETRO] * np.float32(4.0))


def _street_lamp(depth: Floats, right: Floats, up: Floats, lamp: Lamp) -> Floats:
    """Light of a lamp that shines down: inverse square, cosine to the vertical."""
    drop = np.maximum(np.float32(lamp.y) - up, np.float32(0.0))
    square = (right - np.float32(lamp.x)) ** 2 + drop * drop + (depth - np.float32(lamp.z)) ** 2
    return np.asarray(np.float32(STREET_LAMP_INTENSITY) * drop / (square + np.float32(1.0)) ** np.float32(1.5) * 0.3)


def _mirror(radiance: Floats, road: Mask, camera: Camera, wetness: float) -> None:
    """Add to the road what it mirrors: the picture above the horizon, upside down and smeared along columns."""
    start = int(np.clip(np.ceil(camera.horizon), 1, camera.rows - 1))
    count = min(start, camera.rows - start)
    mirrored = cv2.GaussianBlur(radiance[start - count : start][::-1], (3, 61), 0.8, sigmaY=11.0)
    fading = np.linspace(0.45, 0.0, count, dtype=np.float32)[:, None] * np.float32(wetness)
    radiance[start : start + count] += (fading * road[start : start + count])[..., None] * mirrored


def _add_haze(radiance: Floats, depth: Floats, light: Light) -> None:
    clear = np.exp(depth * np.float32(-light.haze))[..., None]
    radiance *= clear
    radiance += (np.float32(1.0) - clear) * np.array(light.skyline, np.float32)


def _expose(exposed: Floats, gain: float, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Glare, lens blur, noise, tone curve; ``exposed`` is 1.0 where the sensor is full."""
    optical = cv2.GaussianBlur(_add_glare(exposed), (3, 3), LENS_BLUR_PX)
    sensor_gain = np.float32(np.sqrt(gain))
    spread = np.sqrt(np.maximum(optical, 0.0) * (SHOT_NOISE**2 * sensor_gain) + (READ_NOISE * sensor_gain) ** 2)
    noise = rng.standard_normal(optical.shape, np.float32)
    noisy = np.maximum(optical + spread * noise, np.float32(0.0))
    toned = np.minimum(noisy / (np.float32(1.0) + np.float32(0.22) * noisy) * np.float32(1.22), np.float32(1.0))
    return np.asarray(np.rint(np.float32(255.0) * toned ** np.float32(1.0 / 2.2)), np.uint8)


def _add_glare(exposed: Floats) -> Floats:
    """Spread light above sensor fullness: a tight halo and a wide veil, as stray light in a lens does."""
    over = np.minimum(np.maximum(exposed - np.float32(1.0), np.float32(0.0)), np.float32(120.0))
    if not over.any():
        return exposed
    small = cv2.resize(over, None, fx=0.25, fy=0.25, interpolation=cv2.INTER_AREA)
    veil = cv2.GaussianBlur(small, (0, 0), 7.0) * np.float32(0.14)
    wide = cv2.resize(veil, (over.shape[1], over.shape[0]), interpolation=cv2.INTER_LINEAR)
    halo = cv2.GaussianBlur(over, (0, 0), 2.4) * np.float32(0.22)
    return np.asarray(exposed + halo + wide)
