"""What users get wrong with ``calib qat``: one error before any work is done, or a warning where it may be meant."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.core.graph import analyse  # noqa: E402
from calib.core.graph.stored import StoredValues  # noqa: E402
from calib.core.trainable import trainable_constants  # noqa: E402
from calib.edges.evaluation.loading import call_factory  # noqa: E402
from calib.edges.progress import SilentProgress  # noqa: E402
from calib.edges.qat.exporting import ExportOptions, export_module  # noqa: E402
from calib.edges.qat.module import OnnxModule  # noqa: E402
from calib.edges.qat.world import World, join_world, together  # noqa: E402
from calib.errors import CalibError, ModelError, UsageError  # noqa: E402
from calib.jobs.build import BuildRequest  # noqa: E402
from calib.jobs.build import build as run_build  # noqa: E402
from calib.jobs.qat import QatRequest, run_qat  # noqa: E402
from tests.evalsets import Evalset  # noqa: E402
from tests.qat.networks import Named, Plain, Small  # noqa: E402

SMALL, PLAIN, NAMED = (f"tests.qat.networks:{name}" for name in ("Small", "Plain", "Named"))


class Heard(SilentProgress):
    """Remembers what was told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.notes: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def note(self, message: str) -> None:
        self.notes.append(message)


def request(data: Evalset, output: Path, model: str = SMALL, **changes: Any) -> QatRequest:
    base = QatRequest(
        model=model, data=str(data.manifest), output=output, steps=1, batch_size=2, val_split="val", workers=1,
        control=False,
    )  # fmt: skip
    return replace(base, **changes)


def refused(asked: QatRequest) -> CalibError:
    """The error; nothing but the folder for unfinished work may be there."""
    with pytest.raises(CalibError) as caught:
        run_qat(asked, SilentProgress())
    assert {item.name for item in asked.output.iterdir()} <= {".partial"}
    assert not list(asked.output.glob("ptq"))
    return caught.value


def test_an_unclear_output_is_refused_before_anything_is_calibrated(data: Evalset, tmp_path: Path) -> None:
    said = str(refused(request(data, tmp_path, NAMED)))
    assert "expected one output to score, got out (float32 ?x5x32x48), aux (float32 ?x5x32x48)" in said
    assert "--output-name out" in said


def test_a_frozen_network_is_refused_unless_scales_learn(data: Evalset, build: Path, tmp_path: Path) -> None:
    asked = request(data, tmp_path, init=str(build), freeze=("*",))
    assert "got no weight that is not frozen, and fixed scales" in str(refused(replace(asked, learn_scales=False)))
    assert "pass --no-control" in str(refused(replace(asked, control=True)))
    said = str(refused(replace(asked, freeze=("nothing*",))))
    names = said.split("names are ")[1].split(", ")
    assert len(set(names)) == len(names)


def test_weights_that_are_not_finite_are_refused(data: Evalset, exported: Path, build: Path, tmp_path: Path) -> None:
    model = onnx.load(exported)
    for tensor in model.graph.initializer:
        if tensor.name == "head.weight":
            broken = numpy_helper.to_array(tensor).copy()
            broken.flat[0] = np.inf
            tensor.CopyFrom(numpy_helper.from_array(broken, tensor.name))
    onnx.save(model, tmp_path / "net.onnx")
    error = refused(request(data, tmp_path / "out", str(tmp_path / "net.onnx"), init=str(build)))
    assert isinstance(error, ModelError)
    assert "NaN or infinity in head.weight" in str(error)


def test_the_build_of_another_network_is_refused(data: Evalset, build: Path, tmp_path: Path) -> None:
    error = refused(request(data, tmp_path, PLAIN, init=str(build)))
    assert isinstance(error, UsageError)
    assert "got one of another network" in str(error)


