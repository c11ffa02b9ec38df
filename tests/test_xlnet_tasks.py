"""plm.xlnet_tasks: rows, orders and gaps are what they should be, and both tasks learn, stop and go on."""

from functools import partial

import numpy as np
import pytest
import torch
from tiny_task import to_the_end
from torch.testing import assert_close

from plm.bert import BertConfig, BertForPretraining
from plm.masking import Documents, MaskingConfig
from plm.model_files import save_bert
from plm.pretrain import Settings, pretrain
from plm.run_files import load_state
from plm.wordpiece import SPECIALS, WordPiece
from plm.xlnet import XLNet, XLNetConfig
from plm.xlnet_files import load_xlnet, save_xlnet
from plm.xlnet_tasks import GapTask, XLNetTask, draw_order, pack

SETTINGS = Settings(steps=10, lr=0.01, warmup=2, log_every=1, evaluate_every=5, save_minutes=0.0)
WORDS = WordPiece({p: i for i, p in enumerate([*SPECIALS, *(chr(97 + i) for i in range(15))])})


def text(n=12, seed=0):
    """Documents of 40 tokens that count up, in sentences of 8."""
    starts = np.random.default_rng(seed).integers(15, size=n)
    documents = [((start + np.arange(40)) % 15 + 5).reshape(5, 8).tolist() for start in starts]
    return Documents.build(documents)


def rows(seed=0):
    return pack(text(seed=seed), 10, WORDS.cls_id, WORDS.sep_id)


def xlnet_task(seed=0, **options):
    torch.manual_seed(0)
    model = XLNet(XLNetConfig(vocab_size=20, d_model=16, n_heads=2, n_layers=1, dropout=0.0, segments=False))
    save = partial(save_xlnet, model=model, tokenizer=WORDS, card={})
    options = {"special_ids": WORDS.special_ids, "share": 0.3} | options
    return XLNetTask(model, rows(), rows(1), 4, save, seed, **options)


def gap_task(seed=0, distances=False):
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "d_model": 16, "n_heads": 2, "n_layers": 1, "dropout": 0.0}
    if distances:
        model, save = XLNet(XLNetConfig(**sizes, segments=False)), save_xlnet
    else:
        model, save = BertForPretraining(BertConfig(**sizes, n_positions=10)), save_bert
    save = partial(save, model=model, tokenizer=WORDS, card={})
    return GapTask(model, rows(), rows(1), 4, save, seed, vocabulary=WORDS, masking=MaskingConfig(0.3))


TASKS = {"orders": xlnet_task, "apart": partial(xlnet_task, joint=False), "gaps": gap_task}
TASKS["forward"] = partial(xlnet_task, forward=True)
TASKS["gaps by distance"] = partial(gap_task, distances=True)


def test_rows_hold_the_text_in_order_and_cross_no_document():
    packed = rows()
    assert packed.shape == (12 * 5, 10)
    assert (packed[:, 0] == WORDS.cls_id).all()
    assert (packed[:, -1] == WORDS.sep_id).all()
    assert packed[:5, 1:-1].flatten().tolist() == text().ids[:40].tolist()
    steps = (packed[:, 2:-1] - packed[:, 1:-2]) % 15
    assert (steps == 1).all()


def test_the_end_of_a_document_that_fills_no_row_is_dropped():
    assert pack(text(), 13, WORDS.cls_id, WORDS.sep_id).shape == (12 * 3, 13)
    with pytest.raises(ValueError, match="smaller T"):
        pack(text(), 43, WORDS.cls_id, WORDS.sep_id)
    with pytest.raises(ValueError, match="no room"):
        pack(text(), 2, WORDS.cls_id, WORDS.sep_id)


def test_special_tokens_are_never_guessed_and_every_place_is_as_often():
    ids = rows()[:1].repeat(4000, 1).numpy()
    drawn = draw_order(ids, 0.3, np.random.default_rng(0), WORDS.special_ids)
    order, targets = drawn["order"], drawn["targets"]
    assert (np.sort(order, 1) == np.arange(10)).all()
    assert targets.shape == (4000, 3)
    assert (targets == np.take_along_axis(ids, order[:, -3:], 1)).all()
    share = np.bincount(order[:, -3:].ravel(), minlength=10) / 4000
    assert share[[0, 9]].tolist() == [0, 0]
    assert_close(share[1:9], np.full(8, 3 / 8), atol=0.03, rtol=0)
    first = np.bincount(order[:, -3], minlength=10)[1:9] / 4000
    assert_close(first, np.full(8, 1 / 8), atol=0.02, rtol=0)


