"""Element types and shapes of every tensor: ONNX shape inference, then operator schemas where it gives up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from calib.core.graph.network import Node, Shape

SMALL = 1024
"""Initialisers up to this many elements keep their data for shape inference: shapes, axes, scales."""

NON_TENSOR = "not a tensor"


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Run ONNX shape inference on a copy; large weights become inputs of it, so models over 2 GB pass too.

    The copy serves to look shapes up, not to run. A model that inference cannot follow comes back without
    inferred shapes rather than as an error: it may hold custom operators and still run.
    """
    light = skeleton(model)
    try:
        return onnx.shape_inference.infer_shapes(light, check_type=False, strict_mode=False, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return light


def skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without its large weights, which become inputs; small enough for ONNX's C++ tools."""
    light = onnx.ModelProto()
    light.ir_version = max(model.ir_version, 4)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph, source = light.graph, model.graph
    graph.name = source.name
    graph.node.extend(source.node)
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.value_info.extend(source.value_info)
    listed = {value.name for value in source.input}
    for tensor in source.initializer:
        if _elements(tensor.dims) <= SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in listed:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    return light


def _elements(dims: Iterable[int]) -> int:
    total = 1
    for length in dims:
        total *= length
    return total


def type_name(elem_type: int) -> str | None:
    """Spell a protobuf element type the way numpy does; None for UNDEFINED and for types this onnx lacks."""
    if elem_type not in onnx.TensorProto.DataType.values():
        return None
    name = onnx.TensorProto.DataType.Name(elem_type).lower()
    return {"undefined": None, "float": "float32", "double": "float64"}.get(name, name)


def read_type(value: onnx.ValueInfoProto) -> tuple[str | None, Shape | None]:
    """Read element type and shape of a value; sequences and the like are ``not a tensor``."""
    kind = value.type.WhichOneof("value")
    if kind is None:
        return None, None
    if kind != "tensor_type":
        return NON_TENSOR, None
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return type_name(tensor.elem_type), None
    return type_name(tensor.elem_type), tuple(_length(dim) for dim in tensor.shape.dim)


def _length(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None


def tensor_types(
    model: onnx.ModelProto, nodes: tuple[Node, ...], order: Iterable[int], opsets: Mapping[str, int]
) -> tuple[dict[str, str], dict[str, Shape]]:
    """Find element type and shape of every tensor where they can be known."""
    types: dict[str, str] = {}
    shapes: dict[str, Shape] = {}
    graph = inferred(model).graph
    for value in (*graph.value_info, *graph.output, *graph.input):
        elem_type, shape = read_type(value)
        if elem_type is not None:
            types[value.name] = elem_type
        if shape is not None:
            shapes[value.name] = shape
    for tensor in model.graph.initializer:
        types[tensor.name] = type_name(tensor.data_type) or NON_TENSOR
        shapes[tensor.name] = tuple(tensor.dims)
    for index in order:
        for name, elem_type in _by_schema(nodes[index], types, opsets):
            types.setdefault(name, elem_type)
    return types, shapes


def _by_schema(node: Node, types: Mapping[str, str], opsets: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Settle what inference left open: an output shares its type variable with an input, or admits one type only."""
    if all(name in types for name in filter(None, node.outputs)):
        return
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return
    variables = _bound_variables(schema, node, types)
    for slot, name in enumerate(node.outputs):
        formal = _formal(schema.outputs, slot)
        elem_type = _declared(node) or (formal and (variables.get(formal.type_str) or _only_type(formal)))
        if name and elem_type:
            yield name, elem_type


def _declared(node: Node) -> str | None:
    """Read the type that the node's own attribute states (Cast, random generators)."""
    for key in ("to", "dtype"):
        value = node.attributes.get(key)
        if isinstance(value, int):
            return type_name(value)
    return None


def _formal(
    parameters: Iterable[onnx.defs.OpSchema.FormalParameter], slot: int
) -> onnx.defs.OpSchema.FormalParameter | None:
    listed = list(parameters)
    if slot < len(listed):
        return listed[slot]
    return listed[-1] if listed and listed[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic else None


def _bound_variables(schema: onnx.defs.OpSchema, node: Node, types: Mapping[str, str]) -> dict[str, str]:
    bound: dict[str, str] = {}
    for slot, name in enumerate(node.inputs):
        formal = _formal(schema.inputs, slot)
        if formal is not None and name in types:
            bound.setdefault(formal.type_str, types[name])
    return bound


def _only_type(formal: onnx.defs.OpSchema.FormalParameter) -> str | None:
    """Name the one type an output admits, or ``int64`` for any mix without floats."""
    names = {text.removeprefix("tensor(").removesuffix(")") for text in formal.types}
    names = {{"float": "float32", "double": "float64"}.get(name, name) for name in names}
    if len(names) == 1:
        return names.pop()
    return "int64" if names and all(name.startswith(("int", "uint")) for name in names) else None
