"""What moves: cars, pedestrians and bicyclists."""

from __future__ import annotations

import numpy as np

from calib.demo.canvas import Colour, Floats, surface
from calib.demo.classes import CAR
from calib.demo.figure import Figure, Point
from calib.demo.light import Light

SKIN: tuple[Colour, ...] = ((0.55, 0.36, 0.26), (0.42, 0.26, 0.17), (0.2, 0.11, 0.07))
CLOTHES: tuple[Colour, ...] = (
    (0.03, 0.03, 0.035),
    (0.04, 0.06, 0.16),
    (0.45, 0.04, 0.04),
    (0.55, 0.53, 0.5),
    (0.1, 0.13, 0.07),
    (0.5, 0.34, 0.06),
    (0.22, 0.22, 0.24),
    (0.07, 0.24, 0.3),
)
PAINTS: tuple[Colour, ...] = (
    (0.6, 0.6, 0.6),
    (0.3, 0.31, 0.33),
    (0.03, 0.03, 0.035),
    (0.4, 0.02, 0.02),
    (0.03, 0.08, 0.3),
    (0.1, 0.1, 0.11),
    (0.5, 0.42, 0.25),
    (0.04, 0.16, 0.1),
)
GLASS: Colour = (0.03, 0.038, 0.045)
TYRE: Colour = (0.012, 0.012, 0.012)
CAR_LENGTH_M = 4.2
_TURN = np.linspace(0.0, 2.0 * np.pi, 12, endpoint=False)


def paint_car(
    figure: Figure, sun: float, light: Light, rng: np.random.Generator, *, oncoming: bool, parked: bool
) -> None:
    """Paint a car whose near face stands at the figure's place: shadow, the side one can see, then the near face."""
    tall = float(rng.choice([1.0, 1.0, 1.12, 1.3]))
    paint = PAINTS[int(rng.integers(len(PAINTS)))]
    length = CAR_LENGTH_M * float(rng.uniform(0.88, 1.1))
    ahead = figure.z + np.array([-0.3, -0.3, length + 0.2, length + 0.2])
    below = figure.camera.project(figure.x + np.array([-1.05, 1.05, 1.05, -1.05]), 0.0, ahead)
    figure.canvas.shade(below, 0.1, 0.3)
    if abs(figure.x) > 0.95:
        _paint_car_side(figure, length, tall, paint, sun)
    _paint_car_face(figure, tall, paint, sun)
    _paint_car_lights(figure, oncoming, 0.0 if parked else light.headlamps, light)


def _paint_car_side(figure: Figure, length: float, tall: float, paint: Colour, sun: float) -> None:
    """Paint the side that faces the camera's lane; points run along it in car lengths and up in metres."""
    x = figure.x - np.sign(figure.x) * 0.88

    def fill(ahead: list[float], up: list[float], material: Floats) -> None:
        pixels = figure.camera.project(x, np.array(up) * tall, figure.z + np.array(ahead) * length)
        figure.canvas.polygon(pixels, material, figure.z + 0.3, CAR)

    fill([0.0, 1.0, 1.0, 0.86, 0.0], [0.28, 0.28, 0.7, 0.88, 0.9], surface(_scaled(paint, 0.75), sun=sun, ambient=0.8))
    fill([0.04, 0.8, 0.64, 0.14], [0.88, 0.88, 1.42, 1.42], surface(_scaled(paint, 0.8), sun=sun, ambient=0.8))
    fill([0.1, 0.73, 0.62, 0.17], [0.92, 0.92, 1.34, 1.34], surface(GLASS, sun=sun * 1.5, ambient=1.8))
    for hub in (0.18, 0.8):
        rim = 0.33 / tall
        wheel = (hub + 0.33 / length * np.cos(_TURN), rim + rim * np.sin(_TURN))
        fill(list(wheel[0]), list(wheel[1]), surface(TYRE, sun=sun, ambient=0.6))


