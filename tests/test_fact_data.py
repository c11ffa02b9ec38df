"""Questions, statements and news pairs: answers stand where they are said to, labels are true, parts and wordings apart."""

import hashlib
import json

import pytest

from plm.fact_data import (
    LANGUAGES,
    PARTS,
    QUESTIONS,
    STATEMENTS,
    countries,
    fact_questions,
    facts,
    news_pairs,
    statement_pairs,
)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("unseen", [False, True])
def test_answers_stand_in_their_text(language, unseen):
    for question in fact_questions("dev", 60, language, unseen):
        (answer,) = question.answers
        assert question.context[answer.start :].startswith(answer.text)
        name = max((x for x in countries(language, "dev") if x in question.text), key=len)
        kinds = [k for k, said in facts(language)[name].items() if said == answer.text]
        asked = {k for k in kinds for template in QUESTIONS[language][k] if template.format(x=name) == question.text}
        assert asked
        sentences = {t.format(x=name, y=answer.text) for k in asked for t in STATEMENTS[language][k]}
        assert any(s in question.context and s.find(answer.text) >= 0 for s in sentences)


@pytest.mark.parametrize("language", LANGUAGES)
def test_countries_and_wordings_are_held_out(language):
    names = [set(countries(language, part)) for part in PARTS]
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & names[2]
    assert min(map(len, names)) >= 8
    held_out = [wordings[-1].split("{x}")[-1].split("{y}")[0] for wordings in STATEMENTS[language].values()]
    held_out = [text for text in held_out if len(text) > 2]
    seen = " ".join(q.context for q in fact_questions("train", 200, language))
    seen += " ".join(p.a + p.b for p in statement_pairs("train", 200, language))
    assert held_out
    assert not any(text in seen for text in held_out)
    unseen = " ".join(q.context for q in fact_questions("train", 50, language, unseen=True))
    assert all(text in unseen for text in held_out)


def test_some_questions_have_no_answer():
    found = fact_questions("train", 200, impossible=0.3)
    none = [q for q in found if not q.answers]
    assert 30 < len(none) < 90
    assert fact_questions("train", 5) == fact_questions("train", 5)
    assert fact_questions("train", 5) != fact_questions("train", 5, seed=1)


@pytest.mark.parametrize("unseen", [False, True])
def test_statements_are_in_balance_and_never_the_same_twice(unseen):
    pairs = statement_pairs("dev", 150, unseen=unseen)
    labels = [pair.label for pair in pairs]
    assert [labels.count(k) for k in range(3)] == [50] * 3
    assert all(pair.a != pair.b for pair in pairs)
    entailed = [pair for pair in pairs if pair.label == 0]
    known = facts("en")
    for pair in entailed:
        name = max((x for x in known if f" {x}" in f" {pair.a}"), key=len)
        assert name in pair.b
        assert any(said in pair.a and said in pair.b for said in known[name].values())


@pytest.mark.parametrize(("language", "digest"), [("en", "8a52fce1eea81522"), ("zh", "36f791cfdad714da")])
def test_the_pairs_are_the_ones_that_results_were_measured_on(language, digest):
    text = json.dumps(statement_pairs("train", 500, language), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_k11_no_news_text_is_in_two_parts_and_no_pair_twice():
    texts = [{t for pair in news_pairs(part) for t in pair[:2]} for part in PARTS]
    assert [len(t) for t in texts] == [30, 8, 12]
    assert not texts[0] & texts[1]
    assert not (texts[0] | texts[1]) & texts[2]
    pairs = [frozenset(pair[:2]) for part in PARTS for pair in news_pairs(part)]
    assert len(set(pairs)) == len(pairs) == 435 + 28 + 66
    assert all(0 <= pair.label <= 1 for part in PARTS for pair in news_pairs(part))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="part is one of"):
        countries("en", "tests")
    with pytest.raises(ValueError, match="part is one of"):
        news_pairs("tests")
    with pytest.raises(ValueError, match="language is one of"):
        facts("fr")
    with pytest.raises(ValueError, match="size in 2"):
        fact_questions("dev", 5, size=1)
    with pytest.raises(ValueError, match="asked for 0 pairs"):
        statement_pairs("dev", 0)
