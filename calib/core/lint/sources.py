"""Addresses of the texts that rules rest on."""

from __future__ import annotations

TORCH_INTERPOLATE = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html"
TORCH_GRID_SAMPLE = "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html"
TORCH_BATCH_NORM = "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html"
TORCH_ADAPTIVE_POOL = "https://docs.pytorch.org/docs/stable/generated/torch.nn.AdaptiveAvgPool2d.html"
TORCH_CONV_TRANSPOSE = "https://docs.pytorch.org/docs/stable/generated/torch.nn.ConvTranspose2d.html"
TORCH_EXPORT = "https://docs.pytorch.org/docs/stable/onnx.html"
TRT_OPERATORS = "https://github.com/onnx/onnx-tensorrt/blob/main/docs/operators.md"
TRT_CHANGELOG = "https://github.com/NVIDIA/TensorRT/blob/main/CHANGELOG.md"
TRT_OPSETS = "https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/onnx-opset-guide.html"
TRT_QUANTIZED = "https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html"
TRT_SHAPES = "https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-dynamic-shapes.html"
ONNX_IR = "https://onnx.ai/onnx/repo-docs/IR.html"
ONNX_VERSIONS = "https://onnx.ai/onnx/repo-docs/Versioning.html"
ORT_VERSIONS = "https://onnxruntime.ai/docs/reference/compatibility.html"
DFQ = "https://arxiv.org/abs/1906.04721"
INTEGER_WHITEPAPER = "https://arxiv.org/abs/2004.09602"
FLOAT16 = "IEEE 754 binary16: largest 65504, smallest normal 6.1e-5, smallest subnormal 6.0e-8"


def operator(name: str) -> str:
    """Address of an operator in the ONNX specification."""
    return f"https://onnx.ai/onnx/operators/onnx__{name}.html"


def issue(repository: str, number: int) -> str:
    """Address of a public report."""
    return f"https://github.com/{repository}/issues/{number}"
