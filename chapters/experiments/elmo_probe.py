"""What do the layers of the biLM know? Linear probes for sense and part of speech.

Command: python chapters/experiments/elmo_probe.py
Budget: about 3 minutes on one core. Finished parts are kept: an interrupted run
goes on.

Needs chapters/checkpoints/elmo.safetensors. Writes
chapters/results/elmo_probe.json.

Sense: the pseudowords of elmo_pretrain.py. In held-out reviews (dev, test and those
training reviews that lie beyond the five million words) every occurrence of church
and of train is written as church|train; which was it? The labels are exact, both
words are equally frequent, and words of one review stay on one side of the split.
Part of speech: tags by HanTa, an automatic tagger (silver tags, its errors
included), on held-out sentences, split by sentence. Every probe is a ridge
regression on standardised features to the labels, one output per class; its penalty
is chosen by leave-one-out on the training part. Layer 0 of a pseudoword is the same
vector for every occurrence: one half by construction.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from elmo_pretrain import CHECKPOINT, PAIRS
from HanTa import HanoverTagger
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import StandardScaler

from plm.data import language_model_text, review_sentences
from plm.elmo import BiLM, load_bilm
from plm.files import read_json, write_atomically

RESULT = Path(__file__).resolve().parents[1] / "results" / "elmo_probe.json"
COMMAND = "python chapters/experiments/elmo_probe.py"
SENSE_SEEDS, POS_SEEDS = range(5), range(3)
MOST, NEAR, WIDE = 200, 3, 5  # occurrences of each word; reach of the two windows
PENALTIES = (10.0, 100.0, 1000.0, 10_000.0)
POS_SENTENCES, POS_TRAIN = 700, 6000


def probe(x: np.ndarray, y: np.ndarray, test_x: np.ndarray) -> np.ndarray:
    """Fit a linear probe and return its guesses for `test_x`."""
    scale = StandardScaler().fit(x)
    model = RidgeClassifierCV(alphas=PENALTIES).fit(scale.transform(x), y)
    return model.predict(scale.transform(test_x))


def readers(model: BiLM) -> dict[str, BiLM]:
    """The trained biLM and two controls: untrained, only the words trained."""
    found = {"trained": model}
    torch.manual_seed(0)
    for name in ("random", "random LSTMs"):
        found[name] = BiLM(model.config).eval()
    found["random LSTMs"].embedding.load_state_dict(model.embedding.state_dict())
    return found


def vectors(
    model: BiLM, sentences: list[list[int]], places: list[list[int]]
) -> np.ndarray:
    """The vectors of the words at `places`: (n_layers + 1, N, 2 * d_emb)."""
    found = []
    for i in range(0, len(sentences), 32):
        layers = model.vectors(*model.pad(sentences[i : i + 32]))
        for row, at in enumerate(places[i : i + 32]):
            found.append(layers[:, row, [1 + k for k in at]])  # <s> stands at 0
    return torch.cat(found, 1).numpy()


# --- sense ------------------------------------------------------------


def held_out() -> list[list[list[str]]]:
    """Reviews that the pretraining did not read."""
    n, documents = (
        len(language_model_text(5_000_000).train),
        review_sentences("imdb_train"),
    )
    seen = 0
    while n > 0:
        n -= len(documents[seen])
        seen += 1
    return [
        *documents[seen:],
        *review_sentences("imdb_dev"),
        *review_sentences("imdb_test"),
    ]


def occurrences(
    documents, pair: tuple[str, str]
) -> list[tuple[int, list[str], int, int]]:
    """(review, sentence, place, which word), as many of the one as of the other."""
    found: tuple[list, list] = ([], [])
    for d, document in enumerate(documents):
        for s in document:
            for i, w in enumerate(s):
                if w in pair and 4 <= len(s) <= 60:
                    found[pair.index(w)].append((d, s, i, pair.index(w)))
    n = min(MOST, *map(len, found))
    rng = np.random.default_rng(0)
    kept = [part[k] for part in found for k in rng.permutation(len(part))[:n]]
    return sorted(kept, key=lambda o: (o[0], o[2]))


def bag(around: list[list[int]], V: int) -> np.ndarray:
    """One column for each word that stands at least twice in a window."""
    counts = Counter(i for ids in around for i in set(ids))
    column = {
        i: k for k, i in enumerate(sorted(i for i, n in counts.items() if n > 1))
    }
    x = np.zeros((len(around), len(column)))
    for row, ids in enumerate(around):
        for i in ids:
            if i in column:
                x[row, column[i]] = 1.0
    return x


def sense_of(
    pair: tuple[str, str], documents, models: dict[str, BiLM], vocab
) -> dict:
    found = occurrences(documents, pair)
    y = np.array([o[3] for o in found])
    review = np.array([o[0] for o in found])
    sentences = [
        [*vocab.encode(s[:i]), vocab["|".join(pair)], *vocab.encode(s[i + 1 :])]
        for _, s, i, _ in found
    ]
    places = [[o[2]] for o in found]
    Q = models["trained"].embedding.weight.detach().numpy()
    near, wide = (
        [
            ids[max(0, i - r) : i] + ids[i + 1 : i + 1 + r]
            for ids, (_, _, i, _) in zip(sentences, found)
        ]
        for r in (NEAR, WIDE)
    )
    x = {
        "mean of 3 neighbours each side": np.stack([Q[ids].mean(0) for ids in near])
    }
    x["bag of 5 words each side"] = bag(wide, len(vocab))
    x["bag of the sentence"] = bag(
        [s[:i] + s[i + 1 :] for s, (i,) in zip(sentences, places)], len(vocab)
    )
    for name, model in models.items():
        layers = vectors(model, sentences, places)
        for k in range(0 if name == "trained" else 1, len(layers)):
            x[f"{name}, layer {k}"] = layers[k]
        width = layers.shape[2] // 2
        if name == "trained":  # one reader at a time
            x["forward only, layer 2"], x["backward only, layer 2"] = (
                layers[2][:, :width],
                layers[2][:, width:],
            )
    accuracy: dict[str, list[float]] = {name: [] for name in x}
    for seed in SENSE_SEEDS:
        train_reviews = np.random.default_rng(seed).random(len(documents)) < 0.6
        train = train_reviews[review]
        for name, features in x.items():
            guess = probe(features[train], y[train], features[~train])
            # Mean of both words: always guessing one of them scores one half.
            right = [(guess == y[~train])[y[~train] == k].mean() for k in (0, 1)]
            accuracy[name].append(round(float(np.mean(right)), 4))
    return {"pair": list(pair), "occurrences": len(y), "accuracy": accuracy}


# --- part of speech ---------------------------------------------------


def silver() -> tuple[list[list[str]], list[list[str]]]:
    """Held-out sentences and HanTa's tags, cut to two letters (VB, NN, JJ, …)."""
    text = language_model_text(1)
    pool = [s for s in text.dev + text.test if 5 <= len(s) <= 40]
    chosen = [
        pool[i]
        for i in np.random.default_rng(0).permutation(len(pool))[:POS_SENTENCES]
    ]
    tagger = HanoverTagger.HanoverTagger("morphmodel_en.pgz")
    return chosen, [[tag[:2] for _, _, tag in tagger.tag_sent(s)] for s in chosen]


