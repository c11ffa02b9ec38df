"""plm.masking: the shares, the special tokens, true and random neighbours, and batches that are full."""

import numpy as np
import pytest
import torch

from plm.bert import IS_NEXT, NOT_NEXT, BertConfig, BertForPretraining
from plm.masking import Documents, MaskingConfig, Pairs, PretrainingBatches, Singles, mask_tokens, read_documents
from plm.wordpiece import SPECIALS, WordPiece

V = 1000
MASK, SPECIAL_IDS = 4, [0, 1, 2, 3, 4]


def mask(ids, config=MaskingConfig(), seed=0, vocab_size=V):  # noqa: B008 - frozen
    return mask_tokens(ids, config, np.random.default_rng(seed), vocab_size, MASK, SPECIAL_IDS)


def ordinary(n=200_000, seed=1, vocab_size=V):
    return np.random.default_rng(seed).integers(5, vocab_size, (n // 100, 100))


def documents(n=30, seed=0, longest=12):
    """Documents whose every token tells where it stands: consecutive ids, so that a true neighbour is plain to see."""
    rng, found, at = np.random.default_rng(seed), [], 5
    for _ in range(n):
        document = []
        for _ in range(rng.integers(6, 14)):
            size = int(rng.integers(3, longest))
            document.append(list(range(at, at + size)))
            at += size
        found.append(document)
    return found, at


def pairs(**sizes):
    texts, size = documents(**sizes)
    return Pairs(Documents.build(texts), 2, 3), size


def passages(row, segments):
    """The ids of A and B in a row."""
    end = int(np.argmax(segments)) - 1
    assert row[0] == 2
    assert row[end] == row[-1] == 3
    return row[1:end], row[end + 1 : -1]


# --- masks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.15, 0.3])
def test_c09_shares_are_15_and_80_10_10(rate):
    ids = ordinary()
    found = mask(ids, MaskingConfig(rate=rate))
    assert abs(len(found.positions) / ids.size - rate) < 0.005
    shown = found.ids.flat[found.positions]
    shares = [
        (shown == MASK).mean(),
        ((shown != MASK) & (shown != found.targets)).mean(),
        (shown == found.targets).mean(),
    ]
    assert np.allclose(shares, [0.8, 0.1, 0.1], atol=0.01)
    untouched = np.ones(ids.size, bool)
    untouched[found.positions] = False
    assert (found.ids.flat[untouched] == ids.flat[untouched]).all()
    assert (found.targets == ids.flat[found.positions]).all()


def test_c10_no_special_token_is_put_in_or_chosen():
    words = np.random.default_rng(0).integers(0, 10, (2000, 50))  # five special tokens and five words
    found = mask(words, MaskingConfig(rate=0.5, mask=0.0, random=1.0), seed=5, vocab_size=10)
    assert len(found.positions) > 10_000
    assert found.targets.min() >= 5
    assert found.ids.flat[found.positions].min() >= 5
    drawn = np.bincount(found.ids.flat[found.positions], minlength=10)[5:]
    assert drawn.min() > 0.9 * drawn.mean()


def test_c07_at_least_one_token_is_chosen_if_there_is_one():
    for seed in range(50):
        assert len(mask(np.array([[2, 7, 3]]), seed=seed).positions) == 1
    assert len(mask(np.array([[2, 3]]), seed=0).positions) == 0
    assert len(mask(np.array([[2, 7, 3]]), MaskingConfig(rate=0.0)).positions) == 0


def test_the_input_is_not_changed():
    ids = ordinary(1000)
    before = ids.copy()
    mask(ids)
    assert (ids == before).all()


# --- pairs ----------------------------------------------------------------------------------------------------------


def test_rows_are_full_and_true_neighbours_never_called_random():
    draw, _ = pairs()
    owner = {i: d for d, document in enumerate(documents()[0]) for sentence in document for i in sentence}
    first = {sentence[0] for document in documents()[0] for sentence in document}
    opening = {document[0][0] for document in documents()[0]}
    last = {sentence[-1] for document in documents()[0] for sentence in document}
    rows = draw.draw(400, 40, np.random.default_rng(0))
    assert rows["ids"].shape == (400, 40)
    assert rows["ids"].min() > 1  # no padding
    for row, segments, label in zip(rows["ids"], rows["segments"], rows["is_next"]):
        a, b = passages(row, segments)
        assert (np.diff(a) == 1).all()
        assert (np.diff(b) == 1).all()
        assert a[0] in first and b[0] in first and a[-1] in last  # noqa: PT018
        follows = b[0] == a[-1] + 1
        assert label == (IS_NEXT if follows else NOT_NEXT)
        assert follows or owner[a[0]] != owner[b[0]]
        assert b[0] not in opening
        assert set(segments) == {0, 1}
        assert len(segments) - segments.sum() == len(a) + 2


def test_c12_half_are_true_neighbours_and_single_sentences_are_refused():
    draw, _ = pairs(n=2)  # even with two documents, where a random neighbour is often of the same one
    labels = draw.draw(4000, 40, np.random.default_rng(0))["is_next"]
    assert 0.45 < (labels == IS_NEXT).mean() < 0.55
    with pytest.raises(ValueError, match="empty line between sentences"):
        read_documents("One.\n\nTwo.\n\nThree.\n\nFour.\n\nFive.\n\nSix.\n")
    with pytest.raises(ValueError, match="have one sentence"):
        Pairs(Documents.build([[[5, 6]], [[7, 8]]]), 2, 3)
    with pytest.warns(UserWarning, match="2 of 3"):
        read_documents("One.\n\nTwo.\n\nThree.\nFour.")
    assert read_documents("One.\nTwo.\n\n\nThree.\nFour.\n") == [["One.", "Two."], ["Three.", "Four."]]


def test_rows_that_no_document_can_fill_are_refused():
    draw, _ = pairs()
    with pytest.raises(ValueError, match=r"row of 4000 tokens: choose shorter rows \(--length\)"):
        draw.draw(4, 4000, np.random.default_rng(0))
    with pytest.raises(ValueError, match="too few"):
        draw.draw(4, 10, np.random.default_rng(0))
    one = Pairs(Documents.build([[list(range(5, 205)), [7, 8]]]), 2, 3)
    with pytest.raises(ValueError, match=r"(hardly any|long enough).* tokens.*: choose shorter rows \(--length\)"):
        one.draw(4, 40, np.random.default_rng(0))


def test_singles_are_whole_documents_of_one_length():
    texts = [[list(range(5, 5 + n))] for n in (3, 3, 7, 40)]
    draw, rng = Singles(Documents.build(texts), 2, 3, longest=20), np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        rows = draw.draw(60, rng)
        assert (rows["ids"][:, 0] == 2).all()
        assert (rows["ids"][:, -1] == 3).all()
        assert (np.diff(rows["ids"][:, 1:-1], axis=1) == 1).all()
        assert (rows["is_next"] == -100).all()
        assert rows["segments"].sum() == 0
        seen.add(rows["ids"].shape[1])
    assert seen == {5, 9, 20}


# --- the stream -----------------------------------------------------------------------------------------------------


def stream(seed=0, **changes):
    texts, size = documents()
    tokenizer = WordPiece([*SPECIALS, *(f"w{i}" for i in range(size - 5))])
    settings = {"tokens": 400, "lengths": (32, 64), "shares": (0.5, 0.5)} | changes
    return PretrainingBatches(Documents.build(texts), tokenizer, MaskingConfig(), **settings, seed=seed)


def test_batches_fit_the_model_and_go_on_where_they_were():
    batches = stream(singles=Documents.build([[[7, 8, 9]]]), single_share=0.3)
    model = BertForPretraining(BertConfig(vocab_size=len(batches.vocabulary), n_positions=64, d_model=8, n_heads=2))
    shapes = set()
    for _ in range(20):
        batch = batches.next()
        shapes.add(batch["ids"].shape[1])
        assert all(tensor.dtype == torch.int64 for tensor in batch.values())
        assert all(torch.isfinite(total) for total, _ in model.loss(batch).values())
    assert shapes == {5, 32, 64}
    state = batches.state
    there = [batches.next() for _ in range(3)]
    again = stream(seed=9, singles=Documents.build([[[7, 8, 9]]]), single_share=0.3)
    again.state = state
    for a, b in zip(there, again):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_documents_know_their_borders():
    found = Documents.build([[[5, 6], [], [7]], [], [[8, 9, 10]]])
    assert found.ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert found.sentences.tolist() == [0, 2, 3, 6]
    assert found.documents.tolist() == [0, 3, 6]
    with pytest.raises(ValueError, match="single sentence"):
        Documents.build([[[]]])


# --- bad input ------------------------------------------------------------------------------------------------------


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="share between"):
        MaskingConfig(rate=1.5)
    with pytest.raises(ValueError, match="more than all"):
        MaskingConfig(mask=0.8, random=0.3)
    with pytest.raises(TypeError, match=r"\(B, T\)"):
        mask(np.array([5, 6]))
    with pytest.raises(TypeError, match="integers"):
        mask(np.array([[5.0]]))
    with pytest.raises(ValueError, match="special"):
        mask_tokens(np.array([[5]]), MaskingConfig(), np.random.default_rng(0), V, 4, [0, 1])
    with pytest.raises(ValueError, match="single sentence"):
        read_documents("\n\n")
