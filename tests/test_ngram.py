"""Count-based language models against hand numbers, a dictionary implementation, nltk, and their own invariants."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.lm import KneserNeyInterpolated
from numpy.testing import assert_allclose

from plm.evaluate import perplexity
from plm.ngram import END_ID, START_ID, KneserNey, NGram, windows
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

# Three sentences one can count on paper: the film was good / the film was dull / a good film
TEXT = [["the", "film", "was", "good"], ["the", "film", "was", "dull"], ["a", "good", "film"]]
VOCAB = Vocab.build((w for s in TEXT for w in s), specials=LANGUAGE_MODEL_SPECIALS)
IDS = [VOCAB.encode(s) for s in TEXT]
V = len(VOCAB)
V_SMALL = 7
corpora = st.lists(st.lists(st.sampled_from([0, 3, 4, 5, 6]), max_size=7), min_size=1, max_size=8)
contexts = st.lists(st.sampled_from([0, 3, 4, 5, 6]), max_size=5)


def models(n, size):
    return [NGram(n, size, 0.5), KneserNey(n, size), KneserNey(n, size, "single"), KneserNey(n, size, 0.4)]


def p(model, word, *context):
    return model.distribution(VOCAB.encode(context))[VOCAB[word]]


def brute_force_kneser_ney(sentences, n, V, discount):
    """Interpolated Kneser-Ney by the book: dictionaries, sets and recursion. Returns P(word | context)."""
    raw = [Counter() for _ in range(n + 1)]
    for sentence in sentences:
        padded = [START_ID, *sentence, END_ID]
        for t in range(1, len(padded)):
            for k in range(1, min(n, t + 1) + 1):
                raw[k][tuple(padded[t - k + 1 : t + 1])] += 1
    counts = [Counter() for _ in range(n + 1)]
    counts[n] = raw[n]
    for k in range(1, n):
        before = defaultdict(set)
        for longer in raw[k + 1]:
            before[longer[1:]].add(longer[0])
        counts[k] = Counter({g: c if g[0] == START_ID else len(before[g]) for g, c in raw[k].items()})

    def probability(word, context):
        k = len(context) + 1
        lower = probability(word, context[1:]) if context else (0.0 if word == START_ID else 1 / (V - 1))
        followers = {g: c for g, c in counts[k].items() if g[:-1] == context}
        total = sum(followers.values())
        if total == 0:
            return lower
        own = max(followers.get((*context, word), 0) - discount, 0) / total
        return own + sum(min(discount, c) for c in followers.values()) / total * lower

    def answer(word, context):
        return probability(word, tuple([START_ID, *context][-(n - 1) :]) if n > 1 else ())

    return answer


# --- hand numbers ---------------------------------------------------------------------------------------------------


def test_windows_by_hand():
    assert windows([[5, 6], [], [7]], 3).tolist() == [[1, 1, 5], [1, 5, 6], [5, 6, 2], [1, 1, 2], [1, 1, 7], [1, 7, 2]]
    assert windows([[5], [6]], 1).tolist() == [[5], [2], [6], [2]]
    assert windows([], 2).shape == (0, 2)


def test_maximum_likelihood_by_hand():
    model = NGram(2, V, add_k=0).fit(IDS)
    assert p(model, "film", "the") == 1
    assert_allclose(p(model, "was", "film"), 2 / 3)
    assert_allclose(p(model, "</s>", "film"), 1 / 3)
    assert_allclose(p(model, "the"), 2 / 3)
    # the film was good: 2/3 · 1 · 2/3 · 1/2 · 1/2
    assert_allclose(np.exp(model.token_log_probs(IDS[:1]).sum()), 1 / 9)
    assert perplexity(model.token_log_probs([VOCAB.encode(["the", "film", "was", "the"])])) == np.inf


def test_add_one_by_hand():
    model = NGram(2, V, add_k=1).fit(IDS)
    # 6 words, <unk> and </s> can follow: V - 1 = 8.
    assert V - 1 == 8
    assert_allclose(p(model, "was", "film"), (2 + 1) / (3 + 8))
    assert_allclose(p(model, "dull", "film"), 1 / 11)


def test_kneser_ney_by_hand():
    """D = 1/2. "film" stands after the (twice) and good: 2 different words; "was" after film alone: 1."""
    model = KneserNey(2, V, discount=0.5).fit(IDS)
    # Distinct bigrams: <s>the <s>a thefilm filmwas wasgood wasdull agood goodfilm good</s> dull</s> film</s>: 11.
    unigram_was = (1 - 1 / 2) / 11 + 1 / 2 * 7 / 11 / 8
    unigram_film = (2 - 1 / 2) / 11 + 1 / 2 * 7 / 11 / 8
    assert_allclose(p(model, "was", "film"), (2 - 1 / 2) / 3 + 1 / 2 * 2 / 3 * unigram_was)
    assert_allclose(p(model, "film", "was"), 0 + 1 / 2 * 2 / 2 * unigram_film)
    assert_allclose(p(model, "film", "<unk>"), unigram_film)  # never seen: only the shorter context speaks


def test_discounts_by_hand():
    """Four words once, two twice, one three times, one four times."""
    sentences = [[3], [4], [5], [6], *[[7]] * 2, *[[8]] * 2, *[[9]] * 3, *[[10]] * 4]
    y = 4 / (4 + 2 * 2)
    # </s> adds one more count, 15, which is 3 or more.
    found = KneserNey(1, 11).fit(sentences).discounts[0]
    assert_allclose(found, [1 - 2 * y * 2 / 4, 2 - 3 * y * 1 / 2, 3 - 4 * y * 1 / 1])
    assert_allclose(KneserNey(1, 11, "single").fit(sentences).discounts[0], [y, y, y])
    assert_allclose(KneserNey(2, 11).fit([[3, 4]]).discounts, 0.75)  # too small to estimate


# --- references -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(corpora, contexts, st.integers(1, 4), st.sampled_from([0.0, 0.3, 0.75, 1.0]))
def test_kneser_ney_equals_dictionaries(sentences, context, n, discount):
    model = KneserNey(n, V_SMALL, discount).fit(sentences)
    reference = brute_force_kneser_ney(sentences, n, V_SMALL, discount)
    assert_allclose(model.distribution(context), [reference(w, context) for w in range(V_SMALL)], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(corpora, corpora, st.integers(1, 4))
def test_add_k_equals_dictionaries(sentences, held_out, n):
    def padded_grams(corpus):
        for s in corpus:
            tokens = [START_ID] * (n - 1) + [*s, END_ID]
            yield from (tuple(tokens[i : i + n]) for i in range(len(s) + 1))

    counts = Counter(padded_grams(sentences))
    totals = Counter(g[:-1] for g in counts.elements())
    expected = [(counts[g] + 0.2) / (totals[g[:-1]] + 0.2 * (V_SMALL - 1)) for g in padded_grams(held_out)]
    model = NGram(n, V_SMALL, 0.2).fit(sentences)
    assert_allclose(np.exp(model.token_log_probs(held_out)), expected)


@pytest.mark.parametrize("n", [2, 3])
def test_kneser_ney_equals_nltk_where_the_definitions_agree(n):
    """nltk has no discount on its lowest level, nothing uniform below it, and no rule for k-grams that open a sentence.

    With discount 0 on our lowest level and contexts inside sentences, the two are the same model.
    """
    rng = np.random.default_rng(0)
    sentences = rng.choice([0, 3, 4, 5, 6, 7, 8], p=[0.05, 0.3, 0.2, 0.2, 0.1, 0.1, 0.05], size=(60, 8)).tolist()
    discounts = [0.0, 0.6, 0.6][:n]
    ours = KneserNey(n, 9, discounts).fit(sentences)
    theirs = KneserNeyInterpolated(order=n, discount=0.6)
    grams = []
    for s in sentences:
        tokens = [START_ID, *s, END_ID]
        for t in range(1, len(tokens)):
            grams.append([tuple(map(str, tokens[t - k + 1 : t + 1])) for k in range(1, min(n, t + 1) + 1)])
    theirs.fit(grams, vocabulary_text=[str(i) for i in range(9)])
    seen = {tuple(row[:-1]) for row in windows(sentences, n).tolist() if START_ID not in row}
    assert len(seen) >= 6
    for context in sorted(seen):
        expected = [theirs.score(str(w), [str(c) for c in context]) for w in range(9)]
        assert_allclose(ours.distribution(list(context)), expected, atol=1e-12, err_msg=str(context))


# --- invariants -----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(corpora, contexts, st.integers(1, 5))
def test_every_context_gives_a_distribution(sentences, context, n):
    for model in models(n, V_SMALL):
        d = model.fit(sentences).distribution(context)
        assert d.shape == (V_SMALL,)
        assert (d >= 0).all()
        assert d[START_ID] == 0
        assert_allclose(d.sum(), 1)


@settings(max_examples=40, deadline=None)
@given(corpora, corpora, st.integers(1, 4))
def test_token_log_probs_are_the_distributions_read_word_by_word(train, text, n):
    for model in models(n, V_SMALL):
        model.fit(train)
        expected = [np.log(model.distribution(s[:t])[w]) for s in text for t, w in enumerate([*s, END_ID])]
        assert_allclose(model.token_log_probs(text), expected)


def test_sentences_do_not_touch():
    """The last word of one sentence says nothing about the first of the next, and their order does not matter."""
    for model in models(3, V):
        model.fit(IDS)
        whole = model.token_log_probs(IDS)
        assert_allclose(whole, np.concatenate([model.token_log_probs([s]) for s in IDS]))
        again = type(model)(3, V, *([0.5] if isinstance(model, NGram) else [model.discount])).fit(IDS[::-1])
        assert_allclose(again.token_log_probs(IDS), whole)


def test_unseen_context_backs_off_to_the_shorter_one():
    three = KneserNey(3, V, 0.5).fit(IDS)
    for shorter in (["film"], ["good"]):
        # "<unk> film" was never seen, so all that counts is "film", as after any other word never seen before it.
        a, b = (three.distribution(VOCAB.encode([x, *shorter])) for x in ("<unk>", "dull"))
        assert_allclose(a, b)


def test_an_empty_sentence_is_one_token():
    for model in models(2, V):
        assert model.fit([*IDS, []]).token_log_probs([[]]).shape == (1,)


def test_sentence_start_is_one_context_however_long_the_ngram():
    """With n = 5 the first word has `<s>` before it and nothing else: exactly a bigram's context."""
    long = KneserNey(5, V, 0.5).fit(IDS)
    # <s> the film was good / the film was good </s> / the same two with dull / <s> a good film </s>
    assert len(long.tables[4].grams) == 5
    assert_allclose(long.distribution([]).sum(), 1)
    assert_allclose(p(long, "the"), brute_force_kneser_ney(IDS, 5, V, 0.5)(VOCAB["the"], []))


