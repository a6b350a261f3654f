"""Plugin specs: parse ``NAME:key=value``, find the plugin, bind and check its arguments."""

from __future__ import annotations

import difflib
import inspect
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from calib.errors import UsageError
from calib.types.parameters import Parameter, PluginSpec

T = TypeVar("T")
TRUE = frozenset({"true", "yes", "on", "1"})
FALSE = frozenset({"false", "no", "off", "0"})
REQUIRED = inspect.Parameter.empty
"""Default of a parameter that has none."""


@dataclass(frozen=True)
class ParameterInfo:
    """A plugin parameter as its signature states it.

    Attributes:
        name: its name in the signature.
        type: ``bool``, ``int``, ``float`` or ``str``.
        default: its default, or ``REQUIRED``.
        about: bounds, choices and help.
        variadic: whether it is ``**name`` and takes any further key.
        optional: whether ``none`` is a value of it.
    """

    name: str
    type: type
    default: Any
    about: Parameter
    variadic: bool = False
    optional: bool = False


def parse_spec(text: str) -> PluginSpec:
    """Take ``NAME`` or ``NAME:key=value,key=value`` apart.

    Raises:
        UsageError: the name is empty, or an argument has no ``=``, an empty key or a key given twice.
    """
    name, _, rest = (part.strip() for part in text.strip().partition(":"))
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
    close = difflib.get_close_matches(name.lower().replace("_", "-"), registry, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UsageError(
        f"{kind} {name!r}",
        expected="one of " + ", ".join(registry),
        got=repr(name),
        remedy=f"{hint}`calib {kind}s` lists them with their parameters",
    )


def describe_parameters(plugin: Callable[..., Any], given: int) -> list[ParameterInfo]:
    """List a plugin's parameters behind its first ``given`` ones, which the workbench passes itself.

    Raises:
        UsageError: the plugin is no function, or its signature or annotations cannot be read.
    """
    try:
        parameters = list(inspect.signature(plugin).parameters.values())
        hints = get_type_hints(_annotated(plugin), include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise UsageError(
            f"plugin {getattr(plugin, '__qualname__', plugin)!r}",
            expected="a function whose signature and annotations can be read",
            got=str(error),
            remedy="annotate its parameters with types that its module imports at run time",
        ) from error
    taken = [item for item in parameters[given:] if item.kind is not inspect.Parameter.VAR_POSITIONAL]
    return [_parameter_info(item, hints.get(item.name, str)) for item in taken]


def describe_plugin(name: str, plugin: Callable[..., Any], given: int) -> dict[str, Any]:
    """Describe a plugin as a plain document: name, first docstring line, module, parameters.

    Raises:
        UsageError: its signature cannot be read.
    """
    return {
        "name": name,
        "summary": (inspect.getdoc(plugin) or "").strip().partition("\n")[0],
        "module": str(getattr(plugin, "__module__", "")),
        "parameters": [_describe(info) for info in describe_parameters(plugin, given)],
    }


def bind_arguments(kind: str, spec: PluginSpec, plugin: Callable[..., Any], given: int) -> dict[str, Any]:
    """Turn a spec's text arguments into checked keyword arguments, defaults filled in.

    A key may be written with ``-`` or ``_``. A plugin with ``**parts`` takes further keys as they are written.

    Args:
        kind: ``sampler`` or ``calibrator``, for messages.
        spec: the parsed spec.
        plugin: the function it names.
        given: how many leading parameters the workbench passes itself.

    Raises:
        UsageError: an unknown argument, one given twice, a missing one, or a value of the wrong type or out of bounds.
    """
    infos = describe_parameters(plugin, given)
    named = {info.name: info for info in infos if not info.variadic}
    rest = next((info for info in infos if info.variadic), None)
    reserved = list(inspect.signature(plugin).parameters)[:given]
    bound: dict[str, Any] = {}
    for key, text in spec.arguments:
        info = named.get(key.replace("-", "_"), rest)
        if info is None or key in reserved:
            raise _unknown_argument(kind, spec, key, sorted(named))
        target = key if info.variadic else info.name
        if target in bound:
            raise _repeated_argument(kind, spec, target)
        bound[target] = _convert(f"{kind} {spec}, argument {key!r}", text, info)
    return _with_defaults(kind, spec, named, bound)


def _with_defaults(
    kind: str, spec: PluginSpec, named: Mapping[str, ParameterInfo], bound: dict[str, Any]
) -> dict[str, Any]:
    defaults = {name: info.default for name, info in named.items() if info.default is not REQUIRED}
    missing = [name for name in named if name not in defaults and name not in bound]
    if missing:
        raise UsageError(
            f"{kind} {spec}",
            expected=f"a value for {', '.join(missing)}",
            got="none",
            remedy=f"write {spec.name}:{missing[0]}=VALUE",
        )
    return {**defaults, **bound}


def _unknown_argument(kind: str, spec: PluginSpec, key: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return UsageError(
        f"{kind} {spec}",
        expected="one of the parameters " + ", ".join(known) if known else "no parameters",
        got=repr(key),
        remedy=f"{hint}`calib {kind}s` shows what {spec.name} takes",
    )


def _repeated_argument(kind: str, spec: PluginSpec, name: str) -> UsageError:
    return UsageError(
        f"{kind} {spec}",
        expected=f"one value for {name}",
        got="several",
        remedy="give each argument once; - and _ in a name are the same",
    )


def _annotated(plugin: Callable[..., Any]) -> Any:
    """Find the function whose annotations count: of a partial its function, of an object its ``__call__``."""
    while hasattr(plugin, "func"):
        plugin = plugin.func
    return plugin if inspect.isroutine(plugin) or isinstance(plugin, type) else type(plugin).__call__


def _parameter_info(parameter: inspect.Parameter, annotation: Any) -> ParameterInfo:
    about = next((item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Parameter)), None)
    bare = annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation
    about, base, optional = about or Parameter(""), bare, False
    if get_origin(bare) in (Union, types.UnionType):
        options = [option for option in get_args(bare) if option is not type(None)]
        base, optional = options[0], len(options) < len(get_args(bare))
    if get_origin(base) is Literal:
        about = replace(about, choices=about.choices or tuple(str(choice) for choice in get_args(base)))
    kind = base if base in (bool, int, float) else str
    variadic = parameter.kind is inspect.Parameter.VAR_KEYWORD
    return ParameterInfo(parameter.name, kind, parameter.default, about, variadic, optional)


def _describe(info: ParameterInfo) -> dict[str, Any]:
    required = info.default is REQUIRED and not info.variadic
    return {
        "name": info.name,
        "type": info.type.__name__,
        "accepts": _accepts(info),
        "required": required,
        "default": None if info.default is REQUIRED else info.default,
        "minimum": info.about.minimum,
        "maximum": info.about.maximum,
        "choices": list(info.about.choices),
        "variadic": info.variadic,
        "help": info.about.help,
    }


def _accepts(info: ParameterInfo) -> str:
    """Say in words what values a parameter takes."""
    low, high = info.about.minimum, info.about.maximum
    if info.about.choices:
        words = "one of " + ", ".join(info.about.choices)
    elif info.type in (bool, str):
        words = "true or false" if info.type is bool else "text"
    else:
        words = "a whole number" if info.type is int else "a number"
        if low is not None and high is not None:
            words += f" from {low:g} to {high:g}"
        elif low is not None or high is not None:
            words += f" of at least {low:g}" if low is not None else f" of at most {high:g}"
    return f"{words} or none" if info.optional else words


def _convert(place: str, text: str, info: ParameterInfo) -> Any:
    if info.optional and text.lower() == "none":
        return None
    if info.type is bool:
        return _to_bool(place, text)
    if info.type in (int, float):
        return _to_number(place, text, info)
    if info.about.choices and text not in info.about.choices:
        close = difflib.get_close_matches(text, info.about.choices, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "pick one of them"
        raise UsageError(place, expected=_accepts(info), got=repr(text), remedy=remedy)
    return text


def _to_bool(place: str, text: str) -> bool:
    if text.lower() in TRUE:
        return True
    if text.lower() in FALSE:
        return False
    raise UsageError(place, expected="true or false", got=repr(text), remedy="write true or false")


def _to_number(place: str, text: str, info: ParameterInfo) -> int | float:
    try:
        value: int | float = int(text) if info.type is int else float(text)
    except ValueError:
        value = math.nan
    low, high = info.about.minimum, info.about.maximum
    inside = (low is None or value >= low) and (high is None or value <= high)
    if (isinstance(value, float) and not math.isfinite(value)) or not inside:
        raise UsageError(place, expected=_accepts(info), got=repr(text), remedy="give a value within these bounds")
    return value
