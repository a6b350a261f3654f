"""What stands at the roadside: street lamps, signs, traffic lights, bollards, trees."""

from __future__ import annotations

import cv2
import numpy as np

from calib.demo.canvas import AMBIENT, CHANNELS, RETRO, SUN, Canvas, Colour, Floats, surface
from calib.demo.classes import POLE, SIGN, VEGETATION
from calib.demo.figure import Figure
from calib.demo.light import Light

LAMP_HEIGHT_M = 5.6
SIGN_FOIL = 7.0
RED, WHITE, BLUE, YELLOW = (0.62, 0.03, 0.03), (0.75, 0.75, 0.73), (0.03, 0.12, 0.5), (0.75, 0.5, 0.04)
GREEN: Colour = (0.02, 0.32, 0.14)


def paint_street_lamp(figure: Figure, light: Light, sun: float, rng: np.random.Generator) -> float:
    """Paint a lamp post whose arm reaches to the right before flipping; answer the arm's length in metres."""
    tone = rng.uniform(0.05, 0.3)
    metal = surface((tone, tone, tone * 1.03), sun=sun)
    arm = float(rng.uniform(0.5, 1.8))
    figure.bar((0.0, 0.0), (0.0, LAMP_HEIGHT_M), 0.15, metal)
    figure.bar((0.0, 0.0), (0.0, 0.9), 0.22, metal)
    figure.bar((0.0, LAMP_HEIGHT_M - 0.05), (arm, LAMP_HEIGHT_M + 0.2), 0.1, metal)
    glow = 1.1 * light.lamps
    figure.box(arm - 0.1, arm + 0.45, LAMP_HEIGHT_M + 0.1, LAMP_HEIGHT_M + 0.28, metal)
    bulb = surface((0.5, 0.5, 0.5), sun=sun, emission=(glow, glow * 0.76, glow * 0.42))
    figure.box(arm - 0.05, arm + 0.4, LAMP_HEIGHT_M + 0.02, LAMP_HEIGHT_M + 0.14, bulb)
    return arm


def paint_sign(figure: Figure, sun: float, rng: np.random.Generator) -> None:
    """Paint a traffic sign on its pole."""
    height = float(rng.uniform(2.1, 2.8))
    grey = surface((0.34, 0.35, 0.36), sun=sun)
    figure.bar((0.0, 0.0), (0.0, height + 0.2), 0.08, grey, POLE)
    _PLATES[int(rng.integers(len(_PLATES)))](figure, height, sun)
    if rng.random() < 0.25:
        figure.box(-0.3, 0.3, height - 0.78, height - 0.45, surface(WHITE, sun=sun, retro=SIGN_FOIL), SIGN)


def _foil(colour: Colour, sun: float) -> Floats:
    return surface(colour, sun=sun, retro=SIGN_FOIL)


def _paint_ring(figure: Figure, height: float, sun: float) -> None:
    figure.disc((0.0, height), (0.36, 0.36), _foil(RED, sun), SIGN)
    figure.disc((0.0, height), (0.25, 0.25), _foil(WHITE, sun), SIGN)
    figure.box(-0.12, 0.12, height - 0.1, height + 0.1, _foil((0.05, 0.05, 0.05), sun), SIGN)


def _paint_warning(figure: Figure, height: float, sun: float) -> None:
    figure.polygon([(-0.45, height - 0.3), (0.45, height - 0.3), (0.0, height + 0.45)], _foil(RED, sun), SIGN)
    figure.polygon([(-0.28, height - 0.2), (0.28, height - 0.2), (0.0, height + 0.26)], _foil(WHITE, sun), SIGN)


def _paint_order(figure: Figure, height: float, sun: float) -> None:
    figure.disc((0.0, height), (0.34, 0.34), _foil(BLUE, sun), SIGN)
    figure.bar((0.0, height - 0.2), (0.0, height + 0.2), 0.1, _foil(WHITE, sun), SIGN)


def _paint_priority(figure: Figure, height: float, sun: float) -> None:
    corners = [(0.0, height - 0.42), (0.42, height), (0.0, height + 0.42), (-0.42, height)]
    figure.polygon(corners, _foil(WHITE, sun), SIGN)
    figure.polygon([(0.68 * x, height + 0.68 * (y - height)) for x, y in corners], _foil(YELLOW, sun), SIGN)


def _paint_crossing(figure: Figure, height: float, sun: float) -> None:
    figure.box(-0.36, 0.36, height - 0.36, height + 0.36, _foil(BLUE, sun), SIGN)
    figure.polygon([(-0.26, height - 0.24), (0.26, height - 0.24), (0.0, height + 0.28)], _foil(WHITE, sun), SIGN)


def _paint_direction(figure: Figure, height: float, sun: float) -> None:
    figure.box(-0.85, 0.85, height - 0.26, height + 0.26, _foil(GREEN, sun), SIGN)
    figure.box(-0.7, 0.5, height - 0.08, height + 0.08, _foil(WHITE, sun), SIGN)


_PLATES = (_paint_ring, _paint_warning, _paint_order, _paint_priority, _paint_crossing, _paint_direction)


