"""A pinhole camera over a flat street: metres to pixels and back.

World axes: x to the right, y up from the ground, z ahead, all in metres; the camera stands at ``(0, eye, 0)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

NEAREST_M = 0.7
"""Points nearer than this are projected as if they lay here, so that polygons never turn inside out."""


@dataclass(frozen=True)
class Camera:
    """A level camera.

    Attributes:
        rows: image height in pixels.
        columns: image width in pixels.
        focal: focal length in pixels.
        centre: column of the vanishing point; off the middle when the camera is turned a little.
        horizon: row of the horizon.
        eye: height of the camera above the ground in metres.
    """

    rows: int
    columns: int
    focal: float
    centre: float
    horizon: float
    eye: float

    def project(self, x: ArrayLike, y: ArrayLike, z: ArrayLike) -> NDArray[np.float64]:
        """Project world points (metres, broadcast against each other) to pixels ``[N, 2]``, column first."""
        right, up, ahead = (np.asarray(axis, np.float64).ravel() for axis in (x, y, z))
        scale = self.focal / np.maximum(ahead, NEAREST_M)
        pixels = np.empty((max(right.size, up.size, ahead.size), 2))
        pixels[:, 0] = self.centre + right * scale
        pixels[:, 1] = self.horizon + (self.eye - up) * scale
        return pixels

    def pixels_per_metre(self, z: float) -> float:
        """Size in pixels of a metre at distance ``z``."""
        return self.focal / max(z, NEAREST_M)