@pytest.mark.parametrize(("share", "message"), [(0.0, "share"), (1.5, "share"), (0.9, "ordinary tokens")])
def test_shares_that_cannot_be_drawn_are_refused(share, message):
    with pytest.raises(ValueError, match=message):
        draw_order(rows().numpy(), share, np.random.default_rng(0), WORDS.special_ids)


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_is_a_function_of_its_number(name):
    one, other = TASKS[name](), TASKS[name]()
    one.batch(3)
    for k in (5, 2):
        a, b = one.batch(k), other.batch(k)
        assert a.keys() == b.keys()
        for part in a:
            assert_close(a[part], b[part])
    assert not torch.equal(one.batch(2)["ids"], one.batch(3)["ids"])
    if name != "forward":
        assert not torch.equal(TASKS[name](seed=1).batch(2)["targets"], one.batch(2)["targets"])


@pytest.mark.parametrize("name", TASKS)
def test_counts_belong_to_the_losses(name):
    task = TASKS[name]()
    batch = task.batch(0)
    counts, losses = task.counts(batch), task.losses(task.model, batch)
    assert counts.keys() - {"tokens"} == losses.keys()
    assert counts["tokens"] == 40
    [loss] = losses.values()
    [n] = (counts[key] for key in losses)
    assert abs(loss.item() / n - np.log(20)) < 0.3  # before training: one of twenty
    loss.backward()
    assert all(p.grad is not None for p in task.model.parameters())  # or several processes could not train it


@pytest.mark.parametrize("name", TASKS)
def test_it_learns_to_count_and_goes_on_bit_for_bit(name, tmp_path):
    settings = SETTINGS
    whole, parts = TASKS[name](), TASKS[name]()
    to_the_end(whole, tmp_path / "whole", settings)
    scores = whole.evaluate(whole.model.eval())
    assert scores["loss"] < np.log(20) - 0.05
    assert 0 <= scores["accuracy"] <= 1
    for _ in range(10):
        if pretrain(parts, tmp_path / "parts", settings).step == 10:
            break
        parts = TASKS[name]()
    a, b = (load_state(tmp_path / part / "last.safetensors")[0] for part in ("whole", "parts"))
    for key in a:
        assert_close(a[key], b[key], rtol=0, atol=0)


def test_joint_guesses_are_better_only_if_they_may_see_one_another():
    """With everything but [CLS] and [SEP] guessed, a counting text cannot be guessed apart; jointly most of it can."""
    found = {}
    for joint in (True, False):
        task = xlnet_task(share=0.8, joint=joint)
        optimizer = torch.optim.Adam(task.model.parameters(), lr=0.01)
        for k in range(300):
            batch = task.batch(k)
            loss = task.losses(task.model, batch)["permuted"] / batch["targets"].numel()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found[joint] = task.evaluate(task.model)["loss"]
    assert found[True] < 1.5 < 2.3 < found[False]  # log 15 = 2.7 for each word by itself


def test_gaps_by_distance_are_guessed_from_the_hidden_row():
    """The loss is that of the scores at the gaps, read off the states of a row in which [MASK] stands."""
    task = gap_task(distances=True)
    batch = task.batch(0)
    hidden = batch["ids"].flatten()[batch["positions"]]
    assert (hidden == WORDS.mask_id).any()
    logits = task.model.score(task.model(batch["ids"]).content[-1]).flatten(0, 1)[batch["positions"]]
    loss = torch.nn.functional.cross_entropy(logits, batch["targets"], reduction="sum")
    assert_close(task.losses(task.model, batch)["mlm"], loss)


def test_settings_are_part_of_the_identity():
    assert xlnet_task().identity() != xlnet_task(joint=False).identity()
    assert xlnet_task().identity() != xlnet_task(share=0.4).identity()
    assert gap_task().identity()["masking"]["rate"] == 0.3


def test_the_saved_model_loads(tmp_path):
    task = xlnet_task()
    task.save(tmp_path / "x.safetensors")
    assert load_xlnet(tmp_path / "x.safetensors")[0].config == task.model.config
