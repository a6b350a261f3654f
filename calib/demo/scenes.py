"""Street scenes at any light from noon to night, drawn from a seed, with pixel-exact labels.

Needs numpy and OpenCV only. A seed gives the same bytes whenever it is drawn with the same library versions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.demo import actors, furniture
from calib.demo.buildings import paint_building
from calib.demo.camera import Camera
from calib.demo.canvas import Canvas, Floats, surface
from calib.demo.classes import BICYCLIST, CAR, PEDESTRIAN, POLE, SIGN, VEGETATION, VOID
from calib.demo.figure import Figure
from calib.demo.light import Light, choose_light
from calib.demo.optics import Lamp, develop
from calib.demo.street import (
    LEFT,
    RIGHT,
    Side,
    Street,
    choose_street,
    noise_tile,
    paint_backdrop,
    paint_ground,
    paint_sky,
    paint_sun,
)

ROWS, COLUMNS = 192, 256

Job = tuple[float, Callable[[], object]]
"""A distance, and what paints the thing that stands there."""


@dataclass(frozen=True)
class Scene:
    """One photographed street.

    Attributes:
        image: uint8 RGB ``[rows, columns, 3]``.
        label: uint8 ``[rows, columns]``, class ids of :mod:`calib.demo.classes`, 255 where nothing is scored.
        level: the light, 1 at noon to 0 at night.
    """

    image: NDArray[np.uint8]
    label: NDArray[np.uint8]
    level: float


def draw_scene(seed: int | tuple[int, ...], level: float, rows: int = ROWS, columns: int = COLUMNS) -> Scene:
    """Draw one scene.

    Args:
        seed: any non-negative number, or a tuple of them.
        level: light, 0 (night) to 1 (noon).
        rows: image height in pixels.
        columns: image width in pixels.
    """
    painter = Painter(np.random.default_rng(seed), level, Canvas(rows, columns))
    painter.paint()
    image = develop(painter.canvas, painter.camera, painter.light, painter.lamps, painter.wetness, painter.rng)
    label = painter.canvas.label
    if painter.mirrored:
        image, label = np.ascontiguousarray(image[:, ::-1]), np.ascontiguousarray(label[:, ::-1])
    return Scene(image, label, level)


class Painter:
    """Paints one scene on a canvas, everything from far to near."""

    def __init__(self, rng: np.random.Generator, level: float, canvas: Canvas) -> None:
        self.rng, self.canvas = rng, canvas
        self.light: Light = choose_light(level, rng)
        self.street: Street = choose_street(rng)
        self.camera = _choose_camera(canvas.rows, canvas.columns, rng)
        self.tile: Floats = noise_tile(rng)
        self.lamps: list[Lamp] = []
        self.wetness = float(rng.uniform(0.3, 1.0)) if rng.random() < 0.2 + 0.25 * (1.0 - level) else 0.0
        self.mirrored = bool(rng.random() < 0.35)

    def paint(self) -> None:
        """Paint sky, ground, buildings, then all that stands on the street by distance."""
        paint_sky(self.canvas, self.camera, self.light, self.tile)
        if self.light.sun_disc > 0.0:
            paint_sun(self.canvas, self.camera, self.light, self.rng)
        paint_ground(self.canvas, self.camera, self.street, self.light, self.tile)
        paint_backdrop(self.canvas, self.camera, self.rng)
        _paint_from_far(self._buildings())
        _paint_from_far(self._roadside() + self._traffic() + self._people())
        if self.rng.random() < 0.3:
            self._paint_bonnet()

    def _buildings(self) -> list[Job]:
        return [job for side in (self.street.left, self.street.right) for job in self._row(side)]

    def _row(self, side: Side) -> list[Job]:
        jobs: list[Job] = []
        for block in side.blocks:
            if block.height > 0.0:
                jobs.append((block.end, self._job(paint_building, self.street, side, block, self.light, self.rng)))
            elif side.park or self.rng.random() < 0.6:
                jobs += self._grove(side, block.start, block.end)
        return jobs

    def _grove(self, side: Side, start: float, end: float) -> list[Job]:
        """Plant trees and bushes beyond the building line."""
        jobs: list[Job] = []
        for _ in range(int(self.rng.integers(2, 5))):
            z, x = self.rng.uniform(start, end), side.front + side.sign * self.rng.uniform(1.5, 9.0)
            if z > 4.0:
                jobs.append((z, self._tree(x, z)))
        return jobs

    def _job(self, paint: Callable[..., object], *arguments: object) -> Callable[[], object]:
        return lambda: paint(self.canvas, self.camera, *arguments)

    def _tree(self, x: float, z: float) -> Callable[[], object]:
        figure = Figure(self.canvas, self.camera, float(x), float(z), VEGETATION)
        return lambda: furniture.paint_tree(figure, self._sun(x, z), self.tile, self.rng)

    def _sun(self, x: float, z: float) -> float:
        """Share of sunlight on something that stands at a place."""
        return 0.08 if bool(self.street.in_shadow(x, np.array(z, np.float32), self.light)) else 0.85

    def _roadside(self) -> list[Job]:
        jobs: list[Job] = []
        for side in (self.street.left, self.street.right):
            jobs += self._street_lamps(side) + self._signs(side)
            if self.rng.random() < 0.45:
                jobs += self._trees_along(side)
            if self.rng.random() < 0.15:
                jobs += self._bollards(side)
        return jobs

    def _street_lamps(self, side: Side) -> list[Job]:
        jobs: list[Job] = []
        z, spacing = self.rng.uniform(5.0, 22.0), self.rng.uniform(18.0, 30.0)
        x = side.kerb + side.sign * 0.5
        while z < 95.0 and (side.sign > 0 or self.rng.random() < 0.85):
            figure = Figure(self.canvas, self.camera, float(x), float(z), POLE, flip=-side.sign)
            jobs.append((z, self._lamp_job(figure)))
            if z < 50.0:
                self.lamps.append(Lamp(float(x) - side.sign, furniture.LAMP_HEIGHT_M, float(z)))
            z += spacing
        return jobs

    def _lamp_job(self, figure: Figure) -> Callable[[], object]:
        return lambda: furniture.paint_street_lamp(figure, self.light, self._sun(figure.x, figure.z), self.rng)

    def _signs(self, side: Side) -> list[Job]:
        jobs: list[Job] = []
        for _ in range(int(self.rng.integers(1, 4))):
            z, x = 5.0 + 45.0 * self.rng.random() ** 1.4, side.kerb + side.sign * self.rng.uniform(0.35, 0.9)
            paint = furniture.paint_traffic_light if self.rng.random() < 0.22 else furniture.paint_sign
            jobs.append((z, self._figure_job(paint, x, z, SIGN)))
        return jobs

    def _figure_job(self, paint: Callable[..., object], x: float, z: float, label: int) -> Callable[[], object]:
        flip = float(self.rng.choice([-1.0, 1.0]))
        figure = Figure(self.canvas, self.camera, float(x), float(z), label, flip)
        return lambda: paint(figure, self._sun(x, z), self.rng)

    def _trees_along(self, side: Side) -> list[Job]:
        offset, spacing = self.rng.uniform(6.0, 14.0), self.rng.uniform(9.0, 16.0)
        places = np.arange(offset, 80.0, spacing)
        x = side.kerb + side.sign * 1.0
        return [(float(z), self._tree(x, float(z))) for z in places]

    def _bollards(self, side: Side) -> list[Job]:
        x, start = side.kerb + side.sign * 0.25, self.rng.uniform(4.0, 12.0)
        places = np.arange(start, start + 14.0, 1.8)
        return [(float(z), self._figure_job(furniture.paint_bollard, x, float(z), POLE)) for z in places]

    def _traffic(self) -> list[Job]:
        jobs: list[Job] = []
        lane = self.street.half_width * 0.5
        for sign, oncoming in ((RIGHT, False), (LEFT, True)):
            z = self.rng.uniform(7.0, 40.0)
            while z < 75.0 and self.rng.random() < 0.8:
                jobs.append((z, self._car(self.street.middle + sign * lane * 0.8, z, oncoming, parked=False)))
                z += self.rng.uniform(8.0, 30.0)
        for side in (self.street.left, self.street.right):
            if self.street.half_width > 4.0 and self.rng.random() < 0.5:
                jobs += self._parked(side)
        return jobs

    def _parked(self, side: Side) -> list[Job]:
        jobs: list[Job] = []
        z = self.rng.uniform(5.0, 20.0)
        while z < 60.0:
            if self.rng.random() < 0.7:
                jobs.append((z, self._car(side.kerb - side.sign * 1.0, z, side.sign < 0, parked=True)))
            z += self.rng.uniform(5.2, 6.5)
        return jobs

    def _car(self, x: float, z: float, oncoming: bool, *, parked: bool) -> Callable[[], object]:
        figure = Figure(self.canvas, self.camera, float(x), float(z), CAR)
        sun = self._sun(figure.x, figure.z)
        return lambda: actors.paint_car(figure, sun, self.light, self.rng, oncoming=oncoming, parked=parked)

    def _people(self) -> list[Job]:
        jobs: list[Job] = []
        for _ in range(int(self.rng.integers(2, 8))):
            side = self.street.left if self.rng.random() < 0.5 else self.street.right
            x = side.kerb + side.sign * self.rng.uniform(0.3, max(abs(side.front - side.kerb) - 0.4, 0.6))
            z = 5.0 + 45.0 * self.rng.random() ** 1.3
            jobs.append((z, self._figure_job(actors.paint_pedestrian, x, z, PEDESTRIAN)))
        if self.street.crossing is not None and self.rng.random() < 0.7:
            for _ in range(int(self.rng.integers(1, 4))):
                z = self.street.crossing + self.rng.uniform(0.4, 2.8)
                x = self.street.middle + self.street.half_width * self.rng.uniform(-1.0, 1.0)
                jobs.append((z, self._figure_job(actors.paint_pedestrian, x, z, PEDESTRIAN)))
        return jobs + self._riders()

    def _riders(self) -> list[Job]:
        jobs: list[Job] = []
        for _ in range(int(self.rng.integers(0, 4))):
            across = self.rng.random() < 0.4
            z = 6.0 + 34.0 * self.rng.random() ** 1.2
            sign = self.rng.choice([LEFT, RIGHT])
            spread = self.rng.uniform(-1.0, 1.0) if across else sign * self.rng.uniform(0.6, 0.9)
            jobs.append((z, self._rider(self.street.middle + self.street.half_width * spread, z, bool(across))))
        return jobs

    def _rider(self, x: float, z: float, across: bool) -> Callable[[], object]:
        figure = Figure(self.canvas, self.camera, float(x), float(z), BICYCLIST, float(self.rng.choice([-1.0, 1.0])))
        return lambda: actors.paint_bicyclist(figure, across, self._sun(x, z), self.light, self.rng)

    def _paint_bonnet(self) -> None:
        """Paint the camera car's own bonnet, which nobody scores."""
        rows, columns = self.canvas.rows, self.canvas.columns
        turn = np.linspace(np.pi, 2.0 * np.pi, 24)
        height = rows * self.rng.uniform(0.03, 0.08)
        edge = np.stack([columns * (0.5 + 0.62 * np.cos(turn)), rows + height * np.sin(turn)], axis=1)
        tone = float(self.rng.uniform(0.02, 0.35))
        self.canvas.polygon(edge, surface((tone, tone, tone), sun=0.4), 1.5, VOID)


def _choose_camera(rows: int, columns: int, rng: np.random.Generator) -> Camera:
    return Camera(
        rows=rows,
        columns=columns,
        focal=float(columns * rng.uniform(0.8, 1.05)),
        centre=float(columns * rng.uniform(0.36, 0.64)),
        horizon=float(rows * rng.uniform(0.38, 0.52)),
        eye=float(rng.uniform(1.25, 1.75)),
    )


def _paint_from_far(jobs: list[Job]) -> None:
    for _, paint in sorted(jobs, key=lambda job: -job[0]):
        paint()
