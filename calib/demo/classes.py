"""The classes of the demo's scenes."""

from __future__ import annotations

SKY, BUILDING, ROAD, PAVEMENT, VEGETATION, POLE, SIGN, CAR, PEDESTRIAN, BICYCLIST = range(10)
VOID = 255

CLASS_NAMES = (
    "Sky",
    "Building",
    "Road",
    "Pavement",
    "Vegetation",
    "Pole",
    "Sign",
    "Car",
    "Pedestrian",
    "Bicyclist",
)
CLASS_COLOURS = (
    (112, 168, 214),
    (140, 106, 92),
    (92, 86, 104),
    (206, 168, 176),
    (92, 142, 62),
    (228, 196, 84),
    (232, 120, 36),
    (52, 92, 190),
    (214, 44, 74),
    (150, 50, 170),
)
SMALL_CLASSES = (POLE, SIGN, PEDESTRIAN, BICYCLIST)
