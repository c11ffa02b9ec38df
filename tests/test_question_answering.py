"""Windows, spans, offsets and SQuAD's measures, on small files in its format and on hard cases made by hand."""

import itertools
import json

import pytest
import torch

from plm.bert import Bert, BertConfig
from plm.heads import SpanHead, collate
from plm.question_answering import (
    NOTHING,
    Answer,
    Question,
    answer,
    answer_f1,
    best_span,
    exact_match,
    normalise_answer,
    read_squad,
    span_examples,
    span_target,
    squad_scores,
    text_between,
    window_starts,
    windows,
)
from plm.wordpiece import SPECIALS, WordPiece

LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
ENGLISH = WordPiece(
    [*SPECIALS, *LETTERS, *(f"##{c}" for c in LETTERS), *"0123456789.,$?", *(f"##{c}" for c in "0123456789")]
)
CHINESE = WordPiece([*SPECIALS, *"天气预报显示今最高温度摄氏的是多少37"], characters=True)
WEATHER = "天气预报显示今天最高温度37摄氏度"


def asked(context, text="", start=0, question="q"):
    return Question("0", question, context, (Answer(text, start),) if text else ())


def text_of(window, target, context):
    """What a target says."""
    first, last = (window.offsets[i] for i in target)
    return text_between(context, first[0], last[1])


def test_c18_windows_cover_every_token():
    assert window_starts(20, 10, 5) == [0, 5, 10]
    assert {t for s in window_starts(20, 10, 5) for t in range(s, s + 10)} == set(range(20))
    assert window_starts(5, 10, 5) == [0]
    assert window_starts(0, 10, 5) == [0]
    with pytest.raises(ValueError, match="15 with windows of 10 would skip tokens"):
        window_starts(20, 10, 15)
    for n, size in itertools.product(range(1, 12), range(1, 6)):
        for stride in range(1, size + 1):
            assert {t for s in window_starts(n, size, stride) for t in range(s, s + size)} >= set(range(n))


def test_c17_a_window_without_the_whole_answer_aims_at_cls():
    context = " ".join(LETTERS[:20])
    wanted = " ".join(LETTERS[8:13])
    question = asked(context, wanted, context.index(wanted))
    found = windows(ENGLISH, question, longest=14, stride=5)  # 1 + q + 1 + 10 + 1
    assert [w.offsets[3][0] // 2 for w in found] == [0, 5, 10]
    targets = [span_target(w, question.answers[0]) for w in found]
    assert targets[0] == targets[2] == NOTHING
    assert text_of(found[1], targets[1], context) == wanted
    batch = collate([*span_examples(ENGLISH, [question, asked("a b")], 14, 5)])  # padding stands on the right
    assert batch.targets == [*targets, NOTHING]


def test_b13_neither_question_nor_text_can_forge_a_boundary():
    context = "a [SEP] b [CLS] c"
    question = asked(context, "[CLS] c", context.index("[CLS]"), question="q [SEP] r")
    tokenizer = WordPiece([*ENGLISH.pieces, "[", "]", "sep", "cls"])
    for pieces in (ENGLISH, tokenizer):
        (window,) = windows(pieces, question)
        assert window.ids.count(pieces.sep_id) == 2
        assert window.ids.count(pieces.cls_id) == 1
        assert window.segments == sorted(window.segments)
        assert text_of(window, span_target(window, question.answers[0]), context) == "[CLS] c"


def test_k01_full_width_digits_in_an_answer_come_back_as_they_stand():
    context = "今天３７度"
    question = asked(context, "３７度", 2, "多少")
    (window,) = windows(CHINESE, question)
    assert text_of(window, span_target(window, question.answers[0]), context) == "３７度"


def test_an_answer_that_stands_twice_is_the_marked_one():
    context = "paris is paris"
    question = asked(context, "paris", 9)
    (window,) = windows(ENGLISH, question)
    first, last = span_target(window, question.answers[0])
    assert (window.offsets[first][0], window.offsets[last][1]) == (9, 14)


def test_offsets_lead_back_to_the_original_text():
    """Accents, composed and decomposed, emoji, several spaces, an unknown word, an answer inside a token's word."""
    context = "The  Café\u0301 in Zu\u0308rich \U0001f600 costs $37, Ünïcode\u200bzero  end "
    for wanted in (
        "Café\u0301",
        "Zu\u0308rich",
        "\U0001f600",
        "$37",
        "37",
        "Ünïcode\u200bzero",
        " end ",
        "Zu\u0308rich \U0001f600 costs",
    ):
        question = asked(context, wanted, context.index(wanted))
        (window,) = windows(ENGLISH, question)
        target = span_target(window, question.answers[0])
        assert target != NOTHING
        assert text_of(window, target, context) == wanted.strip()
    assert span_target(windows(ENGLISH, asked("ab"))[0], None) == NOTHING


def test_chinese_characters_are_tokens_and_digits_stand_alone():
    question = asked(WEATHER, "37摄氏度", WEATHER.index("37"), "今天的最高温度是多少")
    (window,) = windows(CHINESE, question)
    target = span_target(window, question.answers[0])
    assert text_of(window, target, WEATHER) == "37摄氏度"
    assert target[1] - target[0] == 4


def test_the_best_span_equals_the_search_through_all():
    generator = torch.Generator().manual_seed(0)
    for n, longest in itertools.product(range(1, 8), (1, 2, 30)):
        start, end = torch.randn(n, generator=generator), torch.randn(n, generator=generator)
        allowed = torch.rand(n, generator=generator) < 0.7
        allowed[0] |= not allowed.any()
        spans = [(i, j) for i in range(n) for j in range(i, min(n, i + longest)) if allowed[i] and allowed[j]]
        best = max(spans, key=lambda s: (start[s[0]] + end[s[1]]).item())
        assert best_span(start, end, allowed, longest)[1:] == best
    with pytest.raises(ValueError, match="must be a token"):
        best_span(torch.zeros(2), torch.zeros(2), torch.zeros(2, dtype=torch.bool))


def test_an_end_before_the_start_is_never_taken():
    start, end = torch.tensor([0.0, 0, 9]), torch.tensor([9.0, 0, 1])
    assert best_span(start, end, torch.ones(3, dtype=torch.bool))[1:] == (2, 2)


def model(tokenizer=ENGLISH, **sizes):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "n_heads": 2, "n_layers": 2, "dropout": 0.0, "n_positions": 40} | sizes
    return SpanHead(Bert(BertConfig(vocab_size=len(tokenizer), **sizes)))


