"""The small CNN and the transfer surgery: against torch by hand, on paper, and that frozen means frozen."""

import copy
import importlib.util
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.data import digits
from plm.files import read_json
from plm.train import fit, seed_everything
from plm.vision import ConvBlock, SmallCNN, SmallCNNConfig, calibrate, transfer

TINY = SmallCNNConfig(image_size=8, n_classes=3, channels=(4, 5, 6), pool_after=(1, 3))


@pytest.fixture
def images():
    return torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model():
    seed_everything(0)
    return SmallCNN(TINY)


def train(model, images, steps=5):
    labels = torch.arange(len(images)) % model.config.n_classes
    return fit(model, lambda batch: F.cross_entropy(model(batch), labels), [images], steps, lr=1e-2)


def state(module):
    return copy.deepcopy(module.state_dict())


def assert_same_bits(left, right):
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


# --- equals a reference ---------------------------------------------------------------------------------------------


def loop_block(block, x, pool):
    """`ConvBlock` in training mode, a convolution, a normalisation and a maximum at a time."""
    weight, bias = block.conv.weight, block.conv.bias
    padded = F.pad(x, (1, 1, 1, 1))
    side = x.shape[-1]
    rows = []
    for i in range(side):
        for j in range(side):
            patch = padded[:, :, i : i + 3, j : j + 3]
            rows.append(torch.einsum("bcij,ocij->bo", patch, weight) + bias)
    out = torch.stack(rows, -1).view(len(x), -1, side, side)
    mean = out.mean((0, 2, 3), keepdim=True)
    variance = ((out - mean) ** 2).mean((0, 2, 3), keepdim=True)
    out = (out - mean) / (variance + block.norm.eps).sqrt()
    out = out * block.norm.weight.view(1, -1, 1, 1) + block.norm.bias.view(1, -1, 1, 1)
    out = out.clamp(min=0)
    if pool:
        out = torch.stack([out[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]).amax(0)
    return out


@pytest.mark.parametrize("pool", [False, True])
def test_block_equals_loops_outputs_and_gradients(pool):
    seed_everything(1)
    block = ConvBlock(2, 3, pool).double()
    nn.init.normal_(block.norm.weight)
    nn.init.normal_(block.norm.bias)
    x = torch.randn(4, 2, 6, 6, dtype=torch.double, requires_grad=True)
    inputs = [x, *block.parameters()]
    ours, theirs = block(x), loop_block(block, x, pool)
    assert_close(ours, theirs)
    up = torch.randn_like(ours)
    assert_close(torch.autograd.grad(ours, inputs, up), torch.autograd.grad(theirs, inputs, up))


def test_model_equals_the_same_layers_in_a_row(model, images):
    model.eval()
    x = images
    for i, block in enumerate(model.blocks):
        x = F.conv2d(x, block.conv.weight, block.conv.bias, padding=1)
        x = F.batch_norm(
            x, block.norm.running_mean, block.norm.running_var, block.norm.weight, block.norm.bias, eps=1e-5
        )
        x = F.relu(x)
        if i + 1 in TINY.pool_after:
            x = F.max_pool2d(x, 2)
        assert_close(model.feature_maps(images)[i], x)
    assert_close(model(images), F.linear(x.flatten(1), model.head.weight, model.head.bias))


# --- hand numbers ---------------------------------------------------------------------------------------------------


def test_one_stroke_by_hand():
    """A vertical stroke under the filter "bright on the left, dark on the right": +2, -2 beside it, 0 on it."""
    block = ConvBlock(1, 1, pool=False).eval()
    stroke = torch.tensor([[0.0, 1, 0], [0, 1, 0], [0, 1, 0]]).view(1, 1, 3, 3)
    with torch.no_grad():
        block.conv.weight.copy_(torch.tensor([[1.0, 0, -1]] * 3).view(1, 1, 3, 3))
        block.conv.bias.zero_()
    assert_close(block.conv(stroke)[0, 0], torch.tensor([[-2.0, 0, 2], [-3, 0, 3], [-2, 0, 2]]))
    block.norm.eps = 0.0
    assert_close(block(stroke)[0, 0], torch.tensor([[0.0, 0, 2], [0, 0, 3], [0, 0, 2]]))


def test_parameter_count_by_hand():
    model = SmallCNN(SmallCNNConfig())
    convolutions = (9 * 1 + 1) * 16 + (9 * 16 + 1) * 32 + (9 * 32 + 1) * 32 + (9 * 32 + 1) * 64
    norms = 2 * (16 + 32 + 32 + 64)
    head = (64 * 2 * 2 + 1) * 5
    assert sum(p.numel() for p in model.parameters()) == convolutions + norms + head


@given(size=st.integers(4, 20), pool=st.sets(st.integers(1, 3), max_size=2), batch=st.integers(1, 3))
def test_shapes(size, pool, batch):
    config = SmallCNNConfig(image_size=size, n_classes=2, channels=(2, 3, 4), pool_after=tuple(pool))
    model = SmallCNN(config).eval()
    maps = model.feature_maps(torch.zeros(batch, 1, size, size))
    sides = [size // 2 ** sum(p <= layer for p in pool) for layer in (1, 2, 3)]
    assert [tuple(m.shape) for m in maps] == [(batch, c, s, s) for c, s in zip((2, 3, 4), sides)]
    assert model(torch.zeros(batch, 1, size, size)).shape == (batch, 2)


# --- invariants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(4))
def test_copied_layers_equal_the_source_and_the_rest_is_new(model, images, k):
    train(model, images)
    before = state(model)
    seed_everything(7)
    target = transfer(model, 5, k, freeze=False)
    seed_everything(7)
    fresh = SmallCNN(SmallCNNConfig(8, 5, TINY.channels, TINY.pool_after))
    for i, block in enumerate(target.blocks):
        assert_same_bits(block.state_dict(), (model if i < k else fresh).blocks[i].state_dict())
    assert_same_bits(target.head.state_dict(), fresh.head.state_dict())
    assert target.head.out_features == 5
    assert target.config.n_classes == 5
    train(target, images)
    assert_same_bits(before, model.state_dict())  # training the copy leaves the source alone


@pytest.mark.parametrize("k", range(4))
def test_frozen_layers_do_not_change_by_one_bit(model, images, k):
    target = transfer(model, 3, k, freeze=True)
    before = state(target)
    train(target, 5 * images + 3)  # images on another scale would move running statistics at once
    after = target.state_dict()
    for name in before:
        layer = int(name.split(".")[1]) if name.startswith("blocks") else len(target.blocks)
        moved = not torch.equal(before[name], after[name])
        # A bias before batch normalisation has no effect, so its gradient may be exactly zero.
        if layer < k:
            assert not moved, name
        elif not name.endswith("conv.bias"):
            assert moved, name


def test_frozen_layers_stay_in_evaluation_mode_however_the_mode_is_set(model):
    target = transfer(model, 3, 2, freeze=True)
    for set_mode in (target.train, lambda: target.train(True), lambda: target.eval().train()):
        set_mode()
        assert [block.training for block in target.blocks] == [False, False, True]
        assert target.training
    assert [all(p.requires_grad for p in block.parameters()) for block in target.blocks] == [False, False, True]


def test_frozen_output_of_a_batch_does_not_depend_on_its_neighbours(model, images):
    target = transfer(model, 3, 3, freeze=True).train()
    assert_close(target(images)[:1], target(images[:1]))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_stay_frozen(model, images, clone):
    target = clone(transfer(model, 3, 2, freeze=True))
    before = state(target.blocks[:2])
    train(target, images)
    assert_same_bits(before, state(target.blocks[:2]))


def test_state_dict_round_trip(model, images):
    train(model, images)
    other = SmallCNN(TINY)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(images), model.eval()(images))


def test_feature_maps_are_the_path_of_the_forward_pass(model, images):
    model.eval()
    assert torch.equal(model.head(model.feature_maps(images)[-1].flatten(1)), model(images))


def test_calibrate_sets_statistics_and_nothing_else(model, images):
    weights = [p.clone() for p in model.parameters()]
    assert calibrate(model.eval(), images) is model
    assert not model.training
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters()))
    first = model.blocks[0]
    out = first.conv(images)
    assert_close(first.norm.running_mean, out.mean((0, 2, 3)))
    assert_close(first.norm.running_var, out.var((0, 2, 3)))
    assert first.norm.momentum == 0.1
    once = state(model)
    assert_same_bits(once, state(calibrate(model, images)))


