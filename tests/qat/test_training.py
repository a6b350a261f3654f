"""The training loop: order, resuming, stopping, several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.core.graph import analyse  # noqa: E402
from calib.core.preprocess import geometry  # noqa: E402
from calib.core.scoresource import ScoreSource, find_scores  # noqa: E402
from calib.edges.feeds import bind_dataset  # noqa: E402
from calib.edges.manifest import load_dataset  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.progress import SilentProgress  # noqa: E402
from calib.edges.qat.checkpoint import load_arrays, save_arrays  # noqa: E402
from calib.edges.qat.data import UNCHANGED, Augmentation, Examples, Order  # noqa: E402
from calib.edges.qat.module import OnnxModule  # noqa: E402
from calib.edges.qat.settings import TrainSettings, schedule  # noqa: E402
from calib.edges.qat.state import Material  # noqa: E402
from calib.edges.qat.task import Batch, Task, mean_iou, resize_scores  # noqa: E402
from calib.edges.qat.trainer import Trainer, teacher_of  # noqa: E402
from calib.edges.qat.world import World  # noqa: E402
from calib.errors import ModelError, StatisticsError  # noqa: E402
from calib.jobs.qat.preparing import plan_model  # noqa: E402
from calib.stages.qdq import activation_ranges  # noqa: E402
from tests.evalsets import Evalset, colour_network, make_set  # noqa: E402

ALONE = World(0, 1, torch.device("cpu"))
SHORT = TrainSettings(steps=6, batch_size=4, lr=1e-3, validate_every=2, distill=0.5, ema=0.9, checkpoint_seconds=0.0)


def material(data: Evalset, exported: Path) -> Material:
    network = analyse(load_model(exported))
    parts = []
    for split in ("train", "val"):
        dataset = load_dataset(str(data.manifest), split)
        parts.append(Examples(dataset, bind_dataset(network, dataset, "net"), -1))
    task = Task(find_scores(network, data.classes, None, "net"), data.classes, -1)
    return Material(task, parts[0], parts[1])


def student(exported: Path, build: Path) -> OnnxModule:
    amax = activation_ranges(load_model(build / "minmax.qdq.onnx"))
    model, plan = plan_model(load_model(exported), amax, "trt11")
    return OnnxModule(model, plan, learn_scales=True)


def trainer(
    exported: Path,
    build: Path,
    data: Evalset,
    file: Path,
    settings: TrainSettings = SHORT,
    kind: type[Trainer] = Trainer,
) -> Trainer:
    network = student(exported, build)
    return kind(network, teacher_of(network), material(data, exported), settings, ALONE, file, "test")


def weights_of(one: Trainer) -> dict[str, Any]:
    return {name: value.clone() for name, value in one.network.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(exported: Path, build: Path, data: Evalset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Weights of a training that was never interrupted."""
    torch.set_num_threads(1)
    one = trainer(exported, build, data, tmp_path_factory.mktemp("whole") / "c")
    one.train(SilentProgress(), 2)
    return weights_of(one)


class Killed(Exception):
    """A process that ends without a word."""


