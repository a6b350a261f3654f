"""Reading the imports of source trees, for the tests that hold the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("calib", "samplers", "calibrators")
LAYERS = {
    "calib.cli": 5,
    "calib.__main__": 5,
    "calib.demo": 4,
    "calib.jobs": 4,
    "calib.qat": 4,
    "calib.edges": 3,
    "calib.stages": 2,
    "calib.core": 1,
    "samplers": 1,
    "calibrators": 1,
    "calib.types": 0,
    "calib.errors": 0,
    "calib": 0,
}
"""Layer of each package or module; the longest prefix counts, the last line is for ``calib/__init__.py`` alone."""


@dataclass(frozen=True)
class Import:
    """One import: the module that makes it, the dotted name it asks for, its line, and whether it runs at once."""

    module: str
    target: str
    line: int
    at_module_level: bool


def read_sources(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, ast.Module]:
    """Parse every module below ``root``, by dotted name."""
    files = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    return {module_name(root, path): ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in files}


def module_name(root: Path, path: Path) -> str:
    """Name the module of a file."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(sources: Mapping[str, ast.Module]) -> Iterator[Import]:
    """List the imports of every module, those inside functions too."""
    for module, tree in sources.items():
        deferred = {id(node) for scope in ast.walk(tree) if _defers(scope) for node in ast.walk(scope)}
        for node in ast.walk(tree):
            for target in _targets(node, sources):
                yield Import(module, target, node.lineno, id(node) not in deferred)


def layer_of(module: str, layers: Mapping[str, int] = LAYERS) -> int:
    """Find a module's layer.

    Raises:
        LookupError: it is in none.
    """
    if module == "calib":
        return layers["calib"]
    prefixes = [module.rsplit(".", cut)[0] for cut in range(module.count(".") + 1)]
    found = next((layers[prefix] for prefix in prefixes if prefix in layers and prefix != "calib"), None)
    if found is None:
        raise LookupError(f"{module} is in no layer: put it into a package of docs/architecture.md")
    return found


def upward(sources: Mapping[str, ast.Module]) -> list[str]:
    """List the imports that point to a higher layer."""
    ours = [each for each in imports_of(sources) if each.target in sources]
    return [
        f"{each.module}:{each.line} imports {each.target}, layer {layer_of(each.module)} to {layer_of(each.target)}"
        for each in ours
        if layer_of(each.target) > layer_of(each.module)
    ]


def cycles(sources: Mapping[str, ast.Module]) -> list[list[str]]:
    """List the import cycles, each as the modules along it; a package's own ``__init__`` is followed as written."""
    edges: dict[str, set[str]] = {module: set() for module in sources}
    for each in imports_of(sources):
        if each.target in sources and each.target != each.module:
            edges[each.module].add(each.target)
    found: list[list[str]] = []
    done: set[str] = set()
    for start in sorted(edges):
        _visit(start, edges, [], done, found)
    return found


def _visit(module: str, edges: Mapping[str, set[str]], path: list[str], done: set[str], found: list[list[str]]) -> None:
    if module in path:
        found.append([*path[path.index(module) :], module])
        return
    if module in done:
        return
    for target in sorted(edges[module]):
        _visit(target, edges, [*path, module], done, found)
    done.add(module)


def _defers(node: ast.AST) -> bool:
    """Say whether what stands below a node runs later or never: function bodies and ``if TYPE_CHECKING``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return True
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.AST, sources: Mapping[str, ast.Module]) -> list[str]:
    """Name what an import statement asks for: the submodule where the name is one, else the module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        named = [f"{node.module}.{alias.name}" for alias in node.names]
        return sorted({name if name in sources else node.module for name in named})
    return []
