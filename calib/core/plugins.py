"""Plugin specs: parse ``NAME:key=value``, find the plugin, bind and check its arguments."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from calib.errors import UsageError
from calib.types.parameters import Parameter, PluginSpec

T = TypeVar("T")
TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})


@dataclass(frozen=True)
class ParameterInfo:
    """A plugin parameter as its signature states it; ``default`` is ``inspect.Parameter.empty`` when required."""

    name: str
    type: type
    default: Any
    about: Parameter
    variadic: bool = False


def parse_spec(text: str) -> PluginSpec:
    """Take ``NAME`` or ``NAME:key=value,key=value`` apart.

    Raises:
        UsageError: the name is empty, or an argument has no ``=``, an empty key or a key given twice.
    """
    name, _, rest = text.strip().partition(":")
    arguments: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value) or key in arguments:
            raise UsageError(
                f"plugin {text!r}",
                expected="NAME:key=value,key=value with each key once",
                got=repr(item),
                remedy="write each argument once, as key=value, separated by commas",
            )
        arguments[key] = value
    if not name:
        raise UsageError(
            f"plugin {text!r}", expected="a plugin name first", got="nothing", remedy="write NAME or NAME:key=value"
        )
    return PluginSpec(name, tuple(arguments.items()))


def find_plugin(kind: str, name: str, registry: Mapping[str, T]) -> T:
    """Look a plugin up by name.

    Raises:
        UsageError: there is none of that name; the message lists those there are.
    """
    if name in registry:
        return registry[name]
    close = difflib.get_close_matches(name, registry, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UsageError(
        f"{kind} {name!r}",
        expected="one of " + ", ".join(registry),
        got=repr(name),
        remedy=f"{hint}`calib {kind}s` lists them with their parameters",
    )


def describe_parameters(plugin: Callable[..., Any], given: int) -> list[ParameterInfo]:
    """List a plugin's parameters behind its first ``given`` positional ones."""
    hints = get_type_hints(plugin, include_extras=True)
    found = []
    for parameter in list(inspect.signature(plugin).parameters.values())[given:]:
        base, about = _split_annotation(hints.get(parameter.name, str))
        variadic = parameter.kind is inspect.Parameter.VAR_KEYWORD
        found.append(ParameterInfo(parameter.name, base, parameter.default, about, variadic))
    return found


def bind_arguments(kind: str, spec: PluginSpec, plugin: Callable[..., Any], given: int) -> dict[str, Any]:
    """Turn a spec's text arguments into checked keyword arguments, defaults filled in.

    Args:
        kind: ``sampler`` or ``calibrator``, for messages.
        spec: the parsed spec.
        plugin: the function it names.
        given: how many leading parameters the workbench passes itself.

    Raises:
        UsageError: an unknown argument, a missing one, or a value of the wrong type or out of bounds.
    """
    infos = describe_parameters(plugin, given)
    named = {info.name: info for info in infos if not info.variadic}
    rest = next((info for info in infos if info.variadic), None)
    bound = {name: info.default for name, info in named.items() if info.default is not inspect.Parameter.empty}
    for key, text in spec.arguments:
        info = named.get(key.replace("-", "_"), rest)
        if info is None:
            raise _unknown_argument(kind, spec, key, sorted(named))
        bound[key if info.variadic else info.name] = _convert(f"{kind} {spec}, argument {key!r}", text, info)
    missing = [name for name in named if name not in bound]
    if missing:
        raise UsageError(
            f"{kind} {spec}",
            expected=f"a value for {', '.join(missing)}",
            got="none",
            remedy=f"write {spec.name}:{missing[0]}=VALUE",
        )
    return bound


def _unknown_argument(kind: str, spec: PluginSpec, key: str, known: list[str]) -> UsageError:
    return UsageError(
        f"{kind} {spec}",
        expected="one of the parameters " + ", ".join(known) if known else "no parameters",
        got=repr(key),
        remedy=f"`calib {kind}s` shows what {spec.name} takes",
    )


def _split_annotation(annotation: Any) -> tuple[type, Parameter]:
    if hasattr(annotation, "__metadata__"):
        about = next((item for item in annotation.__metadata__ if isinstance(item, Parameter)), Parameter(""))
        return _base_type(annotation.__origin__), about
    return _base_type(annotation), Parameter("")


def _base_type(annotation: Any) -> type:
    if get_origin(annotation) is not None:
        options = [option for option in get_args(annotation) if option is not type(None)]
        return _base_type(options[0])
    return annotation if isinstance(annotation, type) else str


def _convert(place: str, text: str, info: ParameterInfo) -> Any:
    if info.type is bool:
        return _to_bool(place, text)
    if info.type in (int, float):
        return _to_number(place, text, info)
    if info.about.choices and text not in info.about.choices:
        raise UsageError(place, expected="one of " + ", ".join(info.about.choices), got=repr(text), remedy="pick one")
    return text


def _to_bool(place: str, text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise UsageError(place, expected="true or false", got=repr(text), remedy="write true or false")


def _to_number(place: str, text: str, info: ParameterInfo) -> int | float:
    kind = "a whole number" if info.type is int else "a number"
    low, high = info.about.minimum, info.about.maximum
    bounds = (f" >= {low:g}" if low is not None else "") + (f" <= {high:g}" if high is not None else "")
    try:
        value: int | float = int(text) if info.type is int else float(text)
    except ValueError:
        value = math.nan
    inside = (low is None or value >= low) and (high is None or value <= high)
    if not math.isfinite(value) or not inside:
        raise UsageError(place, expected=f"{kind}{bounds}", got=repr(text), remedy="give a value within these bounds")
    return value