@pytest.mark.parametrize("step", range(6))
def test_killed_at_any_step_and_resumed_the_weights_are_those_of_an_uninterrupted_training(
    step: int, whole: dict[str, Any], exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    class Mortal(Trainer):
        def _step(self, batch: Batch, fraction: float) -> None:
            super()._step(batch, fraction)
            if self.state.step == step:
                raise Killed

    with pytest.raises(Killed):
        trainer(exported, build, data, tmp_path / "c", kind=Mortal).train(SilentProgress(), 2)
    again = trainer(exported, build, data, tmp_path / "c")
    state = again.train(SilentProgress(), 1)
    assert state.step == 6
    assert [point.step for point in state.points] == [0, 2, 4, 6]
    assert same(weights_of(again), whole)


def test_a_finished_training_is_not_done_again(exported: Path, build: Path, data: Evalset, tmp_path: Path) -> None:
    first = trainer(exported, build, data, tmp_path / "c")
    first.train(SilentProgress(), 2)

    class Idle(Trainer):
        def _step(self, batch: Batch, fraction: float) -> None:
            raise AssertionError

    again = trainer(exported, build, data, tmp_path / "c", kind=Idle)
    again.train(SilentProgress(), 2)
    assert same(weights_of(again), weights_of(first))


def test_an_interrupt_is_honoured_between_two_steps(
    whole: dict[str, Any], exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    assert threading.current_thread() is threading.main_thread()

    class Impatient(Trainer):
        def _step(self, batch: Batch, fraction: float) -> None:
            super()._step(batch, fraction)
            if self.state.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    settings = replace(SHORT, checkpoint_seconds=1e9)
    with pytest.raises(KeyboardInterrupt):
        trainer(exported, build, data, tmp_path / "c", settings, Impatient).train(SilentProgress(), 2)
    found = load_arrays(tmp_path / "c")
    assert found is not None
    assert found[1]["state"]["step"] == 3
    again = trainer(exported, build, data, tmp_path / "c", settings)
    again.train(SilentProgress(), 2)
    assert same(weights_of(again), whole)


def test_workers_change_nothing(
    whole: dict[str, Any], exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    one = trainer(exported, build, data, tmp_path / "c")
    one.train(SilentProgress(), 5)
    assert same(weights_of(one), whole)


def test_training_lowers_the_loss_and_moves_weights_and_scales(
    exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    settings = replace(SHORT, steps=30, lr=3e-3, scale_lr=3e-3, validate_every=10, distill=0.0)
    one = trainer(exported, build, data, tmp_path / "c", settings)
    before = weights_of(one)
    state = one.train(SilentProgress(), 2)
    assert state.points[-1].loss < state.points[1].loss
    assert state.points[-1].miou > state.points[0].miou
    after = weights_of(one)
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert any(name.startswith("weights.") for name in moved)
    assert any(name.endswith(".shift") for name in moved)


def test_without_improvement_training_stops_and_the_best_is_kept(
    exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    settings = replace(
        SHORT, steps=40, lr=0.5, ema=0.0, distill=0.0, clip=0.0, validate_every=2, patience=3, keep="best"
    )
    one = trainer(exported, build, data, tmp_path / "c", settings)
    before = weights_of(one)
    state = one.train(SilentProgress(), 2)
    assert state.finished == "no improvement any more"
    assert state.step < 40
    assert state.best == 0
    assert same(weights_of(one), before)


def test_a_loss_that_is_not_finite_is_one_error(exported: Path, build: Path, data: Evalset, tmp_path: Path) -> None:
    class Broken(Trainer):
        def _loss(self, answer: Any, batch: Batch) -> Any:
            return super()._loss(answer, batch) * float("nan")

    with pytest.raises(StatisticsError, match="a finite loss, got nan after 2 steps"):
        trainer(exported, build, data, tmp_path / "c", kind=Broken).train(SilentProgress(), 2)


def test_time_ends_a_training_too(exported: Path, build: Path, data: Evalset, tmp_path: Path) -> None:
    settings = replace(SHORT, steps=10**9, max_seconds=0.5, validate_every=10**9)
    state = trainer(exported, build, data, tmp_path / "c", settings).train(SilentProgress(), 2)
    assert state.finished == "finished"
    assert 0.5 <= state.seconds < 30
    assert state.points[-1].step == state.step > 0


def test_a_damaged_checkpoint_is_started_over(
    whole: dict[str, Any], exported: Path, build: Path, data: Evalset, tmp_path: Path
) -> None:
    (tmp_path / "c").write_bytes(b"PK\x03\x04 cut off")
    one = trainer(exported, build, data, tmp_path / "c")
    one.train(SilentProgress(), 2)
    assert same(weights_of(one), whole)


def test_a_checkpoint_holds_arrays_and_json_and_is_the_same_for_the_same_content(tmp_path: Path) -> None:
    arrays = {"a/b": np.arange(6.0).reshape(2, 3), "c": np.array(3)}
    for name in ("one", "two"):
        save_arrays(tmp_path / name, arrays, {"step": 3})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    with np.load(tmp_path / "one", allow_pickle=False) as read:
        assert np.array_equal(read["a/b"], arrays["a/b"])
    found = load_arrays(tmp_path / "one")
    assert found is not None
    assert found[1] == {"step": 3}
    assert load_arrays(tmp_path / "none") is None


def test_two_processes_see_the_images_that_one_sees() -> None:
    order = Order(images=10, batch=6, seed=3)
    for step in range(5):
        alone = order.step(step)
        shared = [order.step(step, rank, 2) for rank in (0, 1)]
        assert sorted(map(repr, alone)) == sorted(map(repr, [*shared[0], *shared[1]]))
        assert len(shared[0]) == len(shared[1]) == 3
    seen = [index for step in range(5) for index, _ in order.step(step)]
    assert sorted(seen) == sorted([*range(10)] * 3)
    assert [order.step(2)] == [Order(images=10, batch=6, seed=3).step(2)]
    assert order.step(2) != Order(images=10, batch=6, seed=4).step(2)


@pytest.mark.parametrize("flip", [True, False])
def test_augmentation_moves_picture_and_label_alike_and_mixes_nothing(flip: bool) -> None:
    ids = np.random.default_rng(0).integers(0, 5, (40, 56)).astype(np.int32)
    picture = np.repeat(ids[..., None] * 10, 3, axis=2).astype(np.uint8)
    augmentation = Augmentation(flip, 0.3, 0.9, 0.75)
    moved, label = augmentation.apply(picture), augmentation.apply(ids)
    assert label.shape == (30, 42)
    np.testing.assert_array_equal(moved[..., 0], label * 10)
    assert moved.flags.c_contiguous


def test_labels_keep_their_size_and_void_pixels_count_nothing(data: Evalset, exported: Path) -> None:
    own = material(data, exported)
    example = own.train.load(own.train.keys[0])
    assert example.inputs["image"].shape == (1, 3, 32, 48)
    assert example.label.shape == (40, 56)
    assert set(np.unique(example.label)) <= {-1, *range(data.classes)}
    scores = torch.randn(1, data.classes, 32, 48)
    batch = Batch((), [torch.from_numpy(example.label)], [example.geometry])
    loss, count = own.task.cross_entropy(scores, batch)
    resized = torch.nn.functional.interpolate(scores, (40, 56), mode="bilinear", align_corners=False)
    wanted = torch.nn.functional.cross_entropy(resized, batch.labels[0][None], ignore_index=-1, reduction="sum")
    assert float(loss) == pytest.approx(float(wanted))
    assert int(count) == int((example.label >= 0).sum())


def test_scores_of_a_letterboxed_picture_are_resized_as_the_evaluation_does(data: Evalset) -> None:
    from calib.core.upsample import predict_classes, sampling

    spec = load_dataset(str(data.manifest), "val").preprocess
    assert spec is not None
    plan = geometry((40, 90), replace(spec, fit="letterbox"))
    scores = torch.randn(1, 4, 16, 24, generator=torch.Generator().manual_seed(0))
    given = resize_scores(scores, plan, (40, 90)).argmax(1)[0].numpy()
    box = plan.content
    rows = sampling(40, 16, 32, box.top, box.bottom - box.top)
    columns = sampling(90, 24, 48, box.left, box.right - box.left)
    wanted = np.empty((40, 90), np.uint8)
    predict_classes(scores[0].numpy(), rows, columns, wanted, 4)
    assert np.mean(given == wanted) > 0.999


def test_mean_iou_is_that_of_the_evaluation() -> None:
    table = torch.tensor([[5, 1, 0], [2, 6, 0], [0, 0, 0]])
    assert mean_iou(table) == pytest.approx((5 / 8 + 6 / 9) / 2)


@pytest.mark.parametrize(
    ("meaning", "make"),
    [
        ("logits", lambda x: x),
        ("probabilities", lambda x: x.softmax(1)),
        ("log-probabilities", lambda x: x.log_softmax(1)),
    ],
)
def test_scores_of_every_meaning_give_the_same_loss(meaning: Any, make: Any) -> None:
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    task = Task(ScoreSource("y", meaning, 1), 3, -1)
    assert torch.allclose(task.scores(make(x)).log_softmax(1), x.log_softmax(1), atol=1e-5)
    last = Task(ScoreSource("y", meaning, 3), 3, -1)
    assert torch.allclose(last.scores(make(x).movedim(1, -1)), task.scores(make(x)))


def test_one_channel_becomes_two_classes() -> None:
    x = torch.randn(2, 1, 4, 5, generator=torch.Generator().manual_seed(0))
    logits = Task(ScoreSource("y", "binary-logits", 1), 2, -1).scores(x)
    assert torch.allclose(logits.softmax(1)[:, 1], torch.sigmoid(x[:, 0]))
    chances = Task(ScoreSource("y", "binary-probabilities", 1), 2, -1).scores(torch.sigmoid(x))
    assert torch.allclose(chances, logits, atol=1e-4)


def test_class_numbers_are_followed_back_to_their_scores() -> None:
    from onnx import TensorProto, helper

    tail = [helper.make_node("ArgMax", ["logits"], ["ids"], axis=1, keepdims=0)]
    network = analyse(colour_network(5, tail=tail, output="ids", output_type=TensorProto.INT64))
    assert find_scores(network, 5, None, "net") == ScoreSource("logits", "logits", 1)
    with pytest.raises(ModelError, match="7 classes along axis 1 or 3, got 5 along axis 1"):
        find_scores(network, 7, None, "net")


def test_the_learning_rate_rises_and_falls() -> None:
    settings = TrainSettings(steps=100, warmup=0.1, final=0.02)
    rates = [schedule(step / 100, settings) for step in range(101)]
    assert rates[0] < 0.01
    assert max(rates) == pytest.approx(1.0) == rates[10]
    assert rates[-1] == pytest.approx(0.02)
    assert sorted(rates[10:], reverse=True) == rates[10:]


PROGRAM = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from calib.cli import main
main(sys.argv[1:])
"""


def test_two_processes_train_as_one_does(
    exported: Path, build: Path, data: Evalset, repository: Path, tmp_path: Path
) -> None:
    """torchrun with gloo on the CPU: two processes of 2 images against one of 4, to what float sums allow."""
    (tmp_path / "run.py").write_text(PROGRAM)
    common = ["qat", str(exported), "--data", str(data.manifest), "--init", str(build), "--calibrator", "minmax",
              "--steps", "5", "--no-control", "--distill", "--val-split", "val", "--keep", "last", "--patience", "0",
              "--seed", "3", "--lr", "1e-3", "-q"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    runs = {
        "one": [sys.executable, str(tmp_path / "run.py"), *common, "--batch-size", "4", "-o", str(tmp_path / "one")],
        "two": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                str(tmp_path / "run.py"), *common, "--batch-size", "2", "-o", str(tmp_path / "two")],
    }  # fmt: skip
    for command in runs.values():
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    one, two = (load_model(tmp_path / name / "qat.qdq.onnx") for name in runs)
    from onnx import numpy_helper

    compared = 0
    for left, right in zip(one.graph.initializer, two.graph.initializer, strict=True):
        assert left.name == right.name
        np.testing.assert_allclose(numpy_helper.to_array(left), numpy_helper.to_array(right), rtol=2e-3, atol=2e-4)
        compared += 1
    assert compared > 20


def test_images_of_several_sizes_need_a_size_or_one_image_a_step(tmp_path: Path) -> None:
    one = make_set(tmp_path, images=3, size=(40, 56), splits=("train",), preprocess={"size": "keep"})
    import cv2

    for kind in ("images", "labels"):
        path = tmp_path / kind / "train" / "a_001.png"
        cv2.imwrite(str(path), cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[:32, :48])
    network = analyse(colour_network(5))
    dataset = load_dataset(str(one.manifest), "train")
    examples = Examples(dataset, bind_dataset(network, dataset, "net"), -1)
    assert not examples.may_crop
    with pytest.raises(ModelError, match="images of one size in a batch, got 1x3x32x48, 1x3x40x56"):
        examples.batch([(key, UNCHANGED) for key in examples.keys])
    assert examples.batch([(examples.keys[0], UNCHANGED)]).inputs[0].shape[0] == 1


def test_label_values_outside_the_classes_do_not_count_and_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], exported: Path, build: Path
) -> None:
    one = make_set(tmp_path, images=4, splits=("train", "val"), noise=55.0)
    label = one.label("images/train/a_001.png")
    label[10:12, 10:20] = 77
    one.change_label("images/train/a_001.png", label)
    settings = replace(SHORT, steps=1, validate_every=1)
    trainer(exported, build, one, tmp_path / "c", settings).train(SilentProgress(), 2)
    assert "label values outside the class table do not count: 77 (20 pixels)" in capsys.readouterr().err


def test_constants_are_fed_beside_the_picture(tmp_path: Path) -> None:
    import yaml

    one = make_set(tmp_path, images=3, splits=("train",))
    manifest = yaml.safe_load(one.manifest.read_text())
    one.manifest.write_text(yaml.safe_dump({**manifest, "inputs": {"gain": 2.0, "rows": 3.0}}))
    from tests.graphs import model, node

    graph = model(
        [node("Mul", "image,gain", "scaled"), node("Mul", "scaled,rows", "y")],
        {"image": ("N", 3, "H", "W"), "gain": (), "rows": ("N", 1, 1, 1)},
        ["y"],
        {},
    )
    network = analyse(graph)
    dataset = load_dataset(str(one.manifest), "train")
    examples = Examples(dataset, bind_dataset(network, dataset, "net"), -1)
    batch = examples.batch([(key, UNCHANGED) for key in examples.keys])
    assert [tuple(item.shape) for item in batch.inputs] == [(3, 3, 32, 48), (), (3, 1, 1, 1)]
    assert torch.allclose(OnnxModule(graph)(*batch.inputs), batch.inputs[0] * 6)
