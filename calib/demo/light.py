"""The light of a scene, from noon to night on one continuous scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calib.demo.canvas import Colour

NIGHT_BELOW = 0.2
DUSK_BELOW = 0.55


def light_group(level: float) -> str:
    """Name a light level: ``night`` below 0.2, ``dusk`` below 0.55, else ``day``."""
    if level < NIGHT_BELOW:
        return "night"
    return "dusk" if level < DUSK_BELOW else "day"


@dataclass(frozen=True)
class Light:
    """What shines in a scene; 1.0 is the light of noon on a white wall.

    Attributes:
        level: 1 at noon, 0 in the dead of night.
        sun: direct sunlight, linear RGB, zero once the sun is down.
        ambient: light of the sky, linear RGB.
        zenith: radiance of the sky overhead.
        skyline: radiance of the sky at the horizon, which is also the colour of haze.
        sun_side: -1 when the sun stands to the left of the street, +1 to the right.
        shadow_length: length of a shadow across the street, in heights of what casts it.
        lamps: brightness of lamps and lit windows, 0 (off) to 1.
        headlamps: brightness of car headlamps, 0 to 1; small but not zero by day.
        sun_disc: radiance of a sun that stands low ahead, zero when it is not in view.
        haze: extinction per metre.
        gain: exposure: what the camera multiplies radiance with; it makes up for most of the dark, not for all.
    """

    level: float
    sun: Colour
    ambient: Colour
    zenith: Colour
    skyline: Colour
    sun_side: float
    shadow_length: float
    lamps: float
    headlamps: float
    sun_disc: float
    haze: float
    gain: float


def choose_light(level: float, rng: np.random.Generator) -> Light:
    """Draw the weather for a light level in 0..1."""
    darkness = 1.0 - level
    sky = 0.42 * 10.0 ** (-2.6 * darkness**1.25)
    overcast = rng.random() < 0.3
    sun = 0.0 if overcast else 0.95 * _ramp(level, 0.45, 0.8)
    sky *= rng.uniform(1.2, 1.9) if overcast else 1.0
    warmth = _ramp(level, 0.1, 0.35) * (1.0 - _ramp(level, 0.45, 0.75)) * rng.uniform(0.3, 1.0)
    return Light(
        level=level,
        sun=_mix((1.0, 0.94, 0.84), (1.0, 0.6, 0.3), 1.0 - _ramp(level, 0.5, 0.85), sun),
        ambient=_mix((0.92, 0.97, 1.06), (0.72, 0.82, 1.25), darkness, sky),
        zenith=_mix((0.75, 0.85, 1.0) if overcast else (0.3, 0.55, 1.1), (0.3, 0.36, 0.62), darkness, sky * 1.5),
        skyline=_skyline(overcast, darkness, warmth, sky),
        sun_side=float(rng.choice([-1.0, 1.0])),
        shadow_length=float(rng.uniform(0.35, 1.1) + 1.2 * darkness),
        lamps=_ramp(0.56 - level, 0.0, 0.12),
        headlamps=max(0.06 * float(rng.random() < 0.5), _ramp(0.64 - level, 0.0, 0.2)),
        sun_disc=_sun_disc(level, overcast, rng),
        haze=float(rng.choice([0.002, 0.004, 0.009, 0.02], p=[0.4, 0.35, 0.17, 0.08])),
        gain=float(1.05 * (sky / 0.42) ** -0.3 * rng.uniform(0.85, 1.2)),
    )


def _sun_disc(level: float, overcast: bool, rng: np.random.Generator) -> float:
    """Let a low sun stand ahead of the camera in some clear scenes: it blinds, as headlamps do at night."""
    low = _ramp(level, 0.34, 0.5) * (1.0 - _ramp(level, 0.8, 0.95))
    return 60.0 * low if not overcast and rng.random() < 0.3 else 0.0


def _skyline(overcast: bool, darkness: float, warmth: float, sky: float) -> Colour:
    plain = _mix((0.9, 0.95, 1.0) if overcast else (0.8, 0.9, 1.05), (0.62, 0.6, 0.8), darkness, sky * 2.0)
    return _mix(plain, (4.2 * sky, 2.0 * sky, 0.9 * sky), warmth, 1.0)


def _ramp(value: float, low: float, high: float) -> float:
    """Rise smoothly from 0 at ``low`` to 1 at ``high``."""
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return share * share * (3.0 - 2.0 * share)


def _mix(first: Colour, second: Colour, share: float, factor: float) -> Colour:
    red, green, blue = (factor * (a + (b - a) * share) for a, b in zip(first, second, strict=True))
    return (red, green, blue)
