"""Heads on BERT: equal to transformers' classes, blind to padding, and able to learn."""

import copy
import math
import pickle

import pytest
import torch
from torch.testing import assert_close
from transformers import BertConfig as TheirConfig
from transformers import BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification

from plm.bert import Bert, BertConfig, BertForPretraining
from plm.heads import Example, Head, SpanHead, TagHead, TextHead, collate, copy_from_transformers
from plm.hub import bert_config, bert_state

V = 40
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24}
KINDS = ["classes", "rating", "span", "tags"]


def examples(kind):
    """A pair, and a shorter single text beside it."""
    wanted = {
        "classes": (2, 0),
        "rating": (0.7, -0.2),
        "span": ((3, 4), (0, 0)),
        "tags": ([-100, 1, -100, 0, 2, -100], [-100, 2, 1, -100]),
    }[kind]
    first = Example([2, 10, 11, 3, 12, 3], [0, 0, 0, 0, 1, 1], wanted[0])
    return [first, Example([2, 20, 21, 3], [0] * 4, wanted[1])]


def build(kind, bert, dropout=0.0):
    """Our head."""
    if kind in ("classes", "rating"):
        return TextHead(bert, 3 if kind == "classes" else 1, dropout)
    return SpanHead(bert, dropout) if kind == "span" else TagHead(bert, 3, dropout)


def both(kind):
    """Transformers' model and ours with its weights."""
    torch.manual_seed(0)
    config = TheirConfig(vocab_size=V, max_position_embeddings=12, attn_implementation="eager", **SIZES)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.num_labels = 1 if kind == "rating" else 3
    maker = {
        "classes": BertForSequenceClassification,
        "rating": BertForSequenceClassification,
        "span": BertForQuestionAnswering,
        "tags": BertForTokenClassification,
    }
    if kind == "span":
        config.num_labels = 2
    theirs = maker[kind](config)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # else biases are 0 and norms 1
    ours = build(kind, Bert(bert_config(config.to_dict())))
    copy_from_transformers(ours, theirs.state_dict())
    return theirs, ours


@pytest.mark.parametrize("kind", KINDS)
def test_scores_loss_and_gradients_equal_transformers(kind):
    theirs, ours = both(kind)
    batch = collate(examples(kind))
    targets = ours.targets(batch)
    labels = (
        {"start_positions": targets[:, 0], "end_positions": targets[:, 1]} if kind == "span" else {"labels": targets}
    )
    if kind == "tags":
        targets = labels["labels"]
    found = theirs(batch.ids, token_type_ids=batch.segments, attention_mask=batch.mask.long(), **labels)
    mine = ours(batch)
    if kind == "span":
        for a, b in ((mine.start, found.start_logits), (mine.end, found.end_logits)):
            assert_close(a[batch.mask], b[batch.mask])
    elif kind == "tags":
        assert_close(mine[batch.mask], found.logits[batch.mask])
    else:
        assert_close(mine, found.logits)
    loss = ours.forward_loss(batch)
    assert_close(loss, found.loss)
    loss.backward()
    found.loss.backward()
    gradients = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    name = "qa_outputs" if kind == "span" else "classifier"
    head = {n.removeprefix(f"{name}."): g for n, g in gradients.items() if n.startswith(name)}
    assert_close(ours.output.weight.grad, head["weight"])
    assert_close(ours.output.bias.grad, head["bias"])
    inner, _ = bert_state({n: g for n, g in gradients.items() if not n.startswith(name)})
    for parameter_name, parameter in ours.bert.named_parameters():
        if parameter.grad is not None:
            if (
                parameter_name == "embedding.words.weight"
            ):  # theirs keeps the vector of padding at rest; nobody reads it
                parameter.grad[0] = 0
            assert_close(parameter.grad, inner[parameter_name], msg=parameter_name, atol=1e-6, rtol=1e-4)
    assert len(inner) == sum(p.grad is not None for p in ours.bert.parameters())


def tiny(kind, top=0.0, **changes):
    torch.manual_seed(0)
    sizes = {"vocab_size": V, "n_positions": 12, "d_model": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
    return build(kind, Bert(BertConfig(**sizes | changes)), top)


@pytest.mark.parametrize("kind", [*KINDS, "mean"])
def test_k07_padding_changes_no_score(kind):
    model = tiny("classes" if kind == "mean" else kind).eval()
    if kind == "mean":
        model.pool = "mean"
    short = examples("classes" if kind == "mean" else kind)[1]
    alone = model(collate([short]))
    padded = model(collate(examples("classes" if kind == "mean" else kind)))
    if kind == "span":
        alone, padded = torch.stack(alone, -1), torch.stack(padded, -1)
    assert_close(alone[0], padded[1, :4] if padded.ndim == 3 else padded[1])


@pytest.mark.parametrize("kind", KINDS)
def test_one_batch_is_learnt_by_heart(kind):
    model, batch = tiny(kind), collate(examples(kind))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        model.forward_loss(batch).backward()
        optimizer.step()
    assert model.forward_loss(batch).item() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_a24_copies_precision_and_dropout(kind):
    model, batch = tiny(kind, 0.5, dropout=0.5), collate(examples(kind))
    flat = lambda m: torch.cat([*m(batch)], -1) if kind == "span" else m(batch)  # noqa: E731
    torch.manual_seed(0)
    assert not torch.equal(flat(model), flat(model))
    model.eval()
    assert torch.equal(flat(model), flat(model))
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(flat(twin), flat(model))
    double = copy.deepcopy(model).double()
    assert flat(double).dtype == torch.float64
    assert math.isfinite(double.forward_loss(batch).item())


def test_a25_losses_take_logits():
    """Perfect scores cost nothing; a softmax before the loss would leave a floor."""
    perfect = 20 * torch.eye(3)
    assert tiny("classes").loss(perfect, torch.arange(3)) < 1e-6
    assert tiny("tags").loss(perfect[None], torch.arange(3)[None]) < 1e-6


def test_a_batch_without_any_label_costs_nothing_and_gives_no_nan():
    model = tiny("tags")
    loss = model.forward_loss(collate([Example([2, 5, 3], [0] * 3, [-100] * 3)]))
    loss.backward()
    assert loss.item() == 0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="of a pretrained one take"):
        TextHead(BertForPretraining(BertConfig(vocab_size=9, d_model=4, n_heads=1, n_layers=1)), 2)
    bert = tiny("span").bert
    with pytest.raises(ValueError, match="cls or mean"):
        TextHead(bert, 2, pool="max")
    with pytest.raises(ValueError, match="not 0"):
        TextHead(bert, 0)
    with pytest.raises(ValueError, match="at least two labels"):
        TagHead(bert, 1)
    with pytest.raises(ValueError, match="inside the input"):
        tiny("span").forward_loss(collate([Example([2, 5, 3], [0] * 3, (1, 3))]))
    with pytest.raises(ValueError, match="2 labels for 3 tokens"):
        tiny("tags").forward_loss(collate([Example([2, 5, 3], [0] * 3, [0, 1])]))
    with pytest.raises(ValueError, match="3 ids but 2 segments"):
        collate([Example([2, 5, 3], [0] * 2, 0)])
    with pytest.raises(ValueError, match="no 'qa_outputs'"):
        copy_from_transformers(tiny("span"), both("tags")[0].state_dict())
    with pytest.raises(NotImplementedError):
        Head(bert, 2, 0.0).targets(collate(examples("span")))
