"""A tagger of parts of speech with few labelled sentences, without and with a biLM.

Command: python chapters/experiments/elmo_tagger.py
Budget: about 5 minutes on one core; finished runs are kept.

The tags come from HanTa, an automatic tagger: silver, not gold. Held-out IMDB
sentences, which the biLM has not read: 30, 100 or 300 to train on, 60 to choose
the number of passes, 400 to test; three seeds, which draw the
training sentences and the start. Every arm has the same tagger and starts from the
word2vec vectors of chapter 4, trained along. Beside them: nothing; the biLM's top
layer (as in TagLM); the learnt mix of its three layers (ELMo); the mix of a biLM of
random weights. Needs chapters/checkpoints/elmo.safetensors; writes
chapters/results/elmo_tagger.json.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch
from elmo_pretrain import CHECKPOINT
from HanTa import HanoverTagger
from torch import Tensor
from torch.nn import functional as F

from plm.data import language_model_text
from plm.elmo import BiLM, load_bilm
from plm.files import read_json, write_atomically
from plm.rnn import length_mask
from plm.tagger import Tagger
from plm.train import load_checkpoint
from plm.vocab import Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
RESULT = CHAPTERS / "results" / "elmo_tagger.json"
COMMAND = "python chapters/experiments/elmo_tagger.py"
SIZES, SEEDS = (30, 100, 300), range(3)
RATES, PASSES = (5e-3,), {30: (20, 40), 100: (8, 16), 300: (4, 8)}
N_DEV, N_TEST = 60, 400
ARMS = {  # name: (which biLM, which layers)
    "word vectors": None,
    "with a random biLM": ("random", [0, 1, 2]),
    "with the top layer (TagLM)": ("trained", [2]),
    "with the mix (ELMo)": ("trained", [0, 1, 2]),
}


@cache
def readers() -> dict[str, BiLM]:
    torch.manual_seed(0)
    trained = load_bilm(CHECKPOINT)[0]
    return {"trained": trained, "random": BiLM(trained.config).eval()}


@cache
def text() -> tuple[list[list[str]], list[Tensor], list[str]]:
    """Sentences, their tags as ids (punctuation: -100), the names of the tags."""
    found = language_model_text(1)
    pool = [s for s in found.dev + found.test if 5 <= len(s) <= 40]
    order = np.random.default_rng(1).permutation(len(pool))
    n = N_DEV + N_TEST + 2 * max(SIZES)
    sentences = [pool[i] for i in order[:n]]
    tagger = HanoverTagger.HanoverTagger("morphmodel_en.pgz")
    tags = [[tag for _, _, tag in tagger.tag_sent(s)] for s in sentences]
    names = sorted({tag for s in tags for tag in s})
    ids = [
        torch.tensor(
            [
                names.index(tag) if w[0].isalnum() else -100
                for w, tag in zip(s, t, strict=True)
            ]
        )
        for s, t in zip(sentences, tags, strict=True)
    ]
    return sentences, ids, names


@cache
def word_vectors() -> tuple[Tensor, Vocab]:
    path = CHAPTERS / "checkpoints" / "word2vec_5m_vectors.safetensors"
    state, config = load_checkpoint(path)
    words = (
        config["words"] if "words" in config else load_bilm(CHECKPOINT)[1].tokens
    )
    Q = torch.cat(
        [state["Q"], torch.zeros(1, state["Q"].shape[1])]
    )  # the unknown word
    Q = (Q - Q.mean(0)) / Q.std()
    return Q, Vocab(words[: len(Q) - 1], specials=())


@cache
def one(i: int, reader: str | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Word ids (n,), tags (n,) and features (3, n, 2 * d_emb) of sentence i."""
    sentences, tags, _ = text()
    Q, vocab = word_vectors()
    ids = torch.tensor([vocab.ids.get(w, len(Q) - 1) for w in sentences[i]])
    if reader is None:
        return ids, tags[i], None
    model, words = readers()[reader], load_words()
    layers = model.vectors(*model.pad([words.encode(sentences[i])]))
    return ids, tags[i], layers[:, 0, 1:-1]


