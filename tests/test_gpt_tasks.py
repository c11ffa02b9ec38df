"""The four input forms, the state they end in, and fine-tuning with the auxiliary loss."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from plm import gpt_tasks
from plm.bpe import BPE, DELIMITER, EXTRACT
from plm.gpt import GPT, GPTConfig
from plm.gpt_tasks import Example, GPTForTask, batches, collate, fine_tune, predict
from plm.run_settings import decay_groups

TOKENIZER = BPE.train(["a b c d e f g "] * 2, 20)  # every letter with its space is a token
S, D, E = TOKENIZER.start_id, TOKENIZER.ids[DELIMITER], TOKENIZER.ids[EXTRACT]


def classification(tokenizer, text, label, longest):
    return gpt_tasks.classification(tokenizer, list(text), label, longest)


def entailment(tokenizer, premise, hypothesis, label, longest):
    return gpt_tasks.entailment(tokenizer, list(premise), list(hypothesis), label, longest)


def similarity(tokenizer, a, b, label, longest):
    return gpt_tasks.similarity(tokenizer, list(a), list(b), label, longest)


def multiple_choice(tokenizer, context, answers, label, longest):
    return gpt_tasks.multiple_choice(tokenizer, list(context), [list(a) for a in answers], label, longest)


def ids(letters):
    return [TOKENIZER.ids[letter + " "] for letter in letters]


def model(n_classes=2, **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(TOKENIZER), "n_positions": 16, "d_model": 12, "n_heads": 3, "n_layers": 2}
    return GPTForTask(GPT(GPTConfig(**(sizes | {"init_std": 0.3} | changes))), n_classes)


# --- the four forms, by hand --------------------------------------------------------------------------------------


def test_the_four_forms_of_figure_1():
    assert classification(TOKENIZER, "abc", 1, 16) == Example([[S, *ids("abc"), E]], 1)
    assert entailment(TOKENIZER, "abc", "de", 2, 16).sequences == [[S, *ids("abc"), D, *ids("de"), E]]
    assert similarity(TOKENIZER, "abc", "de", 0, 16).sequences == [
        [S, *ids("abc"), D, *ids("de"), E],
        [S, *ids("de"), D, *ids("abc"), E],
    ]
    choice = multiple_choice(TOKENIZER, "ab", ["c", "d", "ef"], 2, 16)
    assert choice.sequences == [[S, *ids("ab"), D, *ids(x), E] for x in ("c", "d", "ef")]
    assert choice.label == 2


def test_what_is_too_long_loses_the_start_of_its_longest_part():
    assert classification(TOKENIZER, "abcdefg", 0, 6).sequences == [[S, *ids("defg"), E]]
    assert entailment(TOKENIZER, "abcdefg", "ab", 0, 8).sequences == [[S, *ids("efg"), D, *ids("ab"), E]]
    assert entailment(TOKENIZER, "abcde", "abcdef", 0, 8).sequences == [[S, *ids("de"), D, *ids("def"), E]]
    for n in range(6, 17):
        pair = entailment(TOKENIZER, "abcdefg", "gfedcba", 0, n).sequences[0]
        assert len(pair) == min(n, 17)
        assert {pair[0], pair[-1]} == {S, E}
        assert D in pair[2:-2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: classification(TOKENIZER, [], 0, 9), "without any word"),
        (lambda: entailment(TOKENIZER, "a", "", 0, 9), "without any word"),
        (lambda: entailment(TOKENIZER, "a", "b", 0, 4), "no room for 2 parts"),
        (lambda: multiple_choice(TOKENIZER, "a", ["b"], 0, 9), "at least two answers"),
        (lambda: multiple_choice(TOKENIZER, "a", ["b", "c"], 2, 9), "number of the right one"),
        (lambda: collate([]), "at least one example"),
        (lambda: collate([Example([[1]], 0), Example([[1], [2]], 0)]), "same number of sequences"),
        (lambda: collate([Example([], 0)]), "without any token"),
        (lambda: collate([Example([[]], 0)]), "without any token"),
        (lambda: collate([Example([[1]], -100)]), "a label is the number of a class, 0 or more, not -100"),
        (lambda: collate([Example([[1]], "good")]), "a label is the number of a class"),
        (lambda: model().losses(collate([Example([[1]], 2)])), "there are 2 classes or answers, and a label is 2"),
        (lambda: model(1), "at least two classes"),
        (lambda: model(2.0), "at least two classes"),
        (lambda: list(batches([Example([[1]], 0)], 0)), "batch_size is a number of examples"),
        (lambda: list(batches([Example([[1]], 0)], -1)), "batch_size is a number of examples"),
        (lambda: predict(model(), [Example([[1]], 0)], 0), "batch_size is a number of examples"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 1e-3, batch_size=0), "batch_size is a number"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1.5, 1e-3), "one pass; got 1 and 1.5"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, float("inf")), "lr must be above 0"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 1e-3, lm_weight=float("nan")), "lm_weight at least 0"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 1e-3, warmup=2), "warmup in 0 … 1"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 1e-3, clip=0), "clip above 0"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 1e-3, weight_decay=-1), "weight_decay at least 0"),
        (lambda: fine_tune(model(), [], 1, 1e-3), "at least one example"),
        (lambda: fine_tune(model(), [Example([[1]], 0)], 1, 0.0), "lr must be above 0"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_raw_text_is_refused():
    with pytest.raises(TypeError, match=r"a plm\.gpt\.GPT, not NoneType"):
        GPTForTask(None, 2)
    with pytest.raises(TypeError, match="list of words"):
        gpt_tasks.classification(TOKENIZER, "a film", 0, 9)


# --- the model ----------------------------------------------------------------------------------------------------


def test_the_logits_come_from_the_state_at_the_last_token():
    net = model(3).eval().double()
    examples = [classification(TOKENIZER, "abcdef", 0, 16), classification(TOKENIZER, "b", 1, 16)]
    logits = net(collate(examples))
    for row, example in zip(logits, examples):
        state = net.gpt.hidden(torch.tensor(example.sequences))[0, -1]
        assert_close(row, net.head(state))


def test_similarity_does_not_depend_on_the_order():
    net = model(2).eval().double()
    there = net(collate([similarity(TOKENIZER, "abc", "de", 0, 16)]))
    back = net(collate([similarity(TOKENIZER, "de", "abc", 0, 16)]))
    assert_close(there, back)
    one = net(collate([entailment(TOKENIZER, "abc", "de", 0, 16)]))
    other = net(collate([entailment(TOKENIZER, "de", "abc", 0, 16)]))
    assert not torch.allclose(one, other)
    # h is the sum: the two logits without bias add up
    assert_close(there - net.head.bias, one + other - 2 * net.head.bias)


def test_answers_are_scored_one_by_one():
    net = model(None).eval().double()
    scores = net(collate([multiple_choice(TOKENIZER, "ab", ["c", "d", "ef"], 0, 16)]))
    turned = net(collate([multiple_choice(TOKENIZER, "ab", ["ef", "c", "d"], 0, 16)]))
    assert scores.shape == (1, 3)
    assert_close(scores[:, [2, 0, 1]], turned)


def test_padding_and_company_change_nothing():
    net = model(2).eval().double()
    short, long = classification(TOKENIZER, "ab", 0, 16), classification(TOKENIZER, "abcdefg", 1, 16)
    assert_close(net(collate([short, long]))[:1], net(collate([short])))
    task, language = net.losses(collate([short, long]))
    by_hand = [net.gpt.loss({"ids": torch.tensor(e.sequences)}) for e in (short, long)]
    assert_close(language, sum(t for t, _ in by_hand) / sum(n for _, n in by_hand))
    assert_close(task, F.cross_entropy(net(collate([short, long])), torch.tensor([0, 1])))
    assert [part.item() for part in net.losses(collate([short, long]), language=False)] == [task.item(), 0]


def test_gradients_of_l3_are_those_of_its_two_parts():
    net = model(2).eval().double()
    batch = collate([classification(TOKENIZER, "abc", 0, 16), classification(TOKENIZER, "d", 1, 16)])
    task, language = net.losses(batch)
    parameters = list(net.gpt.parameters())
    both = torch.autograd.grad(task + 0.5 * language, parameters, retain_graph=True)
    one = torch.autograd.grad(task, parameters, retain_graph=True)
    other = torch.autograd.grad(language, parameters)
    for b, o, x in zip(both, one, other):
        assert_close(b, o + 0.5 * x)


def test_a13_the_first_class_counts_like_any_other():
    net = model(2).eval()
    torch.nn.init.zeros_(net.head.weight)
    for labels in ([0, 0, 0, 0], [0, 1, 0, 1]):
        batch = collate([classification(TOKENIZER, "abc", label, 16) for label in labels])
        task, _ = net.losses(batch)
        assert abs(task.item() - 0.6931) < 1e-4
        (grad,) = torch.autograd.grad(task, net.head.bias)
        assert_close(grad, torch.tensor([0.5 - labels.count(0) / 4, 0.5 - labels.count(1) / 4]))


def test_a25_the_loss_of_a_perfect_head_is_nothing():
    net = model(3).eval()
    torch.nn.init.zeros_(net.head.weight)
    with torch.no_grad():
        net.head.bias.copy_(torch.tensor([0.0, 20.0, 0.0]))
    assert net.losses(collate([classification(TOKENIZER, "ab", 1, 16)]))[0].item() < 1e-6


def test_c07_sequences_of_one_token_have_no_next_one_and_no_nan():
    task, language = model(2).losses(collate([Example([[S]], 0)]))
    assert language.item() == 0
    (task + language).backward()


@pytest.mark.parametrize("warmup", [0.0, 0.1, 1.0])
def test_d03_the_first_update_does_something(warmup):
    net = model(2)
    before = copy.deepcopy(net.state_dict())
    fine_tune(net, [classification(TOKENIZER, "ab", 1, 16)], 1, 1e-3, warmup=warmup)
    assert not torch.equal(before["head.weight"], net.head.weight)


def test_d08_norms_biases_and_tables_do_not_decay_and_nothing_is_forgotten():
    net = model(2)
    groups = decay_groups(net, 0.01)
    every = [id(p) for group in groups for p in group["params"]]
    assert sorted(every) == sorted(id(p) for p in net.parameters())
    decaying = {id(p) for p in groups[0]["params"]}
    named = {name for name, p in net.named_parameters() if id(p) in decaying}
    assert {name for name in named if not name.endswith(".weight") or "norm" in name} == set()
    assert "head.weight" in named
    assert "gpt.tokens.weight" not in named


def test_dropout_is_set_everywhere_and_off_in_evaluation():
    net = model(2, dropout=0.0)
    assert {m.p for m in net.modules() if isinstance(m, torch.nn.Dropout)} == {0.1}
    batch = collate([classification(TOKENIZER, "abc", 0, 16)])
    assert torch.equal(net.eval()(batch), net(batch))
    assert not torch.equal(net.train()(batch), net(batch))


@pytest.mark.parametrize("lm_weight", [0.0, 0.5])
@pytest.mark.parametrize("kind", ["classes", "choice"])
def test_a_handful_of_examples_is_learnt(kind, lm_weight):
    if kind == "classes":
        net = model(2)
        examples = [entailment(TOKENIZER, a, b, int(a == b), 16) for a in "abcd" for b in "abcd"]
    else:
        net = model(None)
        examples = [multiple_choice(TOKENIZER, x, ["f", "g"], i % 2, 16) for i, x in enumerate("abcde")]
    net = GPTForTask(net.gpt, net.n_classes, dropout=0.0)
    seen = []
    losses = fine_tune(net, examples, 60, 1e-2, lm_weight=lm_weight, batch_size=8, after_pass=seen.append)
    assert losses[-1] < 0.1
    assert len(losses) == 60 * -(-len(examples) // 8)
    assert seen == list(range(60))
    assert predict(net.train(), examples).tolist() == [e.label for e in examples]
    assert net.training


def test_the_same_seed_gives_the_same_model():
    start, examples = model(2), [classification(TOKENIZER, x, i % 2, 16) for i, x in enumerate("abcdef")]
    first, second, third = (copy.deepcopy(start) for _ in range(3))
    for net, seed in ((first, 0), (second, 0), (third, 1)):
        fine_tune(net, examples, 2, 1e-2, batch_size=2, seed=seed)
    assert torch.equal(first.head.weight, second.head.weight)
    assert not torch.equal(first.head.weight, third.head.weight)


def test_batches_hold_every_example_once_and_like_lengths_together():
    torch.manual_seed(0)
    examples = [Example([[1] * (1 + i % 20)], i) for i in range(300)]
    found = list(batches(examples, 8))
    assert sorted(int(label) for b in found for label in b.labels) == list(range(300))
    padding = sum(b.ids.numel() - int(b.lengths.sum()) for b in found) / sum(b.ids.numel() for b in found)
    assert padding < 0.2