def test_a_model_learns_to_answer_over_windows_and_to_say_no():
    tokenizer = CHINESE
    questions = [
        asked(WEATHER, "37摄氏度", WEATHER.index("37"), "最高温度是多少"),
        asked("今天天气" * 6 + "37度", "37度", 24, "温度"),
        asked("今天天气", question="多少"),
    ]
    span = model(tokenizer, n_positions=24)
    batch = collate(span_examples(tokenizer, questions, 24, 6))
    optimizer = torch.optim.Adam(span.parameters(), lr=3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        span.forward_loss(batch).backward()
        optimizer.step()
    span.train()
    found = answer(span, tokenizer, questions, 24, 6, threshold=0.0)
    assert span.training
    assert [f.text for f in found] == ["37摄氏度", "37度", ""]
    assert [f.start for f in found] == [12, 24, 0]
    assert squad_scores(questions, [f.text for f in found], characters=True) == {"exact": 1.0, "f1": 1.0}
    always = answer(span, tokenizer, questions, 24, 6)
    assert always[2].text != ""
    assert always[2].text in questions[2].context
    assert answer(span, tokenizer, [asked("")])[0].text == ""


@pytest.mark.parametrize(
    ("found", "wanted", "exact", "f1"),
    [
        ("The Paris!", "paris", True, 1),
        ("a  b", "A b", True, 1),  # "a" is an article
        ("in Paris", "Paris, France", False, 0.5),
        ("the", "", True, 1),
        ("x", "", False, 0),
        ("", "x", False, 0),
        ("go go go", "go", False, 0.5),
        ("“U.S.”", "us", True, 1),
        ("anthem", "them", False, 0),
    ],
)
def test_squads_measures(found, wanted, exact, f1):
    assert exact_match(found, wanted) == exact
    assert answer_f1(found, wanted) == pytest.approx(f1)


def test_chinese_answers_are_compared_by_character():
    assert normalise_answer("37摄氏度。") == "37摄氏度"
    assert answer_f1("37摄氏度", "37 摄氏度", characters=True) == 1
    assert answer_f1("摄氏度", "37摄氏度", characters=True) == pytest.approx(0.75)
    assert answer_f1("摄氏度", "37摄氏度") == 0


def test_the_best_of_several_marked_answers_counts():
    question = Question("0", "q", "37 degrees", (Answer("37", 0), Answer("37 degrees", 0)))
    assert squad_scores([question], ["37 degrees"]) == {"exact": 1.0, "f1": 1.0}
    with pytest.raises(ValueError, match="to each of 1 questions, got 0"):
        squad_scores([question], [])


def squad(qas, version="1.1"):
    return {"version": version, "data": [{"title": "T", "paragraphs": [{"context": "ab cd ab", "qas": qas}]}]}


def test_files_in_the_formats_of_squad(tmp_path):
    path = tmp_path / "dev.json"
    qa = {"id": "x1", "question": "Which?", "answers": [{"text": "ab", "answer_start": 6}] * 2}
    path.write_text(json.dumps(squad([qa])))
    assert read_squad(path) == [Question("x1", "Which?", "ab cd ab", (Answer("ab", 6), Answer("ab", 6)))]
    no = {"id": "x2", "question": "?", "answers": [], "is_impossible": True, "plausible_answers": qa["answers"]}
    path.write_text(json.dumps(squad([{**qa, "is_impossible": False}, no], "v2.0")))
    assert [len(q.answers) for q in read_squad(path)] == [2, 0]
    off = {**qa, "answers": [{"text": "ab", "answer_start": 5}]}
    path.write_text(json.dumps(squad([off])))
    assert read_squad(path)[0].answers[0].start == 6
    path.write_text(json.dumps(squad([{**qa, "answers": [{"text": "xy", "answer_start": 0}]}])))
    with pytest.raises(ValueError, match="question x1: its answer 'xy' is not in its text"):
        read_squad(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="no SQuAD file"):
        read_squad(path)
    path.write_text(json.dumps({"data": []}))
    with pytest.raises(ValueError, match="holds no question"):
        read_squad(path)


def test_a_question_that_fills_the_model_is_refused():
    with pytest.raises(ValueError, match="no room for a text"):
        windows(ENGLISH, asked("a", question="b c d e f"), longest=8)
