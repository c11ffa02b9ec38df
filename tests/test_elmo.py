"""plm.elmo: equal to PyTorch's layers, no guess sees its word, padding never enters, and the mix."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from plm.characters import CharacterConfig, spell
from plm.data import language_model_text
from plm.elmo import BiLM, BiLMConfig, ScalarMix, load_bilm, pad, reverse, save_bilm
from plm.evaluate import perplexity
from plm.files import read_json
from plm.leaks import influence
from plm.softmax import WordSampler
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
V = 13
SMALL_CNN = CharacterConfig(d_character=3, filters=((1, 4), (2, 4)), longest=8)
WORDS = [*LANGUAGE_MODEL_SPECIALS, "a", "film", "about", "king", "of", "spain", "and", "old", "horse", "tail"]
READERS = {"table": None, "characters": SMALL_CNN}


def random_model(seed=0, characters=None, **changes):
    """A small model whose every parameter is random (as built, the output is zero and hides faults)."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": V, "d_emb": 4, "d_hidden": 6, "dropout": 0.0} | changes
    spellings = spell(WORDS, characters.longest) if characters else None
    model = BiLM(BiLMConfig(characters=characters, **sizes), spellings)
    for p in model.parameters():
        nn.init.normal_(p, std=0.5)
    return model.eval()


IDS = torch.tensor([[1, 5, 7, 3, 9, 2]])


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_each_direction_equals_nn_lstm(n_layers):
    model = random_model(n_layers=n_layers).double()
    x = model.embedding(IDS)
    for direction, flip in ((model.forward_lm, False), (model.backward_lm, True)):
        h = x.flip(1) if flip else x
        for k, layer in enumerate(direction.layers):
            theirs = nn.LSTM(4, 6, proj_size=4, batch_first=True, dtype=torch.float64)
            theirs.load_state_dict(layer.state_dict())
            y = theirs(h)[0]
            h = y if k == 0 else y + h
            found = model.states(IDS)[k + 1][flip]
            assert_close(found, h.flip(1) if flip else h)


def test_gradients_equal_nn_lstm():
    model = random_model().double()
    h = x = model.embedding(IDS).flip(1)
    weights = []
    for k, layer in enumerate(model.backward_lm.layers):
        theirs = nn.LSTM(4, 6, proj_size=4, batch_first=True, dtype=torch.float64)
        theirs.load_state_dict(layer.state_dict())
        weights.append(theirs)
        y = theirs(h)[0]
        h = y if k == 0 else y + h
    cos = torch.arange(1.0, h.numel() + 1, dtype=h.dtype).view(h.shape).cos()
    wanted = torch.autograd.grad(
        (h * cos).sum(), [model.embedding.weight, *weights[0].parameters(), *weights[1].parameters()]
    )
    ours = model.backward_lm(model.embedding(IDS).flip(1))[-1]
    mine = [
        model.embedding.weight,
        *model.backward_lm.layers[0].parameters(),
        *model.backward_lm.layers[1].parameters(),
    ]
    for a, b in zip(torch.autograd.grad((ours * cos).sum(), mine), wanted, strict=True):
        assert_close(a, b)
    assert x.shape == h.shape


def test_hand_numbers_of_the_residual_connection():
    """With a second layer that says 0 for everything, layer 2 is layer 1."""
    model = random_model()
    for direction in (model.forward_lm, model.backward_lm):
        nn.init.zeros_(direction.layers[1].weight_hr_l0)
    states = model.states(IDS)
    assert torch.equal(states[2].forward, states[1].forward)
    assert torch.equal(states[2].backward, states[1].backward)


@pytest.mark.parametrize("reader", READERS)
def test_no_guess_sees_its_word_or_what_lies_beyond(reader):
    model, T = random_model(characters=READERS[reader]).double(), IDS.shape[1]
    tolerance = 1e-12 * (reader != "table")
    there = influence(lambda ids: model(ids).forward[:, :-1], IDS, 8, tolerance)  # row t guesses word t + 1
    back = influence(lambda ids: model(ids).backward[:, 1:], IDS, 8, tolerance)  # row t guesses word t
    assert torch.equal(there, torch.ones(T - 1, T).tril().bool())
    assert torch.equal(back, torch.ones(T - 1, T).triu(1).bool())


def test_a_plain_bidirectional_lstm_fails_the_same_test():
    torch.manual_seed(0)
    embedding, output = nn.Embedding(V, 4), nn.Linear(12, V)
    lstm = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)
    found = influence(lambda ids: output(lstm(embedding(ids))[0])[:, :-1], IDS, 8)
    assert found.all()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("cut", range(1, 5))
