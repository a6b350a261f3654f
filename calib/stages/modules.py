"""Modules of a PyTorch network and tensors of its ONNX export: which is which.

The rule. A compute node (Conv, ConvTranspose, Gemm, MatMul) belongs to module ``M`` if its weight is the initialiser
``M.weight``; else, as the weight of a folded batch normalisation has lost its name, by the path the exporter left: in
the node's name (``/layer1/layer1.0/conv1/Conv`` is ``layer1.0.conv1``), or in the scopes of its metadata. Other nodes
go by their path alone.

``M.input_quantizer`` is the first activation its node reads, ``M.input1_quantizer`` the second, ``M.output_quantizer``
what it makes, ``M.weight_quantizer`` its weight, ``M.residual_quantizer`` the shortcut of the addition in ``M``. What
wrappers add to names may be missing on either side.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import onnx

from calib.core.formats.quantizers import bare_name
from calib.core.formats.statedict import split_quantizer
from calib.core.graph import Network, Node
from calib.core.graph.stored import StoredValues
from calib.core.roles import COMPUTE, find_roles, is_standard
from calib.types.rangetable import RangeTable, Remark, TensorRange, WeightRange

PREFIX = "model."
"""What a wrapper of one's own adds most often."""
SCOPES = "pkg.torch.onnx.name_scopes"
"""Metadata of a node in which torch.onnx leaves the path of its module."""
OPERAND = re.compile(r"input(?P<slot>[0-9])?_quantizer")
RESIDUAL = "residual"


@dataclass(frozen=True)
class ModuleMap:
    """Nodes of a network by the module they come from.

    Attributes:
        nodes: every node of a module, in network order; a module that is used twice has two.
        floats: the activations.
        weights: name of the weight's initialiser by node index.
        shortcuts: input slot of the shortcut by index of a residual addition.
    """

    nodes: dict[str, list[Node]]
    floats: frozenset[str]
    weights: dict[int, str]
    shortcuts: Mapping[int, int]

    def find(self, module: str) -> list[Node]:
        """Find a module's nodes; prefixes of wrappers are tried on either side."""
        bare = bare_name(module)
        candidates = (module, bare, bare.removeprefix(PREFIX), f"{PREFIX}{bare}")
        return next((self.nodes[name] for name in candidates if name in self.nodes), [])

    def tensors(self, module: str, quantizer: str) -> tuple[str, ...]:
        """Name the tensors that a module's quantizer works on; empty where that cannot be told."""
        nodes = self.find(module)
        operand = OPERAND.fullmatch(quantizer)
        if operand is not None:
            reads = [self.read_by(node, int(operand["slot"] or 0)) for node in _heads(nodes, self.weights)]
            return tuple(dict.fromkeys(filter(None, reads)))
        if quantizer == "output_quantizer" and nodes:
            return tuple(name for name in nodes[-1].outputs[:1] if name in self.floats)
        if RESIDUAL in quantizer:
            return tuple(node.inputs[self.shortcuts[node.index]] for node in nodes if node.index in self.shortcuts)
        return ()

    def read_by(self, node: Node, slot: int = 0) -> str:
        """Name the first activation that a node reads, or the one at ``slot`` among them, or nothing."""
        read = [name for name in node.inputs if name in self.floats]
        return read[slot] if slot < len(read) else ""

    def module_of(self, node: int) -> str:
        """Name the module of a node, or nothing."""
        return next((name for name, nodes in self.nodes.items() if any(item.index == node for item in nodes)), "")


def _heads(nodes: list[Node], weights: dict[int, str]) -> list[Node]:
    """The nodes that read a module's input: each with a weight, else the first."""
    return [node for node in nodes if node.index in weights] or nodes[:1]


