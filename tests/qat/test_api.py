"""``calib.qat``: a network of one's own, trained in one's own loop."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import calib.qat  # noqa: E402
from calib.core.plan import PlacementOptions  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.tables import load_table  # noqa: E402
from calib.errors import FormatError, StatisticsError, UsageError  # noqa: E402
from calib.stages.qdq import activation_ranges  # noqa: E402
from tests.qat.networks import Named, Plain, Small  # noqa: E402
from tests.qat.test_module import runtime  # noqa: E402

EXAMPLE = torch.zeros(1, 3, 32, 48)


def small(weights: Path) -> Small:
    network = Small()
    network.load_state_dict(torch.load(weights, weights_only=True))
    return network.eval()


def test_importing_calib_imports_no_torch(repository: Path) -> None:
    code = "import sys, calib, calib.qat, calib.jobs.qat; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=repository, check=False).returncode == 0


def test_a_prepared_module_computes_nearly_what_the_float_one_does(weights: Path, build: Path) -> None:
    network = small(weights)
    module = calib.qat.prepare(network, build, EXAMPLE)
    x = torch.randn(2, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted, given = network(x), module(x)
        module.quantize = False
        plain = module(x)
    assert torch.allclose(plain, wanted, atol=1e-4)
    assert 0 < float((given - wanted).abs().mean() / wanted.abs().mean()) < 0.2


def test_a_build_fits_although_the_export_names_its_tensors_otherwise(weights: Path, build: Path) -> None:
    """The build's network was exported without the dynamo exporter; tensors are matched by structure."""
    pytest.importorskip("onnxscript", reason="needs onnxscript")
    one = calib.qat.prepare(small(weights), build, EXAMPLE)
    other = calib.qat.prepare(small(weights), build, EXAMPLE, exporter="dynamo")
    assert {pair.tensor for pair in one.plan.activations} != {pair.tensor for pair in other.plan.activations}
    assert [pair.amax for pair in one.plan.activations] == [pair.amax for pair in other.plan.activations]


def test_ranges_come_from_every_source(weights: Path, build: Path, exported: Path) -> None:
    wanted = [pair.amax for pair in calib.qat.prepare(exported, build).plan.activations]
    cache = build / "calibration.cache"
    for ranges in (build, str(build), cache, load_table(str(cache)), build / "percentile.qdq.onnx"):
        found = [pair.amax for pair in calib.qat.prepare(exported, ranges).plan.activations]
        np.testing.assert_allclose(found, wanted, 1e-6)
    amax = dict.fromkeys(activation_ranges(load_model(build / "minmax.qdq.onnx")), 3.0)
    found = [pair.amax for pair in calib.qat.prepare(load_model(exported), amax).plan.activations]
    assert set(found) == {3.0}
    minmax = calib.qat.prepare(exported, build, calibrator="minmax").plan.activations
    assert [pair.amax for pair in minmax] != wanted


def test_answers_keep_their_structure(tmp_path: Path) -> None:
    network = Named().eval()
    module = calib.qat.prepare(network, ranges_of(network), EXAMPLE)
    x = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        answer, wanted = module(x), network(x)
    assert list(answer) == list(wanted) == ["out", "aux"]
    assert answer["aux"].shape == wanted["aux"].shape
    with torch.no_grad():
        assert torch.equal(module(image=x)["out"], answer["out"])


def ranges_of(network: torch.nn.Module, amax: float = 8.0) -> dict[str, float]:
    """A range for every tensor of the module's export."""
    from calib.core.graph import analyse
    from calib.edges.qat.exporting import ExportOptions, export_module

    model = export_module(network, [torch.cat([EXAMPLE, EXAMPLE])], ExportOptions(), "net")
    return {item.name: amax for item in analyse(model).activations}


class TwoInputs(Plain):
    def forward(self, image: torch.Tensor, offset: torch.Tensor, scale: float = 2.0) -> list[torch.Tensor]:
        return [super().forward(image + offset) * scale]


