"""What a manifest may say, as pydantic models; unknown keys are errors that suggest the nearest key."""

from __future__ import annotations

import difflib
import math
import re
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from calib.edges.manifest.yamlfile import YamlFile
from calib.errors import ManifestError
from calib.types.data import Colour, Fit, LabelFormat, Layout, Preprocess, Resize

M = TypeVar("M", bound=BaseModel)
Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Byte = Annotated[int, Field(ge=0, le=255)]
KEEP_SIZE = "keep"


def parse_number(value: Any) -> float:
    """Read a number, or a fraction such as ``1/255``.

    Raises:
        ValueError: it is neither, or not finite.
    """
    parts = str(value).split("/")
    try:
        number = float(parts[0]) / float(parts[1]) if len(parts) == 2 else float(str(value))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError("a number, or a fraction such as 1/255") from error
    if not math.isfinite(number) or isinstance(value, bool):
        raise ValueError("a finite number")
    return number


def parse_size(value: Any) -> Any:
    """Read ``HxW`` text, a pair, or ``keep`` for each image's own size.

    Raises:
        ValueError: something else.
    """
    if value == KEEP_SIZE:
        return None
    if isinstance(value, str) and re.fullmatch(r"\s*\d+\s*[x×]\s*\d+\s*", value):
        value = [int(part) for part in re.split("[x×]", value)]
    whole = isinstance(value, (list, tuple)) and len(value) == 2 and all(type(side) is int for side in value)
    if not whole or min(value) < 1:
        raise ValueError("HxW such as 352x480 (height first), a pair of whole numbers above zero, or 'keep'")
    return tuple(value)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, (list, tuple)) else [value]


Number = Annotated[float, BeforeValidator(parse_number)]
Size = Annotated[tuple[int, int] | None, BeforeValidator(parse_size)]


class Strict(BaseModel):
    """Base of the models: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PreprocessModel(Strict):
    """``preprocess:``; nothing in it that changes values has a default."""

    colour: Colour
    size: Size
    scale: Number
    mean: Annotated[tuple[Number, ...], BeforeValidator(_as_list), Field(min_length=1)]
    std: Annotated[tuple[Number, ...], BeforeValidator(_as_list), Field(min_length=1)]
    layout: Layout = "nchw"
    resize: Resize = "bilinear"
    fit: Fit = "stretch"
    pad: Byte = 114
    dtype: Annotated[str, Field(pattern="^(float32|float16|uint8)$")] = "float32"

    @field_validator("scale", "std")
    @classmethod
    def _positive(cls, value: Any) -> Any:
        if min(value if isinstance(value, tuple) else (value,)) <= 0:
            raise ValueError("numbers above zero")
        return value

    @field_validator("mean", "std")
    @classmethod
    def _one_a_channel(cls, value: tuple[float, ...], info: Any) -> tuple[float, ...]:
        channels = 1 if info.data.get("colour") == "gray" else 3
        if len(value) not in (1, channels):
            raise ValueError(f"one value for all channels, or one for each of {channels}")
        return value

    def build(self) -> Preprocess:
        """The value the rest of the workbench uses."""
        return Preprocess(**self.model_dump())


class ClassModel(Strict):
    """An entry of ``classes`` with a colour."""

    name: Text
    colour: tuple[Byte, Byte, Byte] | None = None


class SplitModel(Strict):
    """An entry of ``splits``."""

    images: Annotated[tuple[Text, ...], BeforeValidator(_as_list)] = ()
    labels: Text | None = None
    list: Text | None = None
    exclude: Annotated[tuple[Text, ...], BeforeValidator(_as_list)] = ()
    inputs: dict[str, Text] = Field(default_factory=dict)


class ManifestModel(Strict):
    """A whole manifest."""

    name: Text
    root: Text = "."
    splits: Annotated[dict[str, SplitModel], Field(min_length=1)]
    classes: tuple[ClassModel | Text, ...] = ()
    colours: tuple[tuple[Byte, Byte, Byte], ...] = ()
    ignore_index: int | None = None
    label_format: LabelFormat = "index"
    label_map: dict[str, int | str] = Field(default_factory=dict)
    preprocess: PreprocessModel | None = None
    inputs: dict[str, PreprocessModel | Number] = Field(default_factory=dict)
    group: dict[str, Text] = Field(default_factory=dict)

    @field_validator("label_map", mode="before")
    @classmethod
    def _keys_as_text(cls, value: Any) -> Any:
        return {_key_text(key): train for key, train in value.items()} if isinstance(value, dict) else value


def _key_text(key: Any) -> str:
    return ",".join(str(part) for part in key) if isinstance(key, (list, tuple)) else str(key)


def validate(model: type[M], file: YamlFile, content: Any, at: tuple[str | int, ...] = ()) -> M:
    """Check values against a model.

    Args:
        model: what they must be.
        file: where they stand, for errors.
        content: the values.
        at: location of the values in the file.

    Raises:
        ManifestError: the first thing wrong, with line and key, and how many more there are.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise _as_manifest_error(model, file, found, at) from error


def _as_manifest_error(
    model: type[BaseModel], file: YamlFile, found: list[Any], at: tuple[str | int, ...]
) -> ManifestError:
    first = min(found, key=lambda item: item["type"] != "extra_forbidden")
    location = tuple(part for part in first["loc"] if not _is_union_branch(part))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = _fields_at(model, location[:-1])
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        return ManifestError(
            file.place((*at, *location)),
            expected="one of the keys " + ", ".join(known),
            got=f"unknown key {location[-1]!r}{more}",
            remedy=f"{hint}docs/manifests.md lists the keys",
        )
    missing = first["type"] == "missing"
    return ManifestError(
        file.place((*at, *(location[:-1] if missing else location))),
        expected=f"key {location[-1]!r}" if missing else _expectation(first),
        got=("no such key" if missing else repr(first["input"])[:120]) + more,
        remedy=_remedy(missing, str(location[-1]) if location else ""),
    )


def _remedy(missing: bool, key: str) -> str:
    return f"add {key}: …; docs/manifests.md shows it" if missing else "docs/manifests.md shows what this key takes"


def _expectation(found: Any) -> str:
    text = str(found["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    return text if found["type"] == "value_error" else text[0].lower() + text[1:]


def _is_union_branch(part: Any) -> bool:
    """Whether pydantic put the name of a union's branch into a location."""
    return isinstance(part, str) and (part in ("ClassModel", "PreprocessModel") or "[" in part)


def _fields_at(model: type[BaseModel], location: tuple[Any, ...]) -> list[str]:
    fields: dict[str, type[BaseModel]] = {
        "splits": SplitModel,
        "preprocess": PreprocessModel,
        "inputs": PreprocessModel,
        "classes": ClassModel,
    }
    chosen = fields.get(str(location[0]), model) if location else model
    return list(chosen.model_fields)


LABEL_FORMATS: tuple[str, ...] = get_args(LabelFormat)
