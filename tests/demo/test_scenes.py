import numpy as np
import pytest

from calib.demo import actors, furniture
from calib.demo.camera import Camera
from calib.demo.canvas import ALBEDO, BLACK, Canvas, surface
from calib.demo.classes import BICYCLIST, CAR, CLASS_COLOURS, CLASS_NAMES, PEDESTRIAN, POLE, SIGN, SMALL_CLASSES, VOID
from calib.demo.figure import Figure
from calib.demo.light import choose_light, light_group
from calib.demo.scenes import Painter, draw_scene

LEVELS = (1.0, 0.6, 0.4, 0.1, 0.0)


class RecordingCanvas(Canvas):
    """Keeps every stamp, to draw the label again without it."""

    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.stamps = []

    def stamp(self, mask, top, left, material, depth, label):
        self.stamps.append((mask.copy(), top, left, label, self.label.copy() if not self.stamps else None))
        super().stamp(mask, top, left, material, depth, label)


@pytest.mark.parametrize("level", LEVELS)
def test_a_seed_gives_the_same_bytes(level):
    first, second = draw_scene((3, 1), level), draw_scene((3, 1), level)
    assert first.image.tobytes() == second.image.tobytes()
    assert first.label.tobytes() == second.label.tobytes()


def test_seeds_give_different_pictures():
    labels = {draw_scene(seed, 0.8).label.tobytes() for seed in range(6)}
    assert len(labels) == 6


@pytest.mark.parametrize(("rows", "columns"), [(192, 256), (97, 131), (256, 192), (40, 40)])
def test_any_size(rows, columns):
    scene = draw_scene(5, 0.3, rows, columns)
    assert scene.image.shape == (rows, columns, 3)
    assert scene.label.shape == (rows, columns)
    assert (scene.image.dtype, scene.label.dtype) == (np.uint8, np.uint8)


def test_labels_stay_within_the_table():
    known = {*range(len(CLASS_NAMES)), VOID}
    found = set()
    for seed in range(30):
        found |= set(np.unique(draw_scene(seed, seed / 30).label).tolist())
    assert found == known
    assert len(CLASS_NAMES) == len(set(CLASS_NAMES)) == len(set(CLASS_COLOURS))


@pytest.mark.parametrize("seed", range(5))
def test_the_label_is_the_nearest_shape_at_every_pixel(seed):
    canvas = RecordingCanvas(192, 256)
    Painter(np.random.default_rng(seed), 0.5, canvas).paint()
    expected = canvas.stamps[0][-1]
    for mask, top, left, label, _ in canvas.stamps:
        for row, column in np.argwhere(mask):
            expected[top + row, left + column] = label
    np.testing.assert_array_equal(canvas.label, expected)


def camera():
    return Camera(rows=192, columns=256, focal=230.0, centre=128.0, horizon=90.0, eye=1.5)


def paint_actor(canvas, name, rng):
    light = choose_light(0.3, rng)
    if name == "car":
        car = Figure(canvas, camera(), 1.5, 12.0, CAR)
        actors.paint_car(car, 0.5, light, rng, oncoming=True, parked=False)
    elif name == "pedestrian":
        actors.paint_pedestrian(Figure(canvas, camera(), 1.0, 9.0, PEDESTRIAN), 0.5, rng)
    elif name == "bicyclist":
        actors.paint_bicyclist(Figure(canvas, camera(), 1.0, 9.0, BICYCLIST), True, 0.5, light, rng)
    elif name == "lamp":
        furniture.paint_street_lamp(Figure(canvas, camera(), 1.0, 12.0, POLE), light, 0.5, rng)
    else:
        furniture.paint_sign(Figure(canvas, camera(), 1.0, 9.0, SIGN), 0.5, rng)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("car", {CAR}),
        ("pedestrian", {PEDESTRIAN}),
        ("bicyclist", {BICYCLIST}),
        ("lamp", {POLE}),
        ("sign", {SIGN, POLE}),
    ],
)
def test_painted_pixels_and_labelled_pixels_are_the_same(name, classes):
    canvas = Canvas(192, 256)
    canvas.surfaces[..., ALBEDO] = -1.0
    canvas.label[:] = VOID
    paint_actor(canvas, name, np.random.default_rng(0))
    np.testing.assert_array_equal(canvas.label != VOID, canvas.surfaces[..., 0] != -1.0)
    assert set(np.unique(canvas.label).tolist()) - {VOID} == classes


@pytest.mark.parametrize("distance", [8.0, 20.0, 45.0])
def test_thin_things_are_at_least_a_pixel_wide_and_keep_their_size(distance):
    canvas = Canvas(192, 256)
    canvas.label[:] = VOID
    pole = Figure(canvas, camera(), 0.0, distance, POLE)
    pole.bar((0.0, 0.0), (0.0, 3.0), 0.1, surface(BLACK))
    rows, columns = np.nonzero(canvas.label == POLE)
    scale = 230.0 / distance
    assert len(set(columns.tolist())) == pytest.approx(max(0.1 * scale, 1.0), abs=1.5)
    assert np.ptp(rows) + 1 == pytest.approx(min(3.0 * scale, 90.0 + 1.5 * scale), abs=2.0)


def test_a_nearer_figure_hides_a_farther_one():
    canvas = Canvas(192, 256)
    Figure(canvas, camera(), 0.0, 20.0, PEDESTRIAN).box(-0.3, 0.3, 0.0, 1.7, surface(BLACK))
    Figure(canvas, camera(), 0.0, 10.0, CAR).box(-0.9, 0.9, 0.0, 1.4, surface(BLACK))
    covered = camera().project([0.0], [0.5], 20.0)[0].astype(int)
    assert canvas.label[covered[1], covered[0]] == CAR


def luma(image):
    return image.astype(np.float64) @ (0.299, 0.587, 0.114)


def test_groups_of_light_differ_in_brightness():
    means = [np.mean([luma(draw_scene((7, n), level).image).mean() for n in range(8)]) for level in (0.85, 0.4, 0.1)]
    day, dusk, night = means
    assert day > 1.4 * dusk
    assert dusk > 1.2 * night
    assert night > 5.0


def test_lamps_blow_out_the_sensor_in_the_dark():
    night = [luma(draw_scene((8, n), 0.08).image) for n in range(8)]
    contrast = [np.percentile(picture, 99.9) / np.median(picture) for picture in night]
    assert np.median(contrast) > 4.0


def test_noise_grows_in_the_dark():
    def roughness(level):
        # The bottom rows hold road only: the difference of neighbouring rows is wear and noise.
        scenes = [draw_scene((9, n), level, 192, 256) for n in range(6)]
        return np.mean([np.abs(np.diff(luma(s.image)[:80], axis=0))[s.label[1 : 80 + 0] == 0].mean() for s in scenes])

    assert roughness(0.05) > 1.3 * roughness(0.95)


def test_small_objects_are_there_and_small():
    labels = [draw_scene((10, n), 0.7).label for n in range(30)]
    shares = {number: np.mean([(label == number).mean() for label in labels]) for number in SMALL_CLASSES}
    assert all(0.0005 < share < 0.06 for share in shares.values()), shares
    assert np.mean([np.isin(label, SMALL_CLASSES).any() for label in labels]) == 1.0


@pytest.mark.parametrize(
    ("level", "group"), [(0.0, "night"), (0.199, "night"), (0.2, "dusk"), (0.55, "day"), (1.0, "day")]
)
def test_light_groups(level, group):
    assert light_group(level) == group