def test_repeating_the_text_changes_maximum_likelihood_nowhere():
    once, thrice = NGram(3, V, 0).fit(IDS), NGram(3, V, 0).fit(IDS * 3)
    assert_allclose(once.token_log_probs(IDS), thrice.token_log_probs(IDS))


def test_unigram_ignores_order():
    model = KneserNey(1, V).fit(IDS)
    a, b = model.token_log_probs([[3, 4, 5]]), model.token_log_probs([[5, 3, 4]])
    assert_allclose(a.sum(), b.sum())


def test_kneser_ney_beats_add_k_on_held_out_text():
    """A chain with structure: each word has two likely followers."""
    rng = np.random.default_rng(1)
    draw = [[int(w) for w in 3 + np.cumsum(rng.integers(0, 2, 12)) % 20] for _ in range(300)]
    train, test = draw[:200], draw[200:]
    kn = perplexity(KneserNey(3, 23).fit(train).token_log_probs(test))
    assert kn < perplexity(NGram(3, 23, 1.0).fit(train).token_log_probs(test))
    assert kn < perplexity(KneserNey(1, 23).fit(train).token_log_probs(test))


def test_samples_are_seeded_end_and_never_hold_start():
    for model in models(2, V):
        model.fit(IDS)
        first = [model.sample(np.random.default_rng(s), max_words=6) for s in range(40)]
        assert first == [model.sample(np.random.default_rng(s), max_words=6) for s in range(40)]
        assert max(map(len, first)) <= 6
        assert not {START_ID, END_ID} & {w for s in first for w in s}
    mle = NGram(5, V, 0).fit(IDS)
    assert all(mle.sample(np.random.default_rng(s)) in IDS for s in range(20))


