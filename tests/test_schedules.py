"""plm.schedules: values by hand, at both ends."""

import math

import pytest

from plm.schedules import SHAPES, schedule


def rates(shape, steps=10, **kwargs):
    factor = schedule(shape, steps, **kwargs)
    return [factor(step) for step in range(steps)]


def test_values_by_hand():
    rise = [0.25, 0.5, 0.75]
    assert rates("constant", warmup=3) == pytest.approx([*rise, 1, 1, 1, 1, 1, 1, 1])
    assert rates("linear", warmup=3, floor=0.1) == pytest.approx([*rise, 1, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1])
    assert rates("cooldown", warmup=3, cooldown=4, floor=0.1) == pytest.approx([*rise, 1, 1, 1, 1, 0.7, 0.4, 0.1])
    half_turn = [1 - 0.9 * (1 - math.cos(math.pi * i / 6)) / 2 for i in range(7)]
    assert rates("cosine", warmup=3, floor=0.1) == pytest.approx([*rise, *half_turn])


@pytest.mark.parametrize("shape", SHAPES)
def test_d03_the_first_update_moves_and_the_last_has_the_floor(shape):
    """lr at 0 … 5 with a warm-up of 4 and a highest rate of 1e-3."""
    factor = schedule(shape, 20, warmup=4, cooldown=3, floor=0.2)
    assert [1e-3 * factor(step) for step in range(5)] == pytest.approx([2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert factor(19) == pytest.approx(1 if shape == "constant" else 0.2)
    assert schedule(shape, 5, cooldown=1)(0) == 1  # no warm-up, no division by it
    values = rates(shape, 20, warmup=4, cooldown=3, floor=0.2)[4:]
    assert values == sorted(values, reverse=True)


def test_runs_too_short_to_fall_still_have_a_rate():
    for shape in SHAPES:
        assert rates(shape, 1, cooldown=1) == [1]
        assert rates(shape, 2, warmup=1, cooldown=1) == [0.5, 1]


def test_until_the_fall_more_steps_change_nothing():
    short, long = (rates("cooldown", steps, warmup=2, cooldown=5) for steps in (20, 40))
    assert short[:16] == long[:16] == rates("constant", 40, warmup=2)[:16]
    assert short[16] < long[16]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sine", 10), "schedule is one of cosine, linear, cooldown, constant, not 'sine'"),
        (("cosine", 0), "at least 1"),
        (("cosine", 10, -1), "at least 0"),
        (("cosine", 10, 11), "do not fit into 10 steps"),
        (("cooldown", 10, 6, 5), "do not fit"),
        (("cooldown", 10), "needs a cooldown"),
        (("cosine", 10, 0, 0, 1.5), "floor is a share"),
    ],
)
def test_bad_shapes_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        schedule(*arguments)
    for step in (-1, 10):
        with pytest.raises(ValueError, match="outside a run of 10 steps"):
            schedule("cosine", 10)(step)