@cache
def load_words() -> Vocab:
    return load_bilm(CHECKPOINT)[1]


@cache
def spread(reader: str) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each feature, over training sentences."""
    first = N_DEV + N_TEST
    x = torch.cat([one(i, reader)[2] for i in range(first, first + 300)], 1)
    return x.mean(1, True), x.std(1, keepdim=True) + 1e-6


def batch(rows: list[int], arm: tuple | None):
    """Padded ids (B, T), tags (B, T), lengths (B,), features (layers, B, T, D)."""
    found = [one(i, arm and arm[0]) for i in rows]
    lengths = torch.tensor([len(ids) for ids, _, _ in found])
    B, T = len(rows), int(lengths.max())
    ids, tags = torch.zeros(B, T, dtype=torch.int64), torch.full((B, T), -100)
    for k, (i, t, _) in enumerate(found):
        ids[k, : len(i)], tags[k, : len(t)] = i, t
    if arm is None:
        return ids, tags, lengths, None
    mean, std = spread(arm[0])
    features = torch.zeros(len(arm[1]), B, T, mean.shape[-1])
    for k, (_, _, x) in enumerate(found):
        features[:, k, : x.shape[1]] = ((x - mean) / std)[arm[1]]
    return ids, tags, lengths, features


def right(model: Tagger, parts: list) -> float:
    """Accuracy over the words of some batches."""
    model.eval()
    hits = total = 0
    with torch.no_grad():
        for ids, tags, lengths, features in parts:
            words = length_mask(lengths, ids.shape[1]) & (tags >= 0)
            guess = model(ids, lengths, features).argmax(-1)
            hits += int((guess == tags)[words].sum())
            total += int(words.sum())
    model.train()
    return hits / total


def cut(rows: list[int], arm, size: int) -> list:
    rows = sorted(rows, key=lambda i: len(text()[0][i]))
    return [batch(rows[i : i + size], arm) for i in range(0, len(rows), size)]


def run(arm: tuple | None, n: int, seed: int, held_out: list) -> dict:
    """The test accuracy where the dev part was best, and the mix learnt there."""
    pool = range(N_DEV + N_TEST, len(text()[0]))
    order = np.random.default_rng(seed).permutation(len(pool))
    train = cut([pool[i] for i in order[:n]], arm, 10)
    best: dict = {"dev": -1.0}
    for lr in RATES:
        torch.manual_seed(seed)
        sizes = (len(arm[1]), train[0][3].shape[-1]) if arm else (0, 0)
        model = Tagger(word_vectors()[0], len(text()[2]), 64, *sizes)
        optimizer = torch.optim.Adam(model.parameters(), lr)
        for i in range(max(PASSES[n])):
            for k in torch.randperm(len(train)).tolist():
                ids, tags, lengths, features = train[k]
                logits = model(ids, lengths, features)
                loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten())
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if i + 1 in PASSES[n]:
                dev = right(model, held_out[0])
                if dev > best["dev"]:
                    best = {"dev": dev, "test": round(right(model, held_out[1]), 4)}
                    best |= {"lr": lr, "passes": i + 1}
                    if model.mix is not None:
                        best["weights"] = model.mix.weights.tolist()
                        best["gamma"] = model.mix.gamma.item()
    return best


def main() -> None:
    torch.set_num_threads(1)
    start = {"command": COMMAND, "sizes": SIZES, "seeds": list(SEEDS), "runs": {}}
    stored = read_json(RESULT) if RESULT.exists() else start
    stored["tags"] = len(text()[2])
    for name, arm in ARMS.items():
        held_out = None
        for n in SIZES:
            found = stored["runs"].setdefault(name, {}).setdefault(str(n), [])
            for seed in list(SEEDS)[len(found) :]:
                held_out = held_out or [
                    cut(list(rows), arm, 50)
                    for rows in (range(N_DEV), range(N_DEV, N_DEV + N_TEST))
                ]
                found.append(run(arm, n, seed, held_out))
                write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
            print(
                name,
                n,
                [r["test"] for r in found],
                found[-1].get("weights"),
                flush=True,
            )


if __name__ == "__main__":
    main()