def test_a_build_of_other_weights_is_told(data: Evalset, weights: Path, build: Path, tmp_path: Path) -> None:
    state = torch.load(weights, weights_only=True)
    torch.save({**state, "head.weight": state["head.weight"] * 1.5}, tmp_path / "w.pt")
    heard = Heard()
    run_qat(request(data, tmp_path / "out", weights=tmp_path / "w.pt", init=str(build)), heard)
    assert [text for text in heard.warnings if "other weights: 1 differ (head.weight)" in text]
    heard = Heard()
    run_qat(request(data, tmp_path / "same", weights=weights, init=str(build)), heard)
    assert not [text for text in heard.warnings if "other weights" in text]


def test_a_build_is_not_written_over(data: Evalset, exported: Path, build: Path) -> None:
    before = {path.name: path.read_bytes() for path in build.iterdir() if path.is_file()}
    for init in (None, str(build)):
        with pytest.raises(UsageError, match="a folder of its own for the training, got the folder"):
            run_qat(request(data, build, str(exported), init=init), SilentProgress())
    assert {path.name: path.read_bytes() for path in build.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_training_is_not_written_over_by_a_build(
    interrupted: bool, data: Evalset, exported: Path, build: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(data, tmp_path / "out", str(exported), init=str(build), control=interrupted)
    if interrupted:
        monkeypatch.setattr("calib.jobs.qat.run.control_settings", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_qat(asked, SilentProgress())
    else:
        run_qat(asked, SilentProgress())
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    wanted = BuildRequest(exported, str(data.manifest), tmp_path / "out", split="train", num_images=4)
    with pytest.raises(UsageError, match="a folder of its own for the build, got the folder of a training"):
        run_build(wanted, SilentProgress())
    after = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert after == before


def _interrupt(trained: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["images", "labels"])
def test_a_finished_training_is_done_again_where_a_file_has_changed(
    kind: str, data: Evalset, exported: Path, build: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    shutil.copytree(data.manifest.parent, folder)
    asked = request(data, tmp_path / "out", str(exported), init=str(build))
    asked = replace(asked, data=str(folder / data.manifest.name))
    assert not run_qat(asked, SilentProgress()).reused
    assert run_qat(asked, SilentProgress()).reused
    one, other = sorted((folder / kind / "train").glob("*.png"))[:2]
    one.write_bytes(other.read_bytes())
    assert not run_qat(asked, SilentProgress()).reused


def test_the_wrong_flag_is_named(data: Evalset, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--distill-weight: expected 0 to 1, got 2"):
        run_qat(request(data, tmp_path / "out", distill=2.0), SilentProgress())


@pytest.mark.parametrize("text", ["def net(:", "raise ValueError('no data')", "import sys; sys.exit(2)"])
def test_a_module_that_cannot_be_imported_is_one_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"unusable{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=rf"a module {name} that can be imported, got \w+: .*line 1\)"):
        call_factory(f"{name}:net")


class Transposed(Plain):
    """Batch normalisation behind a transposed convolution, and a convolution right behind that."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.ConvTranspose2d(8, 8, 2, 2, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.down = torch.nn.Conv2d(8, 8, 2, 2)
        self.norm.weight.data.uniform_(3.0, 9.0, generator=torch.Generator().manual_seed(2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.down(self.norm(self.up(self.first(image)))))


def test_ranges_of_an_export_with_its_normalisation_go_to_the_folded_network(data: Evalset, tmp_path: Path) -> None:
    """The sum before the normalisation is no tensor of the folded network, and has a far smaller range."""
    network = Transposed().eval()
    options = ExportOptions(inputs=("image",), outputs=("logits",))
    model = export_module(network, [torch.randn(2, 3, 32, 48)], options, "net")
    assert [node.op_type for node in model.graph.node if node.op_type == "BatchNormalization"]
    onnx.save(model, tmp_path / "net.onnx")
    asked = BuildRequest(
        tmp_path / "net.onnx", str(data.manifest), tmp_path / "build", split="train", num_images=4,
        calibrators=("minmax",),
    )  # fmt: skip
    run_build(asked, SilentProgress())
    observed = {
        item["name"]: item["ranges"]["minmax"]["amax"]
        for item in json.loads((tmp_path / "build" / "ranges.json").read_bytes())["tensors"]
        if "minmax" in item["ranges"]
    }
    import calib.qat

    plan = calib.qat.prepare(network, tmp_path / "build", torch.zeros(1, 3, 32, 48)).plan
    assert plan is not None
    found = {pair.tensor: pair.amax for pair in plan.activations}
    assert [name for name in found if "norm" in name]
    assert {name: observed["image" if name == "input" else name] for name in found} == found


def test_a_bias_stored_with_a_mean_is_no_weight() -> None:
    """Fresh networks: PyTorch's exporter stores equal tensors once, so a bias of zeros is a mean of zeros as well."""

    class Fresh(Small):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Sequential(
                torch.nn.ConvTranspose2d(16, 8, 2, 2), torch.nn.ReLU(), torch.nn.BatchNorm2d(8)
            )
            torch.nn.init.zeros_(self.up[0].bias)

    model = export_module(Fresh().eval(), [torch.randn(2, 3, 32, 48)], ExportOptions(), "net")
    network = analyse(model)
    stored = StoredValues(model)
    norms = [node for node in network.nodes if node.op_type == "BatchNormalization"]
    held = {stored.root(name) for node in norms for name in node.inputs[1:]}
    assert held
    layers = {name for node in network.nodes if "Conv" in node.op_type for name in node.inputs[1:]}
    assert held & layers, "the exporter did not merge them"
    assert not held & set(trainable_constants(network, stored))
    OnnxModule(model)(torch.randn(2, 3, 32, 48)).sum().backward()


def test_several_outputs_go_by_the_keys_of_their_dictionary() -> None:
    model = export_module(Named().eval(), [torch.randn(2, 3, 32, 48)], ExportOptions(outputs=("logits",)), "net")
    assert [item.name for item in model.graph.output] == ["out", "aux"]
    lengths = [[dim.dim_value for dim in item.type.tensor_type.shape.dim][1:] for item in model.graph.output]
    assert lengths == [[5, 32, 48]] * 2


def test_what_the_preprocessing_gives_must_fit_the_network() -> None:
    with pytest.raises(ModelError, match="a network that runs on inputs of shape 2x1x32x48, got RuntimeError"):
        export_module(Plain().eval(), [torch.randn(2, 1, 32, 48)], ExportOptions(), "net")


def test_labels_without_a_single_pixel_are_told(data: Evalset, exported: Path, build: Path, tmp_path: Path) -> None:
    text = data.manifest.read_text(encoding="utf-8")
    assert "ignore_index: 255" in text
    folder = tmp_path / "set"
    shutil.copytree(data.manifest.parent, folder)
    for path in sorted((folder / "labels" / "train").glob("*.png")):
        cv2.imwrite(str(path), np.full_like(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), 255))
    asked = request(data, tmp_path / "out", str(exported), init=str(build))
    heard = Heard()
    run_qat(replace(asked, data=str(folder / data.manifest.name)), heard)
    assert [text for text in heard.warnings if "no labelled pixel to learn from" in text]
    assert not [text for text in heard.warnings if "measure mIoU on" in text]


def test_the_loss_of_another_process_is_told_from_an_error_of_ones_own() -> None:
    pair, alone = World(1, 2, torch.device("cpu")), World(0, 1, torch.device("cpu"))
    text = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:38103"
    with (
        pytest.raises(UsageError, match="process 2 of 2: expected the others to go on, got one that ended"),
        together(pair),
    ):
        raise RuntimeError(text)
    for world, said in ((alone, text), (pair, "mat1 and mat2 shapes cannot be multiplied")):
        with pytest.raises(RuntimeError, match=said.split(":", maxsplit=1)[0].replace("[", r"\[")), together(world):
            raise RuntimeError(said)


@pytest.mark.parametrize(("size", "said"), [("2", "processes that torchrun started"), ("two", "a whole number")])
def test_a_world_that_nobody_started_is_one_error(size: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=said):
        join_world("cpu")