def test_samples_follow_the_distribution():
    model = NGram(2, V, 0).fit(IDS)
    rng = np.random.default_rng(0)
    first = Counter(model.sample(rng, max_words=1)[0] for _ in range(2000))
    assert abs(first[VOCAB["the"]] / 2000 - 2 / 3) < 0.04


def test_counts_of_large_vocabularies_do_not_collide():
    """V = 60,000 and n = 5: V ** 5 does not fit into 64 bits."""
    a, b = [59_999, 59_998, 3, 59_999], [59_998, 59_999, 4, 59_999]
    model = NGram(5, 60_000, 0).fit([a, b])
    assert model.distribution(a[:3])[59_999] == 1
    assert model.distribution([59_998, 59_999, 4])[59_999] == 1
    assert model.n_parameters == len({tuple(r[-k:]) for k in range(1, 6) for r in windows([a, b], 5).tolist()})


def test_stored_perplexities_hold_together():
    """More text helps every model, and Kneser-Ney beats add-k for every n and size."""
    rows = json.loads((Path(__file__).parents[1] / "chapters/results/perplexity.json").read_text(encoding="utf-8"))
    ours = {(r["model"], r["train_words"]): r for r in rows if "ngram_perplexity.py" in r["command"]}
    assert ours["uniform", 0]["test"] == 9_999
    for part in ("dev", "test"):
        for n in range(1, 6):
            curve = [ours[f"{n}-gram, Kneser-Ney", size][part] for size in (100_000, 300_000, 1_000_000, 5_000_000)]
            assert curve == sorted(curve, reverse=True)
            # With one order and plenty of text there is nothing to smooth, and the two agree.
            assert curve[-1] <= ours[f"{n}-gram, add-k", 5_000_000][part] + 0.01