def paint_traffic_light(figure: Figure, sun: float, rng: np.random.Generator) -> None:
    """Paint a traffic light; one lamp is lit, by day as by night."""
    figure.bar((0.0, 0.0), (0.0, 2.4), 0.13, surface((0.12, 0.12, 0.13), sun=sun), POLE)
    figure.box(-0.2, 0.2, 2.3, 3.3, surface((0.03, 0.03, 0.03), sun=sun), SIGN)
    lit = int(rng.integers(3))
    lamps = ((0.03, 1.0, 0.45), (1.0, 0.5, 0.03), (1.0, 0.05, 0.03))
    for number, (red, green, blue) in enumerate(lamps):
        glow = 0.8 if number == lit else 0.0
        lamp = surface((red * 0.1, green * 0.1, blue * 0.1), sun=sun, emission=(red * glow, green * glow, blue * glow))
        figure.disc((0.0, 2.48 + 0.32 * number), (0.12, 0.12), lamp, SIGN)


def paint_bollard(figure: Figure, sun: float, rng: np.random.Generator) -> None:
    """Paint a bollard with a white band."""
    tone = float(rng.uniform(0.05, 0.4))
    figure.bar((0.0, 0.0), (0.0, 0.95), 0.14, surface((tone, tone, tone), sun=sun))
    figure.box(-0.07, 0.07, 0.72, 0.84, surface(WHITE, sun=sun, retro=SIGN_FOIL))


def paint_tree(figure: Figure, sun: float, tile: Floats, rng: np.random.Generator) -> None:
    """Paint a tree: a trunk, and a crown of round clumps with a ragged edge."""
    height = float(rng.uniform(4.5, 9.5))
    crown = height * float(rng.uniform(0.26, 0.36))
    figure.contact_shadow(crown, crown * 0.7)
    bark = surface((0.13, 0.095, 0.065), sun=sun, ambient=0.8)
    figure.polygon([(-0.17, 0.0), (0.17, 0.0), (0.1, height - crown), (-0.1, height - crown)], bark)
    centre = figure.camera.project(figure.x, height - crown, figure.z)[0]
    radius = crown * figure.camera.pixels_per_metre(figure.z)
    _paint_crown(figure.canvas, (float(centre[0]), float(centre[1])), radius, sun, figure.z, tile, rng)


def paint_hedge(figure: Figure, length: float, sun: float, rng: np.random.Generator) -> None:
    """Paint a bush, ``length`` metres wide."""
    height = float(rng.uniform(0.9, 2.2))
    green = surface(_leaves(rng), sun=sun, ambient=0.7)
    for step in np.linspace(0.0, length, 6):
        figure.disc((float(step), height * 0.4), (length * 0.2, height * float(rng.uniform(0.5, 0.7))), green)


def _leaves(rng: np.random.Generator) -> Colour:
    if rng.random() < 0.15:
        return (0.3, 0.14, 0.035)
    return (float(rng.uniform(0.05, 0.13)), float(rng.uniform(0.12, 0.21)), float(rng.uniform(0.02, 0.05)))


def _paint_crown(
    canvas: Canvas,
    centre: tuple[float, float],
    radius: float,
    sun: float,
    depth: float,
    tile: Floats,
    rng: np.random.Generator,
) -> None:
    reach = 1.35 * radius
    left, right = (int(np.clip(np.rint(centre[0] + step), 0, canvas.columns)) for step in (-reach, reach + 1))
    top, bottom = (int(np.clip(np.rint(centre[1] + step), 0, canvas.rows)) for step in (-reach, reach + 1))
    if right <= left or bottom <= top:
        return
    across = (np.arange(left, right, dtype=np.float32) - np.float32(centre[0])) / np.float32(radius)
    down = ((np.arange(top, bottom, dtype=np.float32) - np.float32(centre[1])) / np.float32(radius))[:, None]
    body = np.full((bottom - top, right - left), 9.0, np.float32)
    for _ in range(7):
        x, y, size = rng.uniform(-0.6, 0.6), rng.uniform(-0.65, 0.45), rng.uniform(0.4, 0.65)
        body = np.minimum(body, ((across - np.float32(x)) ** 2 + (down - np.float32(y)) ** 2) / np.float32(size**2))
    grain = _grain(tile, body.shape, radius, rng)
    mask = body + grain * np.float32(0.35) < 1.0
    canvas.stamp(mask, top, left, _foliage(_leaves(rng), down - across * 0.2, grain, sun), depth, VEGETATION)


def _grain(tile: Floats, shape: tuple[int, ...], radius: float, rng: np.random.Generator) -> Floats:
    """Cut a piece of noise whose clumps grow with the crown's size on the picture."""
    zoom = max(radius / 24.0, 1.0)
    height, width = min(int(shape[0] / zoom) + 2, 200), min(int(shape[1] / zoom) + 2, 200)
    y, x = rng.integers(0, 256 - height), rng.integers(0, 256 - width)
    piece = tile[y : y + height, x : x + width]
    return np.asarray(cv2.resize(piece, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), np.float32)


def _foliage(leaves: Colour, shade: Floats, grain: Floats, sun: float) -> Floats:
    light = np.clip(np.float32(0.8) - np.float32(0.5) * shade + np.float32(0.45) * grain, 0.15, 1.6)
    materials = np.zeros((*grain.shape, CHANNELS), np.float32)
    materials[..., :3] = np.array(leaves, np.float32) * light[..., None]
    materials[..., SUN] = sun
    materials[..., AMBIENT] = materials[..., RETRO] = 1.0
    return materials
