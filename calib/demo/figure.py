"""A flat figure that stands on the ground and faces the camera: drawn in metres, painted in pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calib.demo.camera import Camera
from calib.demo.canvas import Canvas, Floats

Point = tuple[float, float]

_CIRCLE = np.linspace(0.0, 2.0 * np.pi, 14, endpoint=False)


@dataclass(frozen=True)
class Figure:
    """Where a figure stands, and its class.

    Attributes:
        canvas: what it is painted on.
        camera: how metres become pixels.
        x: metres right of the camera.
        z: metres ahead.
        label: class id of its parts.
        flip: +1, or -1 for a mirrored figure.
    """

    canvas: Canvas
    camera: Camera
    x: float
    z: float
    label: int
    flip: float = 1.0

    def polygon(self, points: list[Point], material: Floats, label: int | None = None) -> None:
        """Fill a polygon of ``(right, up)`` metres from the foot."""
        right, up = np.array(points).T
        pixels = self.camera.project(self.x + self.flip * right, up, self.z)
        self.canvas.polygon(pixels, material, self.z, self.label if label is None else label)

    def box(
        self, left: float, right: float, low: float, high: float, material: Floats, label: int | None = None
    ) -> None:
        """Fill an upright rectangle."""
        self.polygon([(left, low), (right, low), (right, high), (left, high)], material, label)

    def disc(self, centre: Point, radii: Point, material: Floats, label: int | None = None) -> None:
        """Fill an ellipse."""
        ring = zip(centre[0] + radii[0] * np.cos(_CIRCLE), centre[1] + radii[1] * np.sin(_CIRCLE), strict=True)
        self.polygon([(float(right), float(up)) for right, up in ring], material, label)

    def bar(self, start: Point, end: Point, width: float, material: Floats, label: int | None = None) -> None:
        """Fill a straight bar of ``width`` metres between two points."""
        along = np.subtract(end, start)
        across = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-6) * width / 2
        corners = [np.add(start, across), np.add(end, across), np.subtract(end, across), np.subtract(start, across)]
        self.polygon([(float(right), float(up)) for right, up in corners], material, label)

    def contact_shadow(self, half_width: float, half_length: float) -> None:
        """Darken the ground below the figure."""
        right, ahead = half_width * np.cos(_CIRCLE), half_length * np.sin(_CIRCLE)
        self.canvas.shade(self.camera.project(self.x + right, 0.0, self.z + ahead), 0.25, 0.45)
