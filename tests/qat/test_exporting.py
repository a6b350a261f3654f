"""Exports by both exporters: the numbers of the module, an open batch, folded batch normalisation."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.edges.qat.exporting import ExportOptions, export_module  # noqa: E402
from calib.errors import ModelError  # noqa: E402
from calib.stages.convert_opset import opset_of  # noqa: E402
from tests.qat.networks import Named, Plain, Small  # noqa: E402
from tests.qat.test_module import runtime  # noqa: E402

EXPORTERS = ["torchscript", "dynamo"]


def needs(exporter: str) -> None:
    if exporter == "dynamo":
        pytest.importorskip("onnxscript", reason="needs onnxscript")


def exported(
    module: torch.nn.Module, size: tuple[int, int] = (32, 48), images: int = 2, **options: object
) -> onnx.ModelProto:
    needs(str(options.get("exporter", "torchscript")))
    return export_module(module.eval(), [torch.randn(images, 3, *size)], ExportOptions(**options), "net")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exporter", "opset"), [*(("torchscript", opset) for opset in range(13, 21)), ("dynamo", 18), ("dynamo", 20)]
)
def test_an_export_computes_what_the_module_computes_for_any_batch(exporter: str, opset: int) -> None:
    module = Small()
    model = exported(module, exporter=exporter, opset=opset, inputs=("image",), outputs=("logits",))
    assert opset_of(model) == opset
    assert [item.name for item in model.graph.input] == ["image"]
    assert [item.name for item in model.graph.output] == ["logits"]
    for images in (1, 3):
        x = torch.randn(images, 3, 32, 48)
        with torch.no_grad():
            wanted = module(x).numpy()
        np.testing.assert_allclose(runtime(model, {"image": x.numpy()})[0], wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_height_and_width_stay_open_where_asked(exporter: str) -> None:
    module = Plain()
    model = exported(module, exporter=exporter, dynamic_size=True, opset=18)
    x = torch.randn(1, 3, 20, 26)
    with torch.no_grad():
        wanted = module(x).numpy()
    np.testing.assert_allclose(runtime(model, {"input": x.numpy()})[0], wanted, 1e-4, 1e-4)


def test_an_opset_that_the_exporter_cannot_write_is_refused() -> None:
    with pytest.raises(ModelError, match="expected opset 13, got opset 18 from the dynamo exporter"):
        exported(Plain(), exporter="dynamo", opset=13)


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_batch_normalisation_is_folded(exporter: str) -> None:
    model = exported(Small(), exporter=exporter)
    assert "BatchNormalization" not in {node.op_type for node in model.graph.node}


def test_one_image_is_enough_of_an_example() -> None:
    model = exported(Plain(), images=1)
    assert not model.graph.input[0].type.tensor_type.shape.dim[0].HasField("dim_value")


def test_a_fixed_batch_is_fixed() -> None:
    model = exported(Plain(), images=1, dynamic_batch=False)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_answers_in_a_dictionary_become_outputs(exporter: str) -> None:
    module = Named()
    model = exported(module, exporter=exporter, outputs=("out", "aux"))
    x = torch.randn(1, 3, 32, 48)
    with torch.no_grad():
        wanted = module(x)
    for value, name in zip(runtime(model, {"input": x.numpy()}), ("out", "aux"), strict=True):
        np.testing.assert_allclose(value, wanted[name].numpy(), 1e-4, 1e-4)


class Untraceable(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("not on my watch")
        return x.mean(1, keepdim=True)


def test_what_cannot_be_exported_is_one_error_that_names_the_other_exporter() -> None:
    with pytest.raises(ModelError, match="not on my watch") as caught:
        exported(Untraceable())
    assert "--exporter dynamo" in caught.value.remedy