# --- bad input ------------------------------------------------------------------------------------------------------


def test_k03_raw_strings_are_refused():
    for bad in ("hello world", ["hello world"], [["hello", "world"]], [["1", "2"]]):
        with pytest.raises(TypeError, match="ids"):
            KneserNey(2, 10).fit(bad)
        with pytest.raises(TypeError, match="ids"):
            NGram(2, 10).fit(bad)


def test_errors_say_what_is_wrong():
    for make in (NGram, KneserNey):
        with pytest.raises(ValueError, match="at least 1"):
            make(0, 10)
        with pytest.raises(ValueError, match="different ids below 2"):
            make(2, 2)
        with pytest.raises(RuntimeError, match="call fit"):
            make(2, 10).token_log_probs([[3]])
        with pytest.raises(ValueError, match="no sentence"):
            make(2, 10).fit([])
        with pytest.raises(ValueError, match="vocabulary has 10"):
            make(2, 10).fit([[3, 10]])
        with pytest.raises(ValueError, match="without <s>"):
            make(2, 10).fit([[START_ID, 3]])
        with pytest.raises(ValueError, match="outside the vocabulary"):
            make(2, 10).fit([[3]]).distribution([10])
    with pytest.raises(TypeError, match="integer ids"):
        NGram(2, 10).fit([[3.5]])
    with pytest.raises(ValueError, match="0 or more"):
        NGram(2, 10, add_k=-1)
    with pytest.raises(ValueError, match="never seen"):
        NGram(2, 10, add_k=0).fit([[3]]).distribution([4])
    for bad in ("good-turing", 1.5, -0.1, [0.5], [0.5, float("nan")]):
        with pytest.raises(ValueError, match="discount"):
            KneserNey(2, 10, bad)


def test_windows_read_a_generator_once_and_refuse_what_they_cannot_hold():
    text = [[3, 4], [5]]
    assert windows((s for s in text), 2).tolist() == windows(text, 2).tolist()
    with pytest.raises(TypeError, match=r"one sentence write \[sentence\]"):
        windows([3, 4], 2)
    for big in (2**31, 2**32 + 3, -1):
        with pytest.raises(ValueError, match="ids must lie"):
            windows([[big]], 2)
    with pytest.raises(ValueError, match="different ids"):
        windows(text, 2, start_id=1, end_id=1)
