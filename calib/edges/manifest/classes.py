"""Classes of a manifest: names, colours, and the label map in train ids."""

from __future__ import annotations

from calib.edges.manifest.schema import ClassModel, ManifestModel
from calib.edges.manifest.yamlfile import YamlFile
from calib.errors import ManifestError
from calib.types.data import ClassTable

VOID_WORDS = frozenset({"ignore", "void"})
VOID_TRAIN_ID = -1
CITYSCAPES_CLASSES = 19


def build_classes(model: ManifestModel, file: YamlFile) -> ClassTable | None:
    """Make the class table; None when the manifest names no classes.

    Raises:
        ManifestError: a name twice, or colours that do not fit the names or the label format.
    """
    names = tuple(item if isinstance(item, str) else item.name for item in model.classes)
    if not names:
        return None
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise _wrong(file, "classes", "each class name once", f"{twice!r} twice")
    stated = _stated_colours(model, file, len(names))
    if model.label_format == "rgb" and not model.label_map and None in stated:
        missing = names[stated.index(None)]
        raise _wrong(file, "classes", "a colour for every class under label_format: rgb", f"none for {missing!r}")
    if model.label_format == "cityscapes" and not model.label_map and len(names) != CITYSCAPES_CLASSES:
        raise _wrong(file, "classes", "the 19 Cityscapes classes, or a label_map", f"{len(names)} classes")
    colours = tuple(colour or default_colour(index + 1) for index, colour in enumerate(stated))
    return ClassTable(names, model.ignore_index, colours)


def build_label_map(model: ManifestModel, classes: ClassTable | None, file: YamlFile) -> dict[str, int]:
    """Make the label map in train ids; -1 for void.

    Raises:
        ManifestError: a target that is no class, no train id and not void.
    """
    names = classes.names if classes else ()
    built = {}
    for raw, target in model.label_map.items():
        train = names.index(target) if target in names else target
        if target in VOID_WORDS or target == model.ignore_index:
            train = VOID_TRAIN_ID
        valid = isinstance(train, int) and VOID_TRAIN_ID <= train < max(len(names), 1)
        if not valid:
            expected = f"a class name, a train id of 0 to {len(names) - 1}, or void"
            raise _wrong(file, f"label_map.{raw}", expected, repr(target))
        built[raw] = int(train)
    return built


def default_colour(index: int) -> tuple[int, int, int]:
    """Colour of an index in the PASCAL VOC colour map (devkit, VOClabelcolormap): its bits dealt to R, G, B."""
    red = green = blue = 0
    for bit in range(7, -1, -1):
        red |= (index & 1) << bit
        green |= (index >> 1 & 1) << bit
        blue |= (index >> 2 & 1) << bit
        index >>= 3
    return red, green, blue


def _stated_colours(model: ManifestModel, file: YamlFile, count: int) -> list[tuple[int, int, int] | None]:
    if not model.colours:
        return [item.colour if isinstance(item, ClassModel) else None for item in model.classes]
    if len(model.colours) != count:
        raise _wrong(file, "colours", f"one colour for each of {count} classes", f"{len(model.colours)} colours")
    return list(model.colours)


def _wrong(file: YamlFile, key: str, expected: str, got: str) -> ManifestError:
    return ManifestError(
        file.place(key.split(".", 1)), expected=expected, got=got, remedy=f"correct {key} in the manifest"
    )