def pos(models: dict[str, BiLM], vocab) -> dict:
    sentences, tags = silver()
    places = [[i for i, w in enumerate(s) if w[0].isalnum()] for s in sentences]
    ids = [vocab.encode(s) for s in sentences]
    word = np.array([s[i] for s, at in zip(sentences, places) for i in at])
    y = np.array([t[i] for t, at in zip(tags, places) for i in at])
    owner = np.array([k for k, at in enumerate(places) for _ in at])
    x: dict[str, np.ndarray] = {}
    for name, model in models.items():
        for k, layer in enumerate(vectors(model, ids, places)):
            if (
                k or name != "random LSTMs"
            ):  # its layer 0 is that of the trained one
                x[f"{name}, layer {k}"] = layer
    tags_of: dict[str, Counter] = {}
    for w, tag in zip(word, y):
        tags_of.setdefault(w, Counter())[tag] += 1
    unsure = np.array(
        [tags_of[w].most_common(1)[0][1] < 0.9 * tags_of[w].total() for w in word]
    )
    result = {
        "tokens": len(y),
        "tags": Counter(y.tolist()),
        "accuracy": {},
        "ambiguous": {},
    }
    for seed in POS_SEEDS:
        order = np.random.default_rng(seed).permutation(len(sentences))
        rank = np.empty(len(sentences), int)
        rank[order] = np.arange(len(sentences))
        by_rank = np.argsort(rank[owner], kind="stable")
        train, test = by_rank[:POS_TRAIN], by_rank[POS_TRAIN:]
        table: dict[str, Counter] = {}
        for w, tag in zip(word[train], y[train]):
            table.setdefault(w, Counter())[tag] += 1
        known = {w: c.most_common(1)[0][0] for w, c in table.items()}
        common = Counter(y[train]).most_common(1)[0][0]
        guesses = {
            "most frequent tag of the word": np.array(
                [known.get(w, common) for w in word[test]]
            )
        }
        guesses |= {
            name: probe(f[train], y[train], f[test]) for name, f in x.items()
        }
        for name, guess in guesses.items():
            right = guess == y[test]
            for key, values in (
                ("accuracy", right),
                ("ambiguous", right[unsure[test]]),
            ):
                result[key].setdefault(name, []).append(
                    round(float(values.mean()), 4)
                )
        print(
            "pos",
            seed,
            {n: v[-1] for n, v in result["accuracy"].items()},
            flush=True,
        )
    return result


def main() -> None:
    torch.set_num_threads(1)
    model, vocab = load_bilm(CHECKPOINT)
    models = readers(model)
    stored = (
        read_json(RESULT) if RESULT.exists() else {"command": COMMAND, "sense": []}
    )

    def keep() -> None:
        write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")

    if "pos" not in stored:
        stored["pos"] = pos(models, vocab)
        keep()
    documents = held_out()
    for pair in PAIRS[len(stored["sense"]) :]:
        stored["sense"].append(sense_of(pair, documents, models, vocab))
        print(
            pair,
            {
                n: round(np.mean(v), 3)
                for n, v in stored["sense"][-1]["accuracy"].items()
            },
            flush=True,
        )
        keep()


if __name__ == "__main__":
    main()
