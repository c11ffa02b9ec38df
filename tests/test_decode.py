"""Greedy and beam search against exhaustive search, and what must not change when sequences share a batch."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import nn

from plm.decode import Hypothesis, beam_search, exhaustive, greedy, log_prob, select

START, END, V = 1, 2, 5
ENDS = {"start_id": START, "end_id": END, "max_len": 5}


class Toy(nn.Module):
    """A writer with a memory of everything: h <- tanh(h A + row of the last token), started from the source."""

    def __init__(self, seed: int = 0, vocab: int = V, scale: float = 1.5):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(vocab, 6, generator=g) * scale)
        self.A = nn.Parameter(torch.randn(6, 6, generator=g) * scale)
        self.out = nn.Parameter(torch.randn(6, vocab, generator=g) * scale)
        self.drop = nn.Dropout(0.5)

    def start(self, source):
        real = (source != 0)[..., None]
        return [(self.table[source] * real).sum(1)]

    def step(self, last, state):
        h = torch.tanh(state[0] @ self.A + self.table[last])
        return self.drop(h) @ self.out, [h]


class Script(nn.Module):
    """Writes by a table of probabilities: after the token `last`, row `last`; whatever the source."""

    def __init__(self, rows):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(rows).log())

    def start(self, source):
        return source

    def step(self, last, state):
        return self.logits[last], state


# The trap of greedy search: after <s>, A is likelier than B, but nothing good comes after A.
#               pad  <s>  </s>   A    B
TRAP = Script(
    [
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.0, 0.0, 0.0, 0.6, 0.4],
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.0, 0.0, 0.34, 0.33, 0.33],
        [0.0, 0.0, 0.98, 0.01, 0.01],
    ]
)
ONE = torch.tensor([[3, 4]])


def test_greedy_takes_the_best_token_each_time_and_beam_search_sees_further():
    (found,) = greedy(TRAP, ONE, **ENDS)
    assert found.ids == [3]
    assert math.exp(found.log_prob) == pytest.approx(0.6 * 0.34)
    best, second = beam_search(TRAP, ONE, beam=2, **ENDS, alpha=0)[0]
    assert best.ids == [4]
    assert math.exp(best.log_prob) == pytest.approx(0.4 * 0.98)
    assert second.ids == [3]
    assert best.finished


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_a_beam_as_wide_as_the_tree_is_exhaustive_search(seed, alpha):
    model, source = Toy(seed), torch.tensor([[3, 4, 3]])
    every = exhaustive(model, source, vocab_size=V, **ENDS, alpha=alpha)
    assert len(every) == sum(4**n for n in range(5))
    wide = beam_search(model, source, beam=4**5, **ENDS, alpha=alpha)[0]
    assert [h.ids for h in wide[:20]] == [h.ids for h in every[:20]]
    assert wide[0].score == pytest.approx(every[0].score, abs=1e-5)
    for width in (1, 2, 4):
        best = beam_search(model, source, beam=width, **ENDS, alpha=alpha)[0][0]
        assert best.score <= every[0].score + 1e-5 or not best.finished


@pytest.mark.parametrize("seed", range(6))
def test_a_beam_of_one_is_greedy_search(seed):
    source = torch.randint(3, V, (4, 3), generator=torch.Generator().manual_seed(seed))
    for one, (other,) in zip(greedy(Toy(seed), source, **ENDS), beam_search(Toy(seed), source, beam=1, **ENDS)):
        assert one.ids == other.ids
        assert one.finished == other.finished
        assert one.log_prob == pytest.approx(other.log_prob, abs=1e-5)
        assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beam", [2, 3, 4])
def test_early_ends_do_not_crowd_out_the_most_probable_sequence(beam, alpha):
    """A sure model writes 3, 4, …, 11; at each word it holds a small chance that this was all."""
    rows = torch.full((12, 12), 0.001)
    rows[:, END] = 0.03
    for token in range(3, 12):
        rows[START if token == 3 else token - 1, token] = 0.95
    rows[11, END] = 0.95
    sure = Script(rows.tolist())
    options = {"start_id": START, "end_id": END, "max_len": 20}
    (found,) = greedy(sure, ONE, **options)
    assert found.ids == list(range(3, 12))
    assert beam_search(sure, ONE, beam=beam, **options, alpha=alpha)[0][0].ids == found.ids


def test_a_batch_with_padding_gives_what_its_rows_give_alone():
    sources = [[3], [4, 3, 4], [3, 3], [4]]
    batch = torch.tensor([row + [0] * (3 - len(row)) for row in sources])
    for search in (greedy, lambda *a, **k: [h[0] for h in beam_search(*a, beam=3, **k)]):
        together = search(Toy(3), batch, **ENDS)
        alone = [search(Toy(3), torch.tensor([row]), **ENDS)[0] for row in sources]
        assert [h.ids for h in together] == [h.ids for h in alone]
        assert [h.log_prob for h in together] == pytest.approx([h.log_prob for h in alone], abs=1e-5)
    assert len({tuple(h.ids) for h in together}) > 1


def test_scores_are_what_the_model_gives_to_the_sequence():
    for row in beam_search(Toy(1), torch.tensor([[3, 4], [4, 4]]), beam=4, **ENDS, alpha=0.5):
        for h in row:
            assert h.finished
            assert h.score == pytest.approx(h.log_prob / (len(h.ids) + 1) ** 0.5)
    source = torch.tensor([[4, 4]])
    for h in beam_search(Toy(1), source, beam=4, **ENDS)[0]:
        assert log_prob(Toy(1), source, h.ids, start_id=START, end_id=END) == pytest.approx(h.log_prob, abs=1e-5)


def test_length_normalisation_is_what_favours_longer_sequences():
    rows = [[0.2] * 5, [0, 0, 0.4, 0.6, 0], [0.2] * 5, [0, 0, 0.4, 0.6, 0], [0.2] * 5]
    options = {"beam": 8, **ENDS, "max_len": 4}
    by_sum = beam_search(Script(rows), ONE, **options, alpha=0.0)[0]
    by_mean = beam_search(Script(rows), ONE, **options, alpha=1.0)[0]
    assert by_sum[0].ids == []
    assert math.exp(by_sum[0].log_prob) == pytest.approx(0.4)
    assert by_mean[0].ids == [3, 3, 3]


def test_a_model_that_never_ends_is_cut_and_says_so():
    never = Script([[0.2] * 5] + [[0, 0, 0, 0.7, 0.3]] * 4)
    (found,) = greedy(never, ONE, **ENDS)
    assert found == Hypothesis([3] * 5, pytest.approx(5 * math.log(0.7)), pytest.approx(math.log(0.7)), False)
    best = beam_search(never, ONE, beam=2, **ENDS)[0][0]
    assert best.ids == [3] * 5
    assert not best.finished
    assert greedy(TRAP, ONE, start_id=START, end_id=END, max_len=1)[0].ids == [3]


def test_a_model_that_ends_at_once_gives_an_empty_sequence():
    ends = Script([[0.2] * 5] + [[0, 0, 1.0, 0, 0]] * 4)
    assert greedy(ends, ONE, **ENDS)[0].ids == []
    assert [h.ids for h in beam_search(ends, ONE, beam=3, **ENDS)[0]] == [[]]


@pytest.mark.parametrize("training", [True, False])
def test_a24_decoding_is_free_of_dropout_and_leaves_the_mode_as_it_was(training):
    model = Toy(2).train(training)
    model.drop.train(not training)  # a part may be in another mode than the whole
    first, second = ((greedy(model, ONE, **ENDS), beam_search(model, ONE, beam=2, **ENDS)) for _ in range(2))
    assert first == second
    assert model.training is training
    assert model.drop.training is not training


class Pair(NamedTuple):
    a: torch.Tensor
    b: list


def test_select_picks_rows_in_any_nest():
    x = torch.arange(6).view(3, 2)
    found = select(Pair(x, [(x, None)]), torch.tensor([2, 0, 0]))
    assert isinstance(found, Pair)
    assert found.b[0][1] is None
    assert found.a.tolist() == found.b[0][0].tolist() == [[4, 5], [0, 1], [0, 1]]
    with pytest.raises(TypeError, match="nest"):
        select({"a": x}, torch.tensor([0]))


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="start and step"):
        greedy(nn.Linear(1, 1), ONE, **ENDS)
    with pytest.raises(TypeError, match=r"\(B, T\)"):
        greedy(Toy(), torch.tensor([3, 4]), **ENDS)
    with pytest.raises(TypeError, match="int64"):
        greedy(Toy(), ONE.float(), **ENDS)
    with pytest.raises(ValueError, match="max_len"):
        greedy(Toy(), ONE, start_id=START, end_id=END, max_len=0)
    with pytest.raises(ValueError, match="beam"):
        beam_search(Toy(), ONE, beam=0, **ENDS)
    with pytest.raises(ValueError, match="alpha"):
        beam_search(Toy(), ONE, beam=2, alpha=-1, **ENDS)
    with pytest.raises(ValueError, match="too many"):
        exhaustive(Toy(), ONE, vocab_size=1000, **ENDS)
    broken = Toy()
    nn.init.constant_(broken.out, float("nan"))
    with pytest.raises(FloatingPointError, match="NaN"):
        greedy(broken, ONE, **ENDS)
    assert greedy(Toy(), ONE[:0], **ENDS) == []
    assert beam_search(Toy(), ONE[:0], beam=2, **ENDS) == []


# --- what must not pass in silence ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a21_sums_are_not_rounded_to_the_precision_of_the_scores(dtype):
    toy, tolerance = Toy(3).to(dtype), 1e-12 if dtype == torch.float64 else 1e-5
    for h in beam_search(toy, ONE, beam=4, start_id=START, end_id=END, max_len=12)[0]:
        wanted = log_prob(toy, ONE, h.ids, start_id=START, end_id=END)
        assert h.log_prob == pytest.approx(wanted, abs=tolerance, rel=0)


def test_a_beam_of_one_is_greedy_search_among_equals_too():
    even = Script([[0.2] * 5] * 5)
    assert beam_search(even, ONE, beam=1, **ENDS)[0] == greedy(even, ONE, **ENDS)


class Loud(Toy):
    """Scores that are all `value`, or that of token 3 only."""

    def __init__(self, value, tokens):
        super().__init__()
        self.value, self.tokens = value, tokens

    def step(self, last, state):
        logits, state = super().step(last, state)
        return logits.index_fill(1, torch.tensor(self.tokens), self.value), state


def test_infinite_scores_are_named_and_impossible_tokens_are_allowed():
    for loud in (Loud(math.inf, [3]), Loud(-math.inf, [0, 1, 2, 3, 4])):
        with pytest.raises(FloatingPointError, match="infinite"):
            greedy(loud, ONE, **ENDS)
        with pytest.raises(FloatingPointError, match="infinite"):
            beam_search(loud, ONE, beam=2, **ENDS)
    assert all(3 not in h.ids for h in beam_search(Loud(-math.inf, [3]), ONE, beam=9, **ENDS)[0])


def test_ids_and_numbers_that_mean_nothing_are_named():
    ends, toy = {"start_id": START, "end_id": END}, Toy()
    for name in ends:
        with pytest.raises(IndexError, match="at least 0"):
            greedy(toy, ONE, **ends | {name: -1}, max_len=3)
    for search in (greedy, lambda *a, **k: beam_search(*a, beam=2, **k)):
        with pytest.raises(IndexError, match="nothing would ever end"):
            search(toy, ONE, start_id=START, end_id=V, max_len=3)
    for alpha in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="alpha must be a finite number"):
            beam_search(toy, ONE, beam=2, **ENDS, alpha=alpha)
    for ids in ([-1], [V]):
        with pytest.raises(IndexError, match=f"0 … {V - 1}; got {ids[0]}"):
            log_prob(toy, ONE, ids, **ends)
    with pytest.raises(TypeError, match="not the string"):
        log_prob(toy, ONE, "ab", **ends)
    with pytest.raises(ValueError, match="2 rows came"):
        log_prob(toy, ONE.repeat(2, 1), [3], **ends)
    with pytest.raises(IndexError, match="end_id=2 is outside"):
        exhaustive(toy, ONE, vocab_size=2, **ENDS)
    with pytest.raises(ValueError, match="max_len"):
        exhaustive(toy, ONE, vocab_size=V, **ends, max_len=0)
    for source in ([[3]], "a text"):
        with pytest.raises(TypeError, match="source must be a tensor"):
            greedy(toy, source, **ENDS)


def test_start_and_end_may_be_one_token_and_a_beam_may_exceed_the_vocabulary():
    one = {"start_id": END, "end_id": END, "max_len": 5}
    assert greedy(Toy(), ONE, **one)[0].ids == beam_search(Toy(), ONE, beam=1, **one)[0][0].ids
    assert len(beam_search(Toy(), ONE, beam=2000, **ENDS)[0]) == sum(4**n for n in range(5))
    (only,) = beam_search(Toy(), ONE, beam=V, start_id=START, end_id=END, max_len=1)[0]
    assert only.ids == []