def test_no_leak_in_a_batch_with_padding(reader, cut):
    """Change the target and everything beyond it: the logits stay, with a table bit for bit.

    A character encoder spells all words of a batch in one product, and other words there can round it otherwise.
    """
    model, exact = random_model(characters=READERS[reader]).double(), {"rtol": 0, "atol": 1e-12 * (reader != "table")}
    ids, lengths = pad([[5, 7, 3, 9], [4, 6]])
    for row, n in enumerate(lengths.tolist()):
        if cut >= n:
            continue
        beyond, before = ids.clone(), ids.clone()
        beyond[row, cut:n] = (beyond[row, cut:n] + 3) % V
        before[row, :cut] = (before[row, :cut] + 3) % V
        assert not torch.equal(beyond, ids)
        assert not torch.equal(before, ids)
        a = model(ids, lengths)
        assert_close(model(beyond, lengths).forward[row, :cut], a.forward[row, :cut], **exact)
        assert_close(model(before, lengths).backward[row, cut:n], a.backward[row, cut:n], **exact)
        assert not torch.allclose(model(beyond, lengths).forward[row, cut], a.forward[row, cut])


@pytest.mark.parametrize("reader", READERS)
def test_padding_never_enters(reader):
    model = random_model(characters=READERS[reader]).double()
    sentences = [[5, 7, 3, 9], [4, 6], [8]]
    ids, lengths = pad(sentences)
    together, losses = model.vectors(ids, lengths), model.loss(ids, lengths)
    ids[1, lengths[1] :] = 11  # whatever stands in the padding
    assert torch.equal(model.vectors(ids, lengths), together)
    assert_close(model.loss(ids, lengths), losses, rtol=0, atol=0)
    for row, sentence in enumerate(sentences):
        alone = model.vectors(*pad([sentence]))
        n = len(sentence) + 2
        assert_close(together[:, row, :n], alone[:, 0])
        assert (together[:, row, n:] == 0).all()


def test_loss_is_the_mean_over_true_words():
    model = random_model().double()
    sentences = [[5, 7, 3, 9], [4, 6]]
    losses = model.loss(*pad(sentences))
    by_hand = [[], []]
    for s in sentences:
        text = [1, *s, 2]
        logits = model(torch.tensor([text]))
        for t in range(len(text) - 1):
            by_hand[0].append(F.cross_entropy(logits.forward[0, t], torch.tensor(text[t + 1])))
            by_hand[1].append(F.cross_entropy(logits.backward[0, t + 1], torch.tensor(text[t])))
    for loss, values in zip(losses, by_hand):
        assert_close(loss, torch.stack(values).mean())
    for backward in (False, True):
        found = model.token_log_probs(sentences, backward)
        np.testing.assert_allclose(found, [-v.item() for v in by_hand[backward]], atol=1e-6)


def test_sampled_loss_with_all_words_is_the_exact_loss():
    model = random_model().double()
    ids, lengths = pad([[5, 7, 3, 9], [4, 6]])
    every_word = WordSampler(torch.ones(V), V)
    assert_close(model.loss(ids, lengths, every_word), model.loss(ids, lengths))


def test_fewer_words_in_the_softmax():
    model = random_model()
    sentences = [[5, 7, 3], [4]]
    all_words, few = (model.token_log_probs(sentences, n_words=n) for n in (None, 10))
    assert (few > all_words).all()
    assert perplexity(few) < 10 * 10
    logits = model(torch.tensor([[1, 4, 2]])).forward[0, 0, :10]
    assert few[-2] == pytest.approx(logits.log_softmax(0)[4].item(), abs=1e-5)


def test_words_that_can_be_read_but_not_predicted():
    model = random_model(characters=SMALL_CNN, vocab_size=9)
    ids, lengths = pad([[4, 11, 5]])
    assert model.targets(ids, lengths).forward.tolist() == [[4, 0, 5, 2]]
    assert model.targets(ids, lengths).backward.tolist() == [[1, 4, 0, 5]]
    other = ids.clone()
    other[0, 2] = 10
    assert not torch.equal(model(other, lengths).forward[0, 2], model(ids, lengths).forward[0, 2])


def test_reverse_by_hand_and_twice():
    x = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7]])
    lengths = torch.tensor([3, 4])
    assert reverse(x, lengths).tolist() == [[3, 2, 1, 0], [7, 6, 5, 4]]
    assert torch.equal(reverse(reverse(x, lengths), lengths), x)
    assert reverse(x).tolist() == [[0, 3, 2, 1], [7, 6, 5, 4]]


def test_a24_layer_0_is_the_table_and_the_mode_is_kept():
    model = random_model(dropout=0.5).train()
    model.backward_lm.eval()
    vectors = model.vectors(IDS)
    assert vectors.shape == (3, 1, 6, 8)
    assert_close(vectors[0, ..., :4], model.embedding(IDS).detach())
    assert torch.equal(model.vectors(IDS), vectors)
    assert model.training
    assert model.forward_lm.training
    assert not model.backward_lm.training