def map_modules(model: onnx.ModelProto, network: Network) -> ModuleMap:
    """Find the modules of an exported network."""
    stored = StoredValues(model)
    found: dict[str, list[Node]] = {}
    weights: dict[int, str] = {}
    for index in network.order:
        node = network.nodes[index]
        root = next((stored.root(name) for name in node.inputs[:2] if name in network.constants), "")
        computes = is_standard(node, *COMPUTE) and bool(root)
        if computes:
            weights[index] = root
        named = computes and root.endswith(".weight")
        module = root.removesuffix(".weight") if named else path_of(node.name) or scope_of(model.graph.node[index])
        if module:
            found.setdefault(module, []).append(node)
    shortcuts = {item.node: item.shortcut for item in find_roles(network).additions.values() if not item.reason}
    return ModuleMap(found, frozenset(item.name for item in network.activations), weights, shortcuts)


def path_of(name: str) -> str:
    """Read the module path out of an exporter's node name: ``/layer1/layer1.0/conv1/Conv`` is ``layer1.0.conv1``."""
    scopes: list[str] = []
    if not name.startswith("/"):
        return ""
    for scope in name.split("/")[1:-1]:
        if scopes and scope.startswith(f"{scopes[-1]}."):
            scopes[-1] = scope
        else:
            scopes.append(scope)
    return ".".join(scopes)


def scope_of(node: onnx.NodeProto) -> str:
    """Read the module path out of a node's metadata: ``['', 'stem', 'stem.0', 'conv2d']`` is ``stem.0``."""
    text = next((item.value for item in node.metadata_props if item.key == SCOPES), "")
    try:
        scopes = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    paths = scopes[:-1] if isinstance(scopes, list) else []
    return paths[-1] if paths and isinstance(paths[-1], str) else ""


def to_tensors(table: RangeTable, modules: ModuleMap) -> tuple[RangeTable, tuple[str, ...]]:
    """Rewrite a table that names modules as one that names tensors.

    Returns:
        The table, and the quantizers that no tensor could be found for. Where quantizers of one tensor disagree, the
        largest range is taken and a remark made.
    """
    found: dict[str, TensorRange] = {}
    conflicts: dict[str, None] = {}
    lost: list[str] = []
    for item in table:
        names = modules.tensors(*(split_quantizer(item.name) or ("", "")))
        if not names:
            lost.append(item.name)
        for name in names:
            known = found.get(name)
            if known is not None and known.amax != item.amax:
                conflicts[name] = None
            if known is None or item.amax > known.amax:
                found[name] = TensorRange(name, item.amax, item.scale)
    weights = tuple(_tensor_weights(table, modules))
    text = "are read by several modules whose quantizers disagree; the largest range is taken"
    remarks = (Remark("conflicts", tuple(conflicts), text, blocks=True),) if conflicts else ()
    named = table.with_ranges(found.values(), naming="tensor", weights=weights)
    return named.remarked(*remarks), tuple(lost)


def _tensor_weights(table: RangeTable, modules: ModuleMap) -> Iterator[WeightRange]:
    for item in table.weights:
        module, _ = split_quantizer(item.name) or ("", "")
        names = {modules.weights[node.index] for node in modules.find(module) if node.index in modules.weights}
        yield from (replace(item, name=name) for name in sorted(names))


def to_modules(table: RangeTable, modules: ModuleMap) -> tuple[RangeTable, tuple[str, ...]]:
    """Rewrite a table that names tensors as one that names modules.

    Returns:
        The table, and the tensors with a range that no module with a weight reads: they have no quantizer.
    """
    ranges: dict[str, TensorRange] = {}
    used: set[str] = set()
    for module, nodes in modules.nodes.items():
        for name in (modules.read_by(node) for node in nodes if node.index in modules.weights):
            item = table.ranges.get(name)
            known = ranges.get(f"{module}.input_quantizer")
            if item is not None and (known is None or item.amax > known.amax):
                ranges[f"{module}.input_quantizer"] = TensorRange(f"{module}.input_quantizer", item.amax, item.scale)
                used.add(name)
    owners = {
        modules.weights[node.index]: module
        for module, nodes in modules.nodes.items()
        for node in nodes
        if node.index in modules.weights
    }
    weights = tuple(
        replace(item, name=f"{owners[item.name]}.weight_quantizer") for item in table.weights if item.name in owners
    )
    named = table.with_ranges(ranges.values(), naming="module", weights=weights)
    return named, tuple(item.name for item in table if item.name not in used)