def _paint_car_face(figure: Figure, tall: float, paint: Colour, sun: float) -> None:
    body = surface(paint, sun=sun * 0.5)
    for wheel in (-0.66, 0.66):
        figure.box(wheel - 0.12, wheel + 0.12, 0.0, 0.4, surface(TYRE, sun=0.0, ambient=0.4))
    roof, waist = 1.45 * tall, 0.9 * tall
    figure.polygon([(-0.82, waist), (0.82, waist), (0.62, roof), (-0.62, roof)], body)
    glass = surface(GLASS, sun=sun, ambient=2.0)
    figure.polygon([(-0.7, waist + 0.03), (0.7, waist + 0.03), (0.55, roof - 0.09), (-0.55, roof - 0.09)], glass)
    figure.polygon([(-0.86, 0.22), (0.86, 0.22), (0.9, 0.6), (0.84, waist), (-0.84, waist), (-0.9, 0.6)], body)
    figure.box(-0.86, 0.86, 0.24, 0.42, surface(_scaled(paint, 0.35), sun=sun * 0.4, ambient=0.7))
    figure.box(-0.26, 0.26, 0.46, 0.58, surface((0.7, 0.68, 0.55), sun=sun * 0.5, retro=3.0))


def _paint_car_lights(figure: Figure, oncoming: bool, strength: float, light: Light) -> None:
    if oncoming:
        glow = strength * (3.0 if light.level < 0.64 else 14.0)
        lamp = surface((0.6, 0.6, 0.6), emission=(glow, glow * 0.95, glow * 0.85))
    else:
        glow = strength * 0.06
        lamp = surface((0.3, 0.01, 0.01), emission=(glow, glow * 0.04, glow * 0.03), retro=2.0)
    for side in (-0.64, 0.64):
        figure.box(side - 0.15, side + 0.15, 0.6, 0.76, lamp)


def paint_pedestrian(figure: Figure, sun: float, rng: np.random.Generator) -> None:
    """Paint a walking person, 1.1 to 1.9 m tall."""
    size = float(rng.uniform(0.88, 1.08)) if rng.random() > 0.15 else float(rng.uniform(0.62, 0.75))
    figure.contact_shadow(0.35, 0.3)
    coat, trousers = (_cloth(sun, rng) for _ in range(2))
    skin = surface(SKIN[int(rng.integers(len(SKIN)))], sun=sun)
    stride, swing = float(rng.uniform(0.05, 0.34)), float(rng.uniform(-0.2, 0.25))
    _limb(figure, size, (-0.06, 0.88), (-stride, 0.04), 0.17, trousers)
    _limb(figure, size, (0.06, 0.88), (stride * 0.8, 0.04), 0.17, trousers)
    hem = float(rng.choice([0.8, 0.8, 0.55]))
    torso = [(-0.19, hem), (0.19, hem), (0.23, 1.42), (0.12, 1.5), (-0.12, 1.5), (-0.23, 1.42)]
    figure.polygon([(size * right, size * up) for right, up in torso], coat)
    _limb(figure, size, (-0.22, 1.42), (-0.24 - swing, 0.85), 0.12, coat)
    _limb(figure, size, (0.22, 1.42), (0.24 + swing, 0.85), 0.12, coat)
    figure.disc((0.0, 1.62 * size), (0.11 * size, 0.14 * size), skin)
    figure.disc((0.0, 1.69 * size), (0.115 * size, 0.08 * size), surface((0.04, 0.03, 0.02), sun=sun))
    if rng.random() < 0.3:
        figure.box(0.2 * size, 0.46 * size, 0.6 * size, 0.95 * size, _cloth(sun, rng))


def paint_bicyclist(figure: Figure, across: bool, sun: float, light: Light, rng: np.random.Generator) -> None:
    """Paint a rider and the bicycle, seen from the side when riding across the view, else from behind."""
    figure.contact_shadow(0.7 if across else 0.25, 0.25)
    if across:
        _paint_rider_sideways(figure, sun, rng)
    else:
        _paint_rider_behind(figure, sun, light, rng)


