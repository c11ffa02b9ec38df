"""plm.pretrain_tasks: batches are functions of their number, losses are the models' own, and each task learns and goes on."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tiny_task import to_the_end
from torch.testing import assert_close

from plm.bert import BertConfig, BertForPretraining
from plm.elmo import BiLM, BiLMConfig
from plm.gpt import GPT, GPTConfig
from plm.masking import Documents, MaskingConfig, PretrainingBatches
from plm.model_files import load_bert, save_bert
from plm.pretrain import Settings
from plm.pretrain_tasks import BertTask, ElmoTask, GPTTask, ShardedBertTask, Shuffled
from plm.run_files import load_state
from plm.run_log import read_log
from plm.run_settings import decay_groups
from plm.train import save_checkpoint
from plm.wordpiece import SPECIALS, WordPiece

SETTINGS = Settings(steps=10, lr=0.01, warmup=2, log_every=1, evaluate_every=5, save_minutes=0.0)


def rows(n, T, V=20, seed=0):
    """Counting text: each token is the one before it plus 1 or 2."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.integers(V - 3, size=(n, 1)) + rng.integers(1, 3, (n, T)).cumsum(1)) % (V - 3) + 3)


def gpt_task(batch_size=4, dropout=0.0):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=20, n_positions=8, d_model=16, n_heads=2, n_layers=1, dropout=dropout))
    save = partial(save_checkpoint, model=model, config={})
    return GPTTask(model, rows(30, 9), rows(10, 9, seed=1), batch_size, save, dev_characters=200)


def elmo_task(batch_size=4, sampled=0, dropout=0.0):
    torch.manual_seed(0)
    model = BiLM(BiLMConfig(20, 8, 16, n_layers=1, dropout=dropout))
    text, dev = rows(30, 12), rows(10, 12, seed=1)
    for part in (text, dev):
        part[:, 5], part[:, 6] = 2, 1  # a sentence ends and the next begins
    counts = torch.bincount(text.flatten(), minlength=20)
    save = partial(save_checkpoint, model=model, config={})
    return ElmoTask(model, text, dev, batch_size, save, word_counts=counts, sampled=sampled)


def bert_task(dropout=0.0, seed=0):
    torch.manual_seed(0)
    vocabulary = WordPiece({p: i for i, p in enumerate([*SPECIALS, *(chr(97 + i) for i in range(15))])})
    config = BertConfig(vocab_size=20, n_positions=24, d_model=16, n_heads=2, n_layers=1, dropout=dropout)
    model = BertForPretraining(config)
    text = Documents.build(rows(24, 40, 17).add(2).view(6, 16, 10).tolist())
    batches = PretrainingBatches(text, vocabulary, MaskingConfig(), tokens=48, lengths=(19, 24))
    dev = PretrainingBatches(text, vocabulary, MaskingConfig(), tokens=48, lengths=(24,), seed=9)
    save = partial(save_bert, model=model, tokenizer=vocabulary, card={"data": "counting"})
    return BertTask(model, batches, [dev.next() for _ in range(3)], save, seed)


TASKS = {"gpt": gpt_task, "elmo": elmo_task, "elmo sampled": partial(elmo_task, sampled=8), "bert": bert_task}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_learns_goes_on_bit_for_bit_and_accumulates(name, tmp_path):
    make = partial(TASKS[name], dropout=0.1)
    to_the_end(make(), tmp_path / "whole", SETTINGS)
    short = replace(SETTINGS, steps=10)
    broken = make()
    batch = broken.batch
    broken.batch = lambda k: batch(k) if k < 6 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        to_the_end(broken, tmp_path / "broken", short)
    to_the_end(make(), tmp_path / "broken", short)
    states = [load_state(tmp_path / folder / "last.safetensors") for folder in ("whole", "broken")]
    assert all(torch.equal(tensor, states[1][0][key]) for key, tensor in states[0][0].items())
    assert states[0][1]["identity"] == states[1][1]["identity"]
    scores = [row["loss"] for row in read_log(tmp_path / "whole" / "eval.csv")]
    assert scores[-1] < scores[0]


@pytest.mark.parametrize("name", TASKS)
def test_bfloat16_gives_nearly_the_same_curve(name, tmp_path):
    for precision in ("no", "bf16"):
        to_the_end(TASKS[name](), tmp_path / precision, replace(SETTINGS, steps=4, precision=precision))
    curves = [[row["loss"] for row in read_log(tmp_path / p / "train.csv")] for p in ("no", "bf16")]
    assert curves[0] != curves[1]
    assert curves[0] == pytest.approx(curves[1], rel=0.02)


@pytest.mark.parametrize("make", [gpt_task, elmo_task])
def test_d01_a_doubled_batch_is_two_batches(make, tmp_path):
    for size, accumulate in ((8, 1), (4, 2)):
        settings = replace(SETTINGS, steps=4, accumulate=accumulate)
        to_the_end(make(batch_size=size), tmp_path / str(size), settings)
    curves = [[row["loss"] for row in read_log(tmp_path / size / "train.csv")] for size in ("8", "4")]
    assert_close(torch.tensor(curves[0]), torch.tensor(curves[1]), rtol=2e-5, atol=0)