def test_calibrate_leaves_frozen_blocks_alone(model, images):
    for block in model.blocks[:2]:
        block.freeze()
    before = state(model.blocks[:2])
    calibrate(model, images + 4)
    assert_same_bits(before, state(model.blocks[:2]))
    assert model.blocks[2].norm.running_mean.any()


# --- overfits one batch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(4))
def test_learns_one_batch_by_heart(model, images, k):
    target = transfer(model, 3, k, freeze=k < 3)
    history = train(target, images, steps=150)
    assert history.losses[-1] < 0.05 < history.losses[0]


# --- bad input ------------------------------------------------------------------------------------------------------


def test_wrong_images_are_named(model):
    with pytest.raises(ValueError, match=r"\(B, 1, 8, 8\), got \(2, 8, 8\)"):
        model(torch.zeros(2, 8, 8))
    with pytest.raises(ValueError, match=r"got \(2, 1, 16, 16\)"):
        model(torch.zeros(2, 1, 16, 16))


@pytest.mark.parametrize("k", [-1, 4])
def test_layers_that_do_not_exist(model, k):
    with pytest.raises(ValueError, match=f"3 layers, cannot copy {k}"):
        transfer(model, 3, k, freeze=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_classes": 1}, "n_classes must be at least 2, got 1"),
        ({"channels": ()}, "at least one layer"),
        ({"channels": (4, 0)}, "at least one filter"),
        ({"pool_after": (5,)}, "layers 1 to 4"),
        ({"pool_after": (2, 2)}, "each once"),
        ({"image_size": 3}, "3 pixels cannot be halved 2 times"),
    ],
)
def test_impossible_shapes_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SmallCNNConfig(**changes)