def _paint_rider_sideways(figure: Figure, sun: float, rng: np.random.Generator) -> None:
    tyre, frame = surface(TYRE, sun=sun), surface(PAINTS[int(rng.integers(len(PAINTS)))], sun=sun)
    for hub in (-0.54, 0.54):
        _paint_wheel(figure, hub, tyre)
    corners: list[Point] = [(-0.54, 0.34), (-0.08, 0.34), (0.4, 0.82), (-0.2, 0.82)]
    for start, end in ((0, 1), (1, 2), (2, 3), (3, 0), (3, 1)):
        figure.bar(corners[start], corners[end], 0.06, frame)
    figure.bar((0.54, 0.34), (0.36, 1.02), 0.06, frame)
    coat, trousers = (_cloth(sun, rng) for _ in range(2))
    pedal = float(rng.uniform(-0.15, 0.15))
    for foot in (pedal, -pedal):
        _limb(figure, 1.0, (-0.18, 0.98), (0.14 + foot * 0.4, 0.68), 0.17, trousers)
        _limb(figure, 1.0, (0.14 + foot * 0.4, 0.68), (-0.02 + foot, 0.24), 0.13, trousers)
    figure.polygon([(-0.32, 0.92), (-0.05, 0.9), (0.26, 1.42), (0.14, 1.56), (-0.02, 1.5)], coat)
    _limb(figure, 1.0, (0.17, 1.42), (0.4, 1.06), 0.11, coat)
    _paint_rider_head(figure, (0.26, 1.66), sun, rng)


def _paint_wheel(figure: Figure, hub: float, tyre: Floats) -> None:
    """Paint a wheel as a ring of bars: one sees through it."""
    rim = [(hub + 0.33 * float(np.cos(turn)), 0.34 + 0.33 * float(np.sin(turn))) for turn in _TURN]
    for start, end in zip(rim, rim[1:] + rim[:1], strict=True):
        figure.bar(start, end, 0.055, tyre)
    figure.bar((hub - 0.3, 0.34), (hub + 0.3, 0.34), 0.015, tyre)
    figure.bar((hub, 0.04), (hub, 0.64), 0.015, tyre)


def _paint_rider_behind(figure: Figure, sun: float, light: Light, rng: np.random.Generator) -> None:
    coat, trousers = (_cloth(sun, rng) for _ in range(2))
    figure.box(-0.03, 0.03, 0.0, 0.68, surface(TYRE, sun=sun))
    lift = float(rng.uniform(-0.16, 0.16))
    for side, foot in ((-1.0, lift), (1.0, -lift)):
        _limb(figure, 1.0, (0.09 * side, 0.98), (0.14 * side, 0.62 + foot * 0.5), 0.16, trousers)
        _limb(figure, 1.0, (0.14 * side, 0.62 + foot * 0.5), (0.12 * side, 0.28 + foot), 0.12, trousers)
        _limb(figure, 1.0, (0.2 * side, 1.44), (0.32 * side, 1.04), 0.11, coat)
    figure.polygon([(-0.18, 0.88), (0.18, 0.88), (0.24, 1.42), (0.12, 1.52), (-0.12, 1.52), (-0.24, 1.42)], coat)
    _paint_rider_head(figure, (0.0, 1.66), sun, rng)
    glow = 0.05 * light.headlamps
    figure.box(-0.05, 0.05, 0.7, 0.8, surface((0.4, 0.02, 0.02), emission=(glow, 0.03 * glow, 0.02 * glow), retro=4.0))


def _paint_rider_head(figure: Figure, centre: Point, sun: float, rng: np.random.Generator) -> None:
    figure.disc(centre, (0.11, 0.14), surface(SKIN[int(rng.integers(len(SKIN)))], sun=sun))
    helmet = surface(CLOTHES[int(rng.integers(len(CLOTHES)))], sun=sun)
    figure.disc((centre[0] - 0.01, centre[1] + 0.07), (0.14, 0.09), helmet)


def _limb(figure: Figure, size: float, start: Point, end: Point, width: float, material: Floats) -> None:
    figure.bar((start[0] * size, start[1] * size), (end[0] * size, end[1] * size), width * size, material)


def _cloth(sun: float, rng: np.random.Generator) -> Floats:
    return surface(CLOTHES[int(rng.integers(len(CLOTHES)))], sun=sun)


def _scaled(colour: Colour, factor: float) -> Colour:
    return (colour[0] * factor, colour[1] * factor, colour[2] * factor)