def test_batches_are_functions_of_their_number():
    for make in TASKS.values():
        task = make()
        first = [task.batch(k) for k in (0, 1, 7)]
        again = [task.batch(k) for k in (7, 0, 1)]
        assert_close(first, [again[1], again[2], again[0]], rtol=0, atol=0)
        assert not torch.equal(first[0]["ids"][:1, :8], first[1]["ids"][:1, :8])


def test_shards_take_turns_and_batches_stay_functions_of_their_number():
    task = bert_task()
    opened = []

    class Shards:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            opened.append(i)
            return Documents.build(rows(24, 40, 17, seed=i).add(2).view(6, 16, 10).tolist())

    def make(documents):
        vocabulary = task.batches.vocabulary
        return PretrainingBatches(documents, vocabulary, MaskingConfig(), tokens=48, lengths=(19, 24))

    sharded = ShardedBertTask(task.model, make, Shards(), task.dev, task.save)
    assert sharded.stretch == 960 // 48
    numbers = [0, 1, 25, 45, 61, 3]
    there = {k: sharded.batch(k) for k in numbers}
    back = {k: sharded.batch(k) for k in reversed(numbers)}
    assert_close(there, back, rtol=0, atol=0)
    opened.clear()
    for k in range(60):  # one pass: each shard is opened once, one of them is already
        sharded.batch(k)
    assert len(opened) in (2, 3)
    assert len(set(opened)) == len(opened)


def test_every_pass_holds_every_row_once_in_a_new_order():
    order = Shuffled(7, seed=3)
    passes = [order(7 * i, 7 * i + 7) for i in range(3)]
    assert all(sorted(p) == list(range(7)) for p in passes)
    assert len({tuple(p) for p in passes}) == 3
    assert order(5, 10) == (passes[0] + passes[1])[5:10]
    assert len(Shuffled(2, 0)(0, 9)) == 9
    assert order(0, 7) != Shuffled(7, seed=4)(0, 7)
    with pytest.raises(ValueError, match="not a single row"):
        Shuffled(0, 0)


def test_the_losses_are_the_models_own():
    task = elmo_task()
    batch = {"ids": rows(3, 12, seed=5), "k": torch.tensor(0)}  # no borders of sentences
    sums, counts = task.losses(task.model, batch), task.counts(batch)
    own = task.model.loss(batch["ids"])
    assert_close(sums["forward"] / counts["forward"], own.forward)
    assert_close(sums["backward"] / counts["backward"], own.backward)
    assert counts == {"tokens": 36, "forward": 33, "backward": 33}
    batch["ids"][:, 5], batch["ids"][:, 6] = 2, 1
    assert task.counts(batch) == {"tokens": 36, "forward": 30, "backward": 30}
    task = bert_task()
    batch = task.batch(0)
    for name, (total, n) in task.model.loss(batch).items():
        assert task.losses(task.model, batch)[name] == total
        assert task.counts(batch)[name] == n


def test_gpt_measures_bits_per_character():
    task = gpt_task()
    scores = task.evaluate(task.model.eval())
    with torch.no_grad():
        total, n = (sum(x) for x in zip(*(task.model.loss(batch) for batch in task.dev_batches())))
    assert scores["loss"] == pytest.approx(float(total / n))
    assert scores["perplexity"] == pytest.approx(np.exp(scores["loss"]))
    # 10 rows of 9 tokens stand for 200 characters.
    assert scores["bits_per_character"] == pytest.approx(scores["loss"] / np.log(2) * 90 / 200)


def test_bert_measures_shares_and_saves_a_model_that_loads(tmp_path):
    task = bert_task()
    scores = task.evaluate(task.model.eval())
    assert list(scores) == ["loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy"]
    assert 0 <= scores["nsp_accuracy"] <= 1
    assert scores["loss"] == pytest.approx(scores["mlm_loss"] + scores["nsp_loss"])
    task.save(tmp_path / "model.safetensors")
    assert len(load_bert(tmp_path / "model.safetensors")[1]) == 20


def test_d08_only_matrices_of_gpt_and_bert_decay():
    for model in (gpt_task().model, bert_task().model):
        matrices, rest = (group["params"] for group in decay_groups(model, 0.1))
        assert len({id(p) for p in (*matrices, *rest)}) == len(matrices) + len(rest) == len(list(model.parameters()))
        names = {id(p): name for name, p in model.named_parameters()}
        assert all(p.ndim == 2 for p in matrices)
        tables = {"tokens", "positions", "segments", "words"}
        assert all(p.ndim == 1 or names[id(p)].split(".")[-2] in tables for p in rest)


def test_no_held_out_text_is_named():
    with pytest.raises(ValueError, match="held-out"):
        GPTTask(gpt_task().model, rows(3, 9), rows(0, 9), 2, print)
    task = bert_task()
    with pytest.raises(ValueError, match="held-out"):
        BertTask(task.model, task.batches, [], print)