def test_start_from_counts_is_the_unigram_model():
    model = BiLM(BiLMConfig(4, d_emb=2, d_hidden=3)).eval().start_from_counts(torch.tensor([0, 1, 2, 3]))
    assert_close(model(torch.tensor([[1, 3, 2]])).backward.softmax(-1)[0, 0], torch.tensor([0.1, 0.2, 0.3, 0.4]))


def test_a22_tied_model_has_one_table():
    model = BiLM(BiLMConfig(V, d_emb=4, d_hidden=6, tied=True))
    assert model.output.weight is model.embedding.weight
    assert copy.deepcopy(model).output.weight is not model.output.weight


def test_learns_one_batch_by_heart():
    torch.manual_seed(0)
    model = BiLM(BiLMConfig(V, d_emb=8, d_hidden=16, dropout=0.0))
    batch = pad([[5, 7, 3, 9], [4, 6, 8]])
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        loss = sum(model.loss(*batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    # Both openings share one <s> and both endings one </s>: of 7 guesses one is a coin with two sides.
    assert loss < 2 * 0.35


@pytest.mark.parametrize("reader", READERS)
def test_copy_pickle_and_checkpoint(reader, tmp_path):
    model = random_model(characters=READERS[reader])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.vectors(IDS), model.vectors(IDS))
    path = save_bilm(tmp_path / "m.safetensors", model, Vocab(WORDS[3:], LANGUAGE_MODEL_SPECIALS), half=False)
    loaded, vocab = load_bilm(path)
    assert loaded.config == model.config
    assert list(vocab.tokens) == WORDS
    assert not loaded.training
    assert torch.equal(loaded.vectors(IDS), model.vectors(IDS))


def test_mix_by_hand():
    mix = ScalarMix(3)
    layers = torch.arange(12.0).view(3, 2, 2)
    assert_close(mix(layers), layers.mean(0))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, 1.0, 1.0]).log())
        mix.gamma.fill_(2.0)
    assert_close(mix.weights, torch.tensor([0, 0.5, 0.5]))
    assert_close(mix(layers), layers[1] + layers[2])
    (gradient,) = torch.autograd.grad(mix(layers).sum(), mix.gamma)
    assert_close(gradient, mix(layers).detach().sum() / 2)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m(torch.zeros(1, 3)), TypeError, "pad"),
        (lambda m: m(torch.zeros(3, dtype=torch.int64)), TypeError, "B, T"),
        (lambda m: m(torch.tensor([[1, V]])), IndexError, f"0 … {V - 1}"),
        (lambda m: m(torch.tensor([[1, -1]])), IndexError, f"0 … {V - 1}"),
        (lambda m: m(IDS, torch.tensor([0])), ValueError, "at least 1"),
        (lambda m: m(IDS, torch.tensor([3, 3])), ValueError, r"\(1,\)"),
        (lambda m: m(IDS, torch.tensor([7])), ValueError, "lengths"),
        (lambda m: m.pad([]), ValueError, "no sentence"),
        (lambda m: m.pad(["a film"]), TypeError, "not strings"),
        (lambda m: m.pad([["a", "film"]]), TypeError, "not strings"),
        (lambda m: m.pad([[4, 1.7]]), TypeError, "int"),
        (lambda m: m(IDS, [3]), ValueError, "tensor"),
        (lambda m: m.token_log_probs([[4]], batch_size=-1), ValueError, "batch_size=-1"),
        (lambda m: m.token_log_probs([[4]], n_words=-1), ValueError, "n_words=-1"),
        (lambda m: m.token_log_probs([[4]], n_words=V + 1), ValueError, "n_words=14"),
        (lambda m: m.start_from_counts(torch.ones(1)), ValueError, r"\(13,\), none below 0; got \(1,\)"),
        (lambda m: m.start_from_counts(-torch.ones(V)), ValueError, "none below 0"),
        (lambda m: save_bilm("x", m, Vocab(WORDS[:2] + WORDS[3:], ["</s>"])), ValueError, "open with"),
        (lambda m: m.token_log_probs([]), ValueError, "no sentence"),
        (lambda m: BiLMConfig(V, d_emb=6, d_hidden=6), ValueError, "projection"),
        (lambda m: BiLMConfig(V, dropout=1.0), ValueError, "dropout"),
        (lambda m: BiLMConfig(V, n_layers=0), ValueError, "n_layers"),
        (lambda m: BiLMConfig(2), ValueError, "end_id"),
        (lambda m: BiLMConfig(V, tied=True, characters=SMALL_CNN), ValueError, "tied"),
        (lambda m: BiLM(BiLMConfig(V, characters=SMALL_CNN)), ValueError, "spell"),
        (lambda m: BiLM(BiLMConfig(V, characters=SMALL_CNN), spell(["a"], 8)), ValueError, "too few"),
        (lambda m: ScalarMix(0), ValueError, "at least one layer"),
        (lambda m: ScalarMix(2)(torch.zeros(3, 1)), ValueError, "2 weights"),
        (lambda m: save_bilm("x", m, Vocab(["a"])), ValueError, "reads"),
    ],
)
def test_says_what_is_wrong(call, error, message):
    with pytest.raises(error, match=message):
        call(random_model())


