from importlib.resources import files

import cv2
import numpy as np
import onnx
import pytest

from calib.core.confusion import confusion_matrix
from calib.core.metrics import class_iou, diagonal_counts
from calib.demo.classes import CLASS_NAMES, SMALL_CLASSES
from calib.demo.dataset import encode_image, plan_split

onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime to run the demo's network")

NETWORK = files("calib.demo") / "network.onnx"
FLOORS = {"day": 0.80, "dusk": 0.78, "night": 0.72}
"""mIoU by light, about two points below what was measured after training (docs/demo.md)."""
SMALL_FLOOR = 0.58
CEILING = 0.99
"""Small classes must stay imperfect: a saturated network would show nothing."""


@pytest.fixture(scope="module")
def session():
    return onnxruntime.InferenceSession(NETWORK.read_bytes(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def counts(session):
    """Confusion counts by light over the whole ``val`` split, read as the data set is written."""
    found = {}
    for scene in plan_split("val"):
        drawn = scene.draw()
        encoded = np.frombuffer(encode_image(drawn.image), np.uint8)
        image = cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1]
        logits = session.run(["logits"], {"image": as_input(image)[None]})[0][0]
        image_counts = confusion_matrix(drawn.label, logits.argmax(0).astype(np.uint8), len(CLASS_NAMES))
        found[scene.group] = found.get(scene.group, 0) + image_counts
    return found


def iou(matrix):
    return class_iou(*diagonal_counts(matrix))


def as_input(image):
    scaled = (image.astype(np.float32) / 255 - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    return scaled.transpose(2, 0, 1)


def test_the_file_is_small_and_sound():
    data = NETWORK.read_bytes()
    assert len(data) < 1_000_000
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    assert {item.domain: item.version for item in model.opset_import} == {"": 17}
    assert {tensor.data_type for tensor in model.graph.initializer} == {onnx.TensorProto.FLOAT}


def test_it_has_what_is_hard_to_quantize():
    nodes = onnx.load_from_string(NETWORK.read_bytes()).graph.node
    kinds = {node.op_type for node in nodes}
    assert {"Conv", "Relu", "HardSwish", "HardSigmoid", "GlobalAveragePool", "Mul", "Add", "Resize", "Concat"} <= kinds
    groups = {item.i for node in nodes for item in node.attribute if item.name == "group"}
    assert max(groups) > 1
    assert "BatchNormalization" not in kinds


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_the_batch_is_open(session, batch):
    image = np.random.default_rng(0).standard_normal((batch, 3, 192, 256), np.float32)
    logits = session.run(["logits"], {"image": image})[0]
    assert logits.shape == (batch, len(CLASS_NAMES), 192, 256)
    alone = session.run(["logits"], {"image": image[-1:]})[0]
    np.testing.assert_allclose(logits[-1:], alone, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("light", FLOORS)
def test_it_is_as_good_as_when_it_was_trained(counts, light):
    assert FLOORS[light] < iou(counts[light]).mean() < CEILING


def test_small_classes_are_learnt_and_worse(counts):
    by_class = iou(sum(counts.values()))
    small = by_class[list(SMALL_CLASSES)].mean()
    others = np.delete(by_class, list(SMALL_CLASSES)).mean()
    assert SMALL_FLOOR < small < others - 0.1
    assert by_class.min() > 0.45