def test_several_inputs_by_place_and_by_name() -> None:
    network = TwoInputs().eval()
    example = (EXAMPLE, torch.zeros(1, 3, 1, 1))
    from calib.core.graph import analyse
    from calib.edges.qat.exporting import ExportOptions, export_module

    model = export_module(network, [torch.cat([item, item]) for item in example], ExportOptions(), "net")
    module = calib.qat.prepare(network, {item.name: 8.0 for item in analyse(model).activations}, example)
    x, offset = torch.randn(2, 3, 32, 48), torch.randn(2, 3, 1, 1)
    with torch.no_grad():
        answer = module(x, offset)
        assert isinstance(answer, list)
        assert torch.equal(module(offset=offset, image=x)[0], answer[0])


def test_a_loop_of_ones_own_trains_and_the_export_computes_it(weights: Path, build: Path, tmp_path: Path) -> None:
    module = calib.qat.prepare(small(weights), build, EXAMPLE)
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(0)
    x, wanted = torch.randn(2, 3, 32, 48, generator=generator), torch.randn(2, 5, 32, 48, generator=generator)
    losses = []
    for _ in range(8):
        loss = (module(x) - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    calib.qat.export(module, tmp_path / "net.qdq.onnx")
    model = load_model(tmp_path / "net.qdq.onnx")
    with torch.no_grad():
        given = module.eval()(x).numpy()
    np.testing.assert_allclose(runtime(model, {"input": x.numpy()})[0], given, atol=0.2)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param


def test_fixed_scales_stay_where_they_start(exported: Path, build: Path) -> None:
    module = calib.qat.prepare(exported, build, learn_scales=False)
    assert not [name for name, _ in module.named_parameters() if name.startswith("quantizers")]
    before = module.activation_amax()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    module(torch.randn(1, 3, 32, 48)).sum().backward()
    optimizer.step()
    assert module.activation_amax() == before


def test_wrappers_are_looked_through_and_copies_are_complete(exported: Path, build: Path, tmp_path: Path) -> None:
    module = copy.deepcopy(calib.qat.prepare(exported, build))
    calib.qat.export(torch.nn.DataParallel(module), tmp_path / "one.onnx")
    calib.qat.export(module, tmp_path / "two.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()
    with pytest.raises(UsageError, match=r"a module that calib\.qat\.prepare made, got Linear"):
        calib.qat.export(torch.nn.Linear(2, 2), tmp_path / "three.onnx")


def test_what_does_not_fit_is_one_error(weights: Path, build: Path, exported: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="0 of 1 ranges are of a tensor it has"):
        calib.qat.prepare(exported, {"nothing": 1.0})
    with pytest.raises(UsageError, match="an input of the network, to export it with"):
        calib.qat.prepare(small(weights), build)
    with pytest.raises(UsageError, match="one of the build's: percentile, minmax, per-channel"):
        calib.qat.prepare(exported, build, calibrator="entropy")
    with pytest.raises(UsageError, match="ranges of the network as it is, got ranges of the equalized network"):
        calib.qat.prepare(exported, build, calibrator="per-channel")
    with pytest.raises(UsageError, match="would not stay tied"):
        calib.qat.prepare(exported, build, options=PlacementOptions(tie_concat=True))
    (tmp_path / "other.cache").write_text("TRT-101401-EntropyCalibration2\nforeign: 3c010a14\n")
    with pytest.raises(UsageError, match="none of a tensor that it has"):
        calib.qat.prepare(exported, tmp_path / "other.cache")


@pytest.mark.parametrize("amax", ["8.0q", [1.0, 2.0], None, np.zeros(3)])
def test_ranges_that_are_no_numbers_are_one_error(amax: Any, exported: Path) -> None:
    with pytest.raises(UsageError, match=r"ranges\['image'\]: expected one number"):
        calib.qat.prepare(exported, {"image": amax})


def test_arguments_of_another_kind_are_one_error(exported: Path, build: Path) -> None:
    with pytest.raises(UsageError, match="a RangeTable, or amax by tensor name, got NoneType"):
        calib.qat.prepare(exported, None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"a torch\.nn\.Module, the path of an ONNX file, or an onnx"):
        calib.qat.prepare(3, build)
    with pytest.raises(FormatError, match="ranges of every calibrator\n  remedy: pass the build folder"):
        calib.qat.prepare(exported, build / "ranges.json")


def test_layers_that_stay_float_for_want_of_a_range_are_told(weights: Path, build: Path) -> None:
    """The cache calls the input ``image``; an export of one's own calls it ``input`` unless it is told otherwise."""
    cache = build / "calibration.cache"
    with pytest.warns(
        UserWarning, match="no range for input, so layers that read them stay float; ranges of no tensor"
    ):
        calib.qat.prepare(small(weights), cache, EXAMPLE)
    module = calib.qat.prepare(small(weights), cache, EXAMPLE, input_names=("image",))
    whole = calib.qat.prepare(small(weights), build, EXAMPLE)
    assert len(module.plan.activations) == len(whole.plan.activations)


def test_a_prepared_module_is_copied_and_pickled(tmp_path: Path) -> None:
    network = Named().eval()
    module = calib.qat.prepare(network, ranges_of(network), EXAMPLE)
    torch.save(module, tmp_path / "module.pt")
    again = torch.load(tmp_path / "module.pt", weights_only=False)
    x = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        answers = [one(x) for one in (module, again, copy.deepcopy(module))]
    for answer in answers[1:]:
        assert list(answer) == ["out", "aux"]
        assert torch.equal(answer["out"], answers[0]["out"])


@pytest.mark.parametrize(
    "convert", [lambda one: one.half(), lambda one: one.double(), lambda one: one.to(torch.bfloat16)]
)
def test_parameters_stay_float32(convert: Any, exported: Path, build: Path) -> None:
    module = calib.qat.prepare(exported, build)
    with pytest.raises(UsageError, match=r"train under torch\.autocast"):
        convert(module)
    assert {item.dtype for item in module.parameters()} == {torch.float32}
    assert module.to("meta") is module


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_mixed_precision_trains(kind: Any, exported: Path, build: Path) -> None:
    module = calib.qat.prepare(exported, build)
    with torch.autocast("cpu", kind):
        answer = module(torch.randn(1, 3, 32, 48))
    answer.float().square().mean().backward()
    assert all(item.grad is not None and bool(torch.isfinite(item.grad).all()) for item in module.parameters())


def test_what_diverged_is_not_exported(exported: Path, build: Path, tmp_path: Path) -> None:
    module = calib.qat.prepare(exported, build)
    name = next(iter(module.weights.names()))
    with torch.no_grad():
        module.weights[name].view(-1)[0] = float("nan")
    with pytest.raises(StatisticsError, match=f"NaN or infinity in {re.escape(name)}"):
        calib.qat.export(module, tmp_path / "net.onnx")
    assert not (tmp_path / "net.onnx").exists()


def test_the_example_of_the_page_runs(repository: Path, weights: Path, build: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "qat.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "prepare(" in block)
    lines = [line for line in code.splitlines() if line.strip()]
    assert len(lines) <= 20
    images = [(torch.randn(2, 3, 32, 48), torch.randint(0, 5, (2, 32, 48)))] * 2
    names: dict[str, Any] = {
        "network": small(weights),
        "loader": images,
        "build": build,
        "out": tmp_path / "n.qdq.onnx",
    }
    exec(compile(code, "docs/qat.md", "exec"), names)
    assert activation_ranges(load_model(tmp_path / "n.qdq.onnx"))
    onnx.checker.check_model(load_model(tmp_path / "n.qdq.onnx"))
