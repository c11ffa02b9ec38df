"""Stored runs as curves: seeds in order, sizes in order, gaps shown as gaps."""

import matplotlib.pyplot as plt
import pytest

from plm.learning_curves import draw, gain, measured, scores, table, ways


def runs():
    found = {}
    for way, plus in (("frozen", 0.0), ("fine-tuned", 0.2), ("scratch", 0.1)):
        for n in (1000, 100):
            for seed in (1, 0):
                if (way, n) != ("scratch", 100):
                    value = {"f1": 0.3 + plus + seed / 100 + n / 10_000}
                    found[f"zh-names, {way}, {n} labels, seed {seed}"] = {"test": value}
    return found


def test_scores_are_sorted_by_labels_and_seed():
    assert scores(runs(), "zh-names", "frozen", "f1") == {
        100: [pytest.approx(0.31), pytest.approx(0.32)],
        1000: [pytest.approx(0.4), pytest.approx(0.41)],
    }
    assert list(scores(runs(), "zh-names", "scratch", "f1")) == [1000]


def test_the_table_shows_what_was_not_run():
    lines = table(runs(), "zh-names", "f1").split("\n")
    assert len(lines) == 4
    assert lines[2].split() == ["fine-tuned", "0.515", "±", "0.007", "0.605", "±", "0.007"]
    assert lines[3].split() == ["scratch", "-", "0.505", "±", "0.007"]
    alone = {name: run for name, run in runs().items() if name.endswith("seed 0")}
    assert "±" not in table(alone, "zh-names", "f1")


def test_a_part_is_measured_when_all_ways_are():
    half = {name.replace("zh-names", "zh-order"): run for name, run in runs().items() if "scratch" not in name}
    assert measured(runs() | half, "zh-order", "zh-names", "zh-pairs") == ["zh-names"]


def test_gains_pair_the_seeds():
    assert gain(runs(), "zh-names", "f1", 1000) == [pytest.approx(0.1)] * 2


def test_the_control_stands_beside_the_ways_where_it_was_run():
    more = runs() | {
        name.replace("scratch", "vectors only"): {"test": {"f1": run["test"]["f1"] + 0.05}}
        for name, run in runs().items()
        if "scratch" in name
    }
    assert ways(more, "zh-names")[-1] == "vectors only"
    assert len(ways(more, "zh-names")) == 4
    assert len(ways(runs(), "zh-names")) == 3
    assert table(more, "zh-names", "f1").split("\n")[-1].split()[:2] == ["vectors", "only"]
    assert gain(more, "zh-names", "f1", 1000, over="vectors only") == [pytest.approx(0.05)] * 2
    ax = plt.subplots()[1]
    draw(ax, more, "zh-names", "f1")
    assert ax.get_legend_handles_labels()[1][-1] == "vectors only"
    plt.close()


def test_a_curve_for_each_way():
    ax = plt.subplots()[1]
    draw(ax, runs(), "zh-names", "f1")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["100", "1,000"]
    assert ax.get_legend_handles_labels()[1] == ["frozen", "fine-tuned", "scratch"]
    plt.close()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="there are zh-names"):
        scores(runs(), "zh", "frozen", "f1")
    with pytest.raises(ValueError, match="is no name of a run"):
        scores({"zh": {}}, "zh", "frozen", "f1")
