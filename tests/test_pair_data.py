"""Tasks on pairs: classes in balance, parts apart, labels that are true."""

import hashlib
import itertools
import json

import numpy as np
import pytest

from plm.data import review_sentences
from plm.gpt_text import pretraining_documents
from plm.pair_data import (
    CONTRADICTED,
    ENTAILED,
    NEUTRAL,
    STATEMENTS,
    WORDINGS,
    country_facts,
    draw_facts,
    fact_pairs,
    film_pairs,
    next_sentence_choices,
    part_of,
)

MAKERS = [fact_pairs, film_pairs, next_sentence_choices]


def test_facts_are_what_the_packages_say():
    facts = country_facts()
    assert len(facts) > 150
    assert facts["france"] == {"capital": "paris", "currency": "euro", "language": "french"}
    assert facts["japan"] == {"capital": "tokyo", "currency": "yen", "language": "japanese"}
    shares = {part: sum(part_of(name) == part for name in facts) / len(facts) for part in ("train", "dev", "test")}
    assert 0.55 < shares["train"] < 0.8
    assert min(shares.values()) > 0.04


def parse(sentence):
    """Kind, country and what is said, by the wordings."""
    text, found = " ".join(sentence), set()
    for name, facts in country_facts().items():
        for kind, wordings in WORDINGS.items():
            every = {other[kind] for other in country_facts().values() if kind in other}
            for wording in wordings:
                if name in text and text.startswith(wording.split("{")[0]):
                    found |= {(kind, name, y) for y in every if wording.format(x=name, y=y) == text}
        _ = facts
    assert len(found) == 1, (text, found)
    return found.pop()


def test_labels_of_fact_pairs_are_true():
    facts = country_facts()
    for premise, hypothesis, label in fact_pairs("dev", 60):
        kind, name, said = parse(premise)
        assert facts[name][kind] == said
        assert part_of(name) == "dev"
        other_kind, other_name, other_said = parse(hypothesis)
        same = (kind, name) == (other_kind, other_name)
        assert premise != hypothesis
        assert label == (NEUTRAL if not same else ENTAILED if said == other_said else CONTRADICTED)


def test_the_wordings_are_those_of_the_statements_one_word_at_a_time():
    for kind, three in WORDINGS.items():
        assert [wording.replace(" .", ".") for wording in three] == list(STATEMENTS["en"][kind][:3])
        assert all(wording.split(" ")[-1] == "." and len(set(three)) == 3 for wording in three)


def test_the_pairs_of_chapter_10_are_the_ones_its_results_were_measured_on():
    """The stored accuracies belong to these draws: who changes a wording or the order of the draws has to train again."""
    first = fact_pairs("train", 3)
    assert [" ".join(pair.a) for pair in first] == [
        "romanian is spoken in moldova .",
        "malta is governed from valletta .",
        "burundi is governed from bujumbura .",
    ]
    assert [pair.label for pair in first] == [CONTRADICTED, NEUTRAL, ENTAILED]
    digest = {"train": (6000, "f85cef29772e91a6"), "dev": (300, "de0251788e62cc2e"), "test": (900, "1867e1ffdabb900b")}
    for part, (n, wanted) in digest.items():
        text = json.dumps(fact_pairs(part, n), ensure_ascii=False)
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == wanted, part


def test_statements_are_drawn_in_turns_and_true_of_what_they_say():
    known = {f"land {i}": {"capital": f"town {i}", "currency": f"coin {i // 2}"} for i in range(6)}
    draws = draw_facts(known, list(known)[:4], np.random.default_rng(0))
    for i, (first, second, label) in enumerate(itertools.islice(draws, 300)):
        assert label == i % 3
        assert known[first.x][first.kind] == first.y
        assert {first.x, second.x} <= {f"land {k}" for k in range(4)}
        if label == ENTAILED:
            assert first == second
        elif label == CONTRADICTED:
            assert (first.kind, first.x) == (second.kind, second.x)
            assert first.y != second.y
        else:
            assert known[second.x][second.kind] == second.y
            assert (first.kind, first.x) != (second.kind, second.x)
            assert (first.kind == second.kind) != (first.x == second.x)


@pytest.mark.parametrize("maker", MAKERS)
def test_classes_are_in_balance_and_draws_repeat(maker):
    found = maker("dev", 120)
    assert len(found) == 120
    assert found == maker("dev", 120)
    assert found != maker("dev", 120, seed=1)
    labels = [example.label for example in found]
    n = len(set(labels))
    assert n == {"fact_pairs": 3, "film_pairs": 2, "next_sentence_choices": 4}[maker.__name__]
    assert all(abs(labels.count(label) - 120 / n) < 0.4 * 120 / n for label in range(n))


def test_film_pairs_and_choices_say_where_they_come_from():
    where = {tuple(s): i for i, d in enumerate(review_sentences("imdb_dev")) for s in d}
    right = [(where[tuple(a)] == where[tuple(b)]) == label for a, b, label in film_pairs("dev", 100)]
    assert sum(right) >= 99  # a sentence may stand in two reviews
    for context, answers, label in next_sentence_choices("dev", 50):
        document = review_sentences("imdb_dev")[where[tuple(context)]]
        assert any(list(pair) == [context, answers[label]] for pair in itertools.pairwise(document))
        assert sum(where[tuple(a)] == where[tuple(context)] for a in answers) == 1


def test_no_training_sentence_was_read_in_pretraining():
    read = {tuple(s) for d in pretraining_documents() for s in d}
    used = {tuple(s) for pair in film_pairs("train", 500) for s in pair[:2]}
    used |= {tuple(s) for c in next_sentence_choices("train", 200) for s in (c.context, *c.answers)}
    assert len(used & read) <= 0.01 * len(used)  # a stock phrase here and there


@pytest.mark.parametrize("maker", MAKERS)
def test_bad_input_is_named(maker):
    with pytest.raises(ValueError, match="part is one of train, dev, test, not 'tests'"):
        maker("tests", 5)
    with pytest.raises(ValueError, match="at least one"):
        maker("dev", 0)
    with pytest.raises(ValueError, match="two answers"):
        next_sentence_choices("dev", 5, n_answers=1)