# --- the stored experiment ------------------------------------------------------------------------------------------


def no_training(*args, **kwargs):
    raise AssertionError("what the results file holds must not be trained again")


@pytest.fixture
def experiment(monkeypatch):
    path = Path(__file__).parents[1] / "chapters" / "experiments" / "vision_transfer.py"
    spec = importlib.util.spec_from_file_location("vision_transfer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CONFIG", copy.deepcopy(module.CONFIG))
    return module


def check_complete(results, config):
    ways = {"scratch", "frozen", "fine-tuned", "control"}
    for variant in ("hard", "plain"):
        part, n_seeds = results[variant], len(config["seeds"])
        found = {(row["way"], row["labels"]) for row in part["labels"]}
        assert found == {(way, n) for way in ways for n in config["labels_per_class"]}
        assert {(r["way"], r["layers"]) for r in part["layers"]} == {
            (w, k) for w in ways - {"scratch"} for k in (1, 2, 3)
        }
        for row in part["labels"] + part["layers"] + part["controls"]:
            assert len(row["test"]) == n_seeds
            assert all(0 <= value <= 1 for value in row["test"])
            assert row["rate"] in config["rates"]


def test_stored_results_belong_to_the_script(experiment):
    results = read_json(experiment.RESULTS)
    assert results["command"] == "python chapters/experiments/vision_transfer.py"
    assert results["config"] == experiment.CONFIG
    check_complete(results, experiment.CONFIG)
    for variant in ("hard", "plain"):
        for row in results[variant]["labels"] + results[variant]["layers"] + results[variant]["controls"]:
            rates = row.get("rates", experiment.CONFIG["rates"])
            assert row["rate"] == experiment.best_rate(dict(zip(rates, row["dev"], strict=True)))


def test_the_best_rate_is_the_larger_of_equals(experiment):
    assert experiment.best_rate({1e-3: 0.9, 3e-3: 0.9, 1e-2: 0.8}) == 3e-3
    assert experiment.best_rate({1e-3: 0.90004, 3e-3: 0.90003, 1e-2: 0.8}) == 3e-3  # equal as stored
    assert experiment.best_rate({1e-3: 0.91, 3e-3: 0.9, 1e-2: 0.9}) == 1e-3


def test_rich_and_poor_sources_differ_in_their_drawings_alone(experiment):
    plan = experiment.CONFIG["pretraining"]
    assert plan["poor"] == {**plan["hard"], "draws": 1}


def test_the_experiment_runs(experiment, monkeypatch, tmp_path):
    small = {
        "seeds": [0, 1],
        "tuning_seeds": [0],
        "rates": [1e-3],
        "labels_per_class": [5, 20],
        "steps": 2,
        "marks": [0, 2],
    }
    pretraining = {name: {"draws": 1, "steps": 1} for name in experiment.CONFIG["pretraining"]}
    tiny = {"long_steps": 2, "pretraining": pretraining, "augmented": {"draws": 2, "steps": 2}}
    for name, value in (small | tiny).items():
        monkeypatch.setitem(experiment.CONFIG, name, value)
    monkeypatch.setattr(experiment, "RESULTS", tmp_path / "results.json")
    experiment.main()
    results = read_json(experiment.RESULTS)
    check_complete(results, experiment.CONFIG)
    assert {(c["name"], c["way"]) for c in results["hard"]["controls"]} == {
        ("long", "scratch"),
        ("augmented", "scratch"),
        ("augmented", "fine-tuned"),
        ("poor source", "frozen"),
        ("poor source", "fine-tuned"),
    }
    # A second run finds everything in the file, and trains the source networks at most.
    experiment.earlier.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "measure_arm", no_training)
        experiment.main()
    again = read_json(experiment.RESULTS)
    assert again.pop("cpu_minutes") >= results.pop("cpu_minutes")
    assert again == results
    # A changed plan makes the old numbers worthless.
    experiment.earlier.cache_clear()
    monkeypatch.setitem(experiment.CONFIG, "steps", 3)
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "measure_arm", no_training)
        with pytest.raises(AssertionError, match="trained again"):
            experiment.main()


def test_no_image_of_the_experiment_is_on_both_sides(experiment, monkeypatch):
    monkeypatch.setitem(experiment.CONFIG["pretraining"], "hard", {"draws": 3, "steps": 1})
    task = experiment.Task("hard", seed=0)
    parts = {"source": task.source, "source test": task.source_test, "test": task.test, "dev": task.dev}
    parts |= {f"pool {k}": pool for k, pool in enumerate(task.pools)}
    # The drawings differ, so images are told apart by where they stand in the original set.
    places = {}
    for k in range(3):
        for i, image in enumerate(digits(hard=True, draw=k).images):
            places[image.numpy().tobytes()] = i
    rows = {name: {places[image.numpy().tobytes()] for image in part.images} for name, part in parts.items()}
    assert rows["pool 0"] == rows["pool 1"] == rows["pool 2"]
    names = ["source", "source test", "pool 0", "test", "dev"]
    assert sum(len(rows[name]) for name in names) == len(set().union(*(rows[name] for name in names)))
    assert len(task.source.images) == 3 * len(rows["source"])
