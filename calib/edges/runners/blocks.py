"""What is to be known of ONNX Runtime before a network may return tensors in its own layout, in blocks of channels."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.blocked import DOMAIN
from calib.core.kernels import WIDTHS
from calib.edges.runners.session import FATAL_ONLY
from calib.types.runner import Blocks


@functools.cache
def block_width() -> int:
    """Channels a block on this machine, found by having a small tensor reordered; 0 where there is no such layout."""
    import onnxruntime

    image = np.arange(2 * 4 * 3, dtype=np.float32).reshape(1, 8, 1, 3)
    tensor = functools.partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT)
    node = onnx.helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    graph = onnx.helper.make_graph(
        [node], "reorder", [tensor("x", shape=image.shape)], [tensor("y", shape=[None, None, None, None])]
    )
    opsets = [onnx.helper.make_opsetid("", 13), onnx.helper.make_opsetid(DOMAIN, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), _options(onnxruntime), providers=["CPUExecutionProvider"]
        )
        (answer,) = session.run(None, {"x": image})
    except Exception:  # noqa: BLE001  # the runtime's exceptions share no narrower base: it has no such operator
        return 0
    return answer.shape[1] if _is_blocked(answer, image) else 0


def _is_blocked(answer: NDArray[Any], image: NDArray[Any]) -> bool:
    """Whether a reordered tensor of eight channels is laid out as expected, in one block."""
    width = answer.shape[1]
    if width not in WIDTHS or answer.shape[2:] != image.shape[2:]:
        return False
    blocks = Blocks(answer.reshape(1, 1, *image.shape[2:], width), image.shape[1])
    return np.array_equal(blocks.to_host(), image)


def optimized(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A network as ONNX Runtime rewrites it for this machine's CPU before it runs it; None where it will not say."""
    import onnxruntime

    options = _options(onnxruntime)
    options.add_session_config_entry("session.disable_prepacking", "1")  # it is not going to run
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(path)
        except Exception:  # noqa: BLE001  # the runtime's and protobuf's exceptions share no narrower base
            return None


def _options(runtime: Any) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL_ONLY
    options.add_session_config_entry("session.qdqisint8allowed", "1")  # as for the networks that run
    return options
