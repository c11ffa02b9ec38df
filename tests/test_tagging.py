"""Labels on words and pieces: nothing shifts, nothing is lost, and only whole names count."""

import itertools
import random

import pytest
import torch

from plm.bert import IGNORED, Bert, BertConfig
from plm.entities import entity_f1, from_iobes, labels_of
from plm.heads import TagHead, collate
from plm.tagging import (
    TaggedWords,
    best_path,
    cut_words,
    from_spans,
    invalid,
    iobes,
    read_conll,
    scheme_of,
    spans_of,
    tag,
    tag_examples,
    transitions,
)
from plm.wordpiece import SPECIALS, WordPiece

NAMES = labels_of(("PER", "LOC", "ORG"))
PIECES = WordPiece([*SPECIALS, "john", "lives", "in", "ber", "##lin", ".", "new", "york", "##s", "a"])
SENTENCE = TaggedWords(["John", "lives", "in", "Berlin", "."], ["S-PER", "O", "O", "S-LOC", "O"])
CONLL = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
Mary NNP I-NP B-PER


-DOCSTART- -X- O O

BRUSSELS NNP I-NP I-LOC
"""


def test_thirteen_labels():
    assert len(NAMES) == 13


def test_files_of_conll(tmp_path):
    path = tmp_path / "train.txt"
    for text in (CONLL, CONLL.replace("\n", "\r\n"), CONLL.rstrip()):
        path.write_bytes(text.encode())
        found = read_conll(path)
        assert [s.words for s in found] == [["EU", "rejects", "Peter", "Blackburn", "Mary"], ["BRUSSELS"]]
        assert scheme_of([s.labels for s in found]) == "iob1"
        assert iobes(found[0], "iob1").labels == ["S-ORG", "O", "B-PER", "E-PER", "S-PER"]
        assert read_conll(path, 1)[0].labels == ["NNP", "VBZ", "NNP", "NNP", "NNP"]
    path.write_text("EU I-ORG\n\nalone\n")
    with pytest.raises(ValueError, match="line 3: 'alone' has a word but no label"):
        read_conll(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="no sentence"):
        read_conll(path)


def test_c21_schemes_hold_the_same_names():
    labels = ["I-ORG", "O", "I-PER", "I-PER", "B-PER"]
    spans = spans_of(labels, "iob1")
    assert from_spans(5, spans, "iobes") == ["S-ORG", "O", "B-PER", "E-PER", "S-PER"]
    assert from_spans(5, spans, "iob1") == labels
    assert from_spans(5, spans, "iob2") == ["B-ORG", "O", "B-PER", "I-PER", "B-PER"]
    with pytest.raises(ValueError, match="word 1: B-PER may not follow the start in iob1"):
        spans_of(["B-PER"], "iob1")
    with pytest.raises(ValueError, match="word 2: I-PER may not follow B-LOC in iob2"):
        spans_of(["B-LOC", "I-PER"], "iob2")
    with pytest.raises(ValueError, match="'E-LOC' is no label of iob2"):
        spans_of(["E-LOC"], "iob2")
    with pytest.raises(ValueError, match="iob1, iob2, iobes, not 'bilou'"):
        spans_of([], "bilou")


def test_c21_what_breaks_the_rules_of_a_file_is_named_with_its_line(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("-DOCSTART- O\n\nEU I-ORG\n\nin O\nnew B-LOC\nyork I-LOC\nand I-LOC\njohn B-PER\n")
    found = read_conll(path)
    assert [s.line for s in found] == [3, 5]
    assert scheme_of([s.labels for s in found]) == "iob1"
    with pytest.raises(ValueError, match="line 6: B-LOC may not follow O in iob1"):
        iobes(found[1], "iob1")
    assert iobes(found[0], "iob1") == TaggedWords(["EU"], ["S-ORG"], 3)
    for label in ("X-PER", "B", "O-PER", "I-"):
        path.write_text(f"a O\n\nb O\nc {label}\n")
        with pytest.raises(ValueError, match=f"names.txt, line 4: '{label}' is no label"):
            read_conll(path)


def test_b13_words_that_look_like_special_tokens_keep_their_label():
    words = ["[SEP]", "john", "[CLS]", "[MASK]", "[PAD]"]
    labels = ["O", "S-PER", "B-ORG", "E-ORG", "S-LOC"]
    for pieces in (PIECES, WordPiece([*SPECIALS, "[", "]", "sep", "cls", "john"])):
        (example,) = tag_examples(pieces, TaggedWords(words, labels), NAMES)
        assert [NAMES[t] for t in example.target if t != IGNORED] == labels
        assert example.ids.count(pieces.cls_id) == example.ids.count(pieces.sep_id) == 1
        assert not {pieces.pad_id, pieces.mask_id} & set(example.ids)


def test_every_set_of_names_comes_back_in_every_scheme():
    rng = random.Random(0)
    for _ in range(300):
        spans, at, n = [], 0, rng.randint(1, 8)
        while at < n:
            end = rng.randint(at + 1, n)
            if rng.random() < 0.7:
                spans.append((at, end, rng.choice(["PER", "LOC"])))
            at = end
        for scheme in ("iob1", "iob2", "iobes"):
            labels = from_spans(n, spans, scheme)
            assert invalid(labels, scheme) == []
            assert spans_of(labels, scheme) == spans


def test_c20_invalid_labels_are_counted_and_spell_no_name():
    assert invalid(["B-PER", "I-PER", "S-PER"], "iobes") == [2]
    assert invalid(["I-PER", "E-PER"], "iobes") == [0]
    assert invalid(["B-PER"], "iobes") == [1]
    assert invalid([], "iobes") == []
    gold, found = from_iobes(["B-PER", "E-PER", "S-PER"]), from_iobes(["B-PER", "I-PER", "S-PER"])
    assert entity_f1([gold], [found]) == (1, 0.5, pytest.approx(2 / 3))


def brute_force(labels):
    """Names by definition: every stretch that is S, or B I … I E, of one type."""
    found = set()
    for a, b in itertools.combinations(range(len(labels) + 1), 2):
        kinds = {label[2:] for label in labels[a:b]}
        places = "".join(label[0] for label in labels[a:b])
        if len(kinds) == 1 and (
            places == "S" or ((places[0], places[-1]) == ("B", "E") and set(places[1:-1]) <= {"I"})
        ):
            found.add((a, b, kinds.pop()))
    return found


def test_strict_f1_equals_the_definition():
    rng, names = random.Random(1), labels_of(("PER", "LOC"))
    for _ in range(300):
        pairs = [[[rng.choice(names) for _ in range(5)] for _ in range(2)] for _ in range(3)]
        gold, found = ([brute_force(pair[k]) for pair in pairs] for k in (0, 1))
        right = sum(len(a & b) for a, b in zip(gold, found))
        n_gold, n_found = sum(map(len, gold)), sum(map(len, found))
        score = entity_f1(*([from_iobes(pair[k]) for pair in pairs] for k in (0, 1)))
        assert score.precision == (right / n_found if n_found else 0)
        assert score.recall == (right / n_gold if n_gold else 0)
        assert score.f1 == pytest.approx(2 * right / (n_gold + n_found) if right else 0)


def test_a_label_stands_at_the_first_piece_of_its_word():
    (example,) = tag_examples(PIECES, SENTENCE, NAMES)
    pieces = [PIECES.pieces[i] for i in example.ids]
    assert pieces == ["[CLS]", "john", "lives", "in", "ber", "##lin", ".", "[SEP]"]
    shown = [NAMES[t] if t != IGNORED else "-" for t in example.target]
    assert shown == ["-", "S-PER", "O", "O", "S-LOC", "-", "O", "-"]


def test_words_of_which_cleaning_leaves_nothing_keep_their_label():
    words = ["a", "\u200b", "\u0301", "xyz", "berlin"]
    cut = cut_words(PIECES, words)
    assert [len(pieces) for pieces in cut] == [1, 1, 1, 1, 2]
    (example,) = tag_examples(PIECES, TaggedWords(words, ["O", "S-PER", "O", "S-ORG", "S-LOC"]), NAMES)
    assert [NAMES[t] for t in example.target if t != IGNORED] == ["O", "S-PER", "O", "S-ORG", "S-LOC"]
    with pytest.raises(TypeError, match="not one string"):
        cut_words(PIECES, "berlin")


def test_long_sentences_are_cut_between_words_and_lose_none():
    words = ["berlin", "a"] * 10
    labels = [rng for rng in ("S-LOC", "O")] * 10
    parts = tag_examples(PIECES, TaggedWords(words, labels), NAMES, 7)
    assert max(len(part.ids) for part in parts) <= 7
    assert [NAMES[t] for part in parts for t in part.target if t != IGNORED] == labels
    assert all(PIECES.pieces[part.ids[1]] == "ber" for part in parts[:1])
    assert not any(PIECES.pieces[part.ids[1]].startswith("##") for part in parts)
    for part in parts:
        assert len(part.ids) == len(part.segments) == len(part.target)


def test_the_best_path_equals_the_search_through_all():
    names = labels_of(("PER",))
    table, generator = transitions(names), torch.Generator().manual_seed(0)
    for T in (1, 2, 3, 4):
        for _ in range(10):
            scores = torch.randn(T, len(names), generator=generator)
            paths = [p for p in itertools.product(range(5), repeat=T) if not invalid([names[i] for i in p], "iobes")]
            best = max(paths, key=lambda p: sum(scores[t, i].item() for t, i in enumerate(p)))
            assert tuple(best_path(scores, table)) == best


def tagger(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 2, "n_layers": 1, "n_positions": 16, "dropout": dropout}
    return TagHead(Bert(BertConfig(vocab_size=len(PIECES), **sizes)), len(NAMES), dropout)


def test_c23_a_tagger_learns_and_padding_is_not_scored():
    """The label O has the id 0, as padding has."""
    assert NAMES.index("O") == 0
    data = [SENTENCE, TaggedWords(["a"], ["O"]), TaggedWords(["New", "Yorks"], ["B-LOC", "E-LOC"])]
    model, batch = tagger(), collate([e for s in data for e in tag_examples(PIECES, s, NAMES)])
    assert int((model.targets(batch) != IGNORED).sum()) == 8
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        model.forward_loss(batch).backward()
        optimizer.step()
    for constrained in (False, True):
        assert tag(model, PIECES, [s.words for s in data], NAMES, 8, constrained) == [s.labels for s in data]
    assert tag(model, PIECES, [[], ["a"] * 20], NAMES, 8)[0] == []
    assert model.training


def test_constrained_labels_always_spell_whole_names():
    model, sentences = tagger(), [["john", "lives", "in", "berlin", "a"][: 1 + i % 5] for i in range(20)]
    torch.nn.init.normal_(model.output.weight)
    assert sum(len(invalid(labels, "iobes")) for labels in tag(model, PIECES, sentences, NAMES)) > 5
    assert not any(invalid(labels, "iobes") for labels in tag(model, PIECES, sentences, NAMES, constrained=True))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="2 words have 1 labels"):
        tag_examples(PIECES, TaggedWords(["a", "a"], ["O"]), NAMES)
    with pytest.raises(ValueError, match="'S-DATE' is none of the model's"):
        tag_examples(PIECES, TaggedWords(["a"], ["S-DATE"]), NAMES)
    with pytest.raises(ValueError, match="no room for a word"):
        tag_examples(PIECES, TaggedWords(["a"], ["O"]), NAMES, 2)
