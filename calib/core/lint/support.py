"""What TensorRT's ONNX parser knows: operators with the release that brought them, and limits on their settings.

From the parser's operator matrix (docs/operators.md of onnx-tensorrt, TensorRT 10.0 and 10.1) and the release notes
of the parser up to 11.5.
"""

from __future__ import annotations

from collections.abc import Mapping

Version = tuple[int, int]

BASE: Version = (10, 0)
KNOWN = frozenset(
    {
        "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh", "Atan", "Atanh", "AveragePool",
        "BatchNormalization", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Concat", "Constant", "ConstantOfShape",
        "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum", "DepthToSpace", "DequantizeLinear", "Div", "Dropout",
        "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "EyeLike", "Flatten", "Floor", "GRU", "Gather",
        "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater",
        "GreaterOrEqual", "GridSample", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "If",
        "ImageScaler", "InstanceNormalization", "IsInf", "IsNaN", "LRN", "LSTM", "LayerNormalization", "LeakyRelu",
        "Less", "LessOrEqual", "Log", "LogSoftmax", "Loop", "LpNormalization", "LpPool", "MatMul", "Max", "MaxPool",
        "Mean", "MeanVarianceNormalization", "Min", "Mish", "Mod", "Mul", "Neg", "NonMaxSuppression", "NonZero", "Not",
        "OneHot", "Or", "PRelu", "Pad", "ParametricSoftplus", "Pow", "QuantizeLinear", "RNN", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "Reciprocal", "ReduceL1", "ReduceL2",
        "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
        "ReduceSumSquare", "Relu", "Reshape", "Resize", "ReverseSequence", "RoiAlign", "Round", "ScaledTanh", "Scan",
        "Scatter", "ScatterElements", "ScatterND", "Selu", "Shape", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size",
        "Slice", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan",
        "Tanh", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Upsample", "Where", "Xor",
    }
)  # fmt: skip
LATER: Mapping[str, Version] = {
    "DeformConv": (10, 1),
    "BlackmanWindow": (10, 4),
    "HammingWindow": (10, 4),
    "HannWindow": (10, 4),
    "STFT": (10, 5),
    "Attention": (10, 14),
    "RMSNormalization": (10, 15),
    "RotaryEmbedding": (10, 15),
    "TensorScatter": (10, 15),
    "Swish": (11, 0),
}
OPSET_LIMITS: Mapping[tuple[str, int], Version] = {("GroupNormalization", 21): (10, 9)}
"""Operators whose definition of an opset came later than the operator."""


def since(op_type: str, opset: int) -> Version | None:
    """Answer the first TensorRT release that takes a standard operator; None for an operator that none takes.

    10.0 stands for 10.0 and everything older that matters here.
    """
    version = BASE if op_type in KNOWN else LATER.get(op_type)
    if version is None:
        return None
    limits = (first for (name, changed), first in OPSET_LIMITS.items() if name == op_type and opset >= changed)
    return max(version, *limits, BASE)


def plugin_name(op_type: str) -> bool:
    """Tell whether an operator is one of TensorRT's own plugins or layers, by the form of its name."""
    return op_type.endswith("_TRT") or op_type.startswith("TRT_")