def test_a07_a_sentence_without_words():
    model = random_model()
    ids, lengths = pad([[], [5]])
    assert torch.isfinite(model.vectors(ids, lengths)).all()
    assert model.token_log_probs([[], [5]]).shape == (3,)


def test_shipped_checkpoint():
    path = CHAPTERS / "checkpoints" / "elmo.safetensors"
    stored = read_json(CHAPTERS / "results" / "elmo_pretraining.json")
    assert path.stat().st_size < 10_000_000
    model, vocab = load_bilm(path)
    assert len(vocab) == model.config.vocab_size
    assert sum(p.numel() for p in model.parameters()) == stored["parameters"]
    assert vocab.tokens[-len(stored["pairs"]) :] == tuple("|".join(pair) for pair in stored["pairs"])
    text = language_model_text(1).dev[:1500]
    n_words = len(vocab) - len(stored["pairs"])
    for way, backward in (("forward", False), ("backward", True)):
        found = perplexity(model.token_log_probs([vocab.encode(s) for s in text[:300]], backward, n_words))
        # 300 sentences are not the dev part; a broken file would be off by far more than the draw of the text.
        assert abs(np.log(found / stored["dev"][way])) < 0.15
        rows = [r for r in read_json(CHAPTERS / "results" / "perplexity.json") if r["model"] == f"biLM, {way}"]
        assert [r["test"] for r in rows] == [stored["test"][way]]


def test_shipped_vectors_part_along_the_sense():
    """The claim of the chapter in small: a play and to play, four against four, nearest by cosine in layer 2."""
    model, vocab = load_bilm(CHAPTERS / "checkpoints" / "elmo.safetensors")
    noun = "the play was too long|it is based on a play|a play about love|the original play is better"
    verb = "they play two lovers|he had to play the villain|she will play his wife|who else could play him"
    sentences = [s.split() for s in f"{noun}|{verb}".split("|")]
    layers = model.vectors(*model.pad([vocab.encode(s) for s in sentences]))
    at = [1 + s.index("play") for s in sentences]
    x = layers[2, range(8), at]
    x = F.normalize(x - x.mean(0), dim=-1)
    nearest = (x @ x.T).fill_diagonal_(-2.0).argmax(1)
    assert ((nearest < 4) == (torch.arange(8) < 4)).float().mean() >= 0.75
    assert torch.equal(layers[0, 0, at[0]], layers[0, 4, at[4]])


def test_c07_nothing_to_guess_is_named_not_nan():
    """A row of one id has no neighbour; among others it does not count."""
    model = random_model()
    for arguments in ((IDS[:, :1],), (IDS, torch.tensor([1]))):
        with pytest.raises(ValueError, match="no word to guess"):
            model.loss(*arguments)
        with pytest.raises(ValueError, match="no word to guess"):
            model.loss(*arguments[:1], *arguments[1:] or (None,), WordSampler(torch.ones(V), 4))
    both = model.loss(IDS.repeat(2, 1), torch.tensor([1, 6]))
    assert_close(both, model.loss(IDS))


def test_k05_one_id():
    model = random_model()
    assert all(logits.isfinite().all() for logits in model(IDS[:, :1]))
    assert model.vectors(IDS[:, :1]).shape == (3, 1, 1, 8)


def test_half_precision_does_not_round_the_log_probabilities():
    model = random_model().bfloat16()
    found = model.token_log_probs([[4, 5, 7]])
    rounded = torch.tensor(found).bfloat16().double().numpy()
    assert (found != rounded).any()
    np.testing.assert_allclose(found, model.float().token_log_probs([[4, 5, 7]]), atol=0.05)


def test_order_of_the_sentences_does_not_matter():
    model = random_model()
    there, back = (model.token_log_probs(s, batch_size=2) for s in ([[4], [5, 6, 7], [8, 9]], [[8, 9], [5, 6, 7], [4]]))
    np.testing.assert_allclose(there, np.concatenate([back[7:], back[3:7], back[:3]]), atol=1e-6)
