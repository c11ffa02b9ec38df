"""plm.plot: colours that can be told apart, sizes that do not move, errors before a wrong picture."""

import io
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from plm import plot
from plm.evaluate import Climb, Rung


@pytest.fixture(autouse=True)
def _style():
    plot.use_style()
    yield
    plt.close("all")


def luminance(colour):
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def as_deuteranope(colour):
    """How the most common colour blindness sees a colour (Viénot et al. 1999), in linear RGB."""
    matrix = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    return matrix @ np.array(to_rgb(colour)) ** 2.2


def test_ways_of_training_differ_also_for_the_colour_blind():
    for a, b in combinations(["scratch", "frozen", "fine-tuned"], 2):
        assert np.abs(as_deuteranope(plot.COLOURS[a]) - as_deuteranope(plot.COLOURS[b])).max() > 0.15, (a, b)
    assert len({plot.MARKERS[name] for name in ("scratch", "frozen", "fine-tuned")}) == 3


def test_every_line_colour_shows_on_white():
    for name, colour in plot.COLOURS.items():
        assert 1.05 / (luminance(colour) + 0.05) > 1.7, name


def test_curves_draw_the_mean_in_a_band_and_keep_colours():
    ax = plot.curves([1, 2], {"frozen": [[0, 1], [2, 3]], "scratch": [0, 0]}, title="t", xlabel="x", ylabel="y")
    assert ax.lines[0].get_ydata().tolist() == [1, 2]
    assert ax.lines[0].get_color() == plot.COLOURS["frozen"]
    assert len(ax.collections) == 1
    with pytest.raises(ValueError, match="3 points"):
        plot.curves([1, 2], {"a": [1, 2, 3]}, title="t", xlabel="x", ylabel="y")


def test_heatmap_writes_each_number_legibly():
    ax = plot.heatmap([[0, 1], [2, 3]], ["a", "b"], ["c", "d"], title="t", fmt="{:.0f}")
    assert [t.get_text() for t in ax.texts] == ["0", "1", "2", "3"]
    assert {t.get_color() for t in ax.texts} == {"white", "black"}
    with pytest.raises(ValueError, match="row and"):
        plot.heatmap([[1]], ["a", "b"], ["c"], title="t")


def test_heatmaps_with_the_same_limits_give_a_value_one_colour():
    images = [
        plot.heatmap(matrix, ["a"], ["b", "c"], title="t", limits=(0, 1)).images[0]
        for matrix in ([[0, 1]], [[0.5, 0.6]])
    ]
    assert [image.get_clim() for image in images] == [(0, 1)] * 2
    own = plot.heatmap([[0.5, 0.6]], ["a"], ["b", "c"], title="t").images[0]
    assert own.get_clim() == (0.5, 0.6)


def drawn(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    return plt.imread(buffer)


def test_every_figure_has_one_width_and_an_opaque_white_ground():
    figures = [
        plot.bars({"NNLM": 1.0, "n-gram": 2.0}, title="t", xlabel="x").figure,
        plot.colour_strip({"king": np.linspace(-1, 1, 50)}, title="t"),
        plot.embedding_map([[0, 1], [1, 0]], ["a", "b"], title="t", groups=["x", "y"]).figure,
        plot.image_grid(np.random.default_rng(0).random((10, 8, 8)), title="t", captions=list("0123456789")),
    ]
    for figure in figures:
        image = drawn(figure)
        assert image.shape[1] == round(plot.WIDTH * 110)
        assert (image[0, 0] == 1).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: plot.colour_strip({"a": [[1, 2]]}, title="t"), "takes vectors"),
        (lambda: plot.embedding_map([[1, 2, 3]], ["a"], title="t"), "plane"),
        (lambda: plot.image_grid(np.zeros((4, 4)), title="t"), r"\(N, H, W\)"),
    ],
)
def test_wrong_shapes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_ladder_draws_one_row_per_rung_and_names_each_way_once():
    scores = {"bag of words": ("bag", [0.5, 0.6]), "vectors": ("frozen", [0.7, 0.7]), "LSTM": ("frozen", [0.8])}
    rungs = [Rung(n, 4, way, "LSTM", "", Climb({10: s}, {}, [0, 1])) for n, (way, s) in scores.items()]
    ax = plot.ladder(rungs, 10, title="t")
    assert [label.get_text() for label in ax.get_yticklabels()] == list(scores)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["bag", "frozen"]
    assert [round(float(bar[0].get_xdata()[0]), 2) for bar in ax.containers] == [0.55, 0.7, 0.8]
    with pytest.raises(ValueError, match=r"'bag of words' was not measured with 99 labels, but with \[10\]"):
        plot.ladder(rungs, 99, title="t")
    with pytest.raises(ValueError, match="no rung"):
        plot.ladder([], 10, title="t")
