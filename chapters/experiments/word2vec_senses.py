"""One vector for two senses: pseudowords whose senses are known exactly.

Command: python chapters/experiments/word2vec_senses.py
Budget: about 8 minutes on one core.

For each pair, such as church and train, a third of the occurrences of both words
is written as one new word, church|train, in five million words of reviews: a word
with two senses, each as frequent in it as the word itself. The control: a third
of church is written as church|church, a new word with one sense. Then word2vec is
trained as always, with three seeds, and the vectors are compared. Which of the two
an occurrence was is asked in held-out reviews: of the vector of the word itself,
and of the average of its neighbours' vectors (logistic regression, trained on as
many occurrences of the one word as of the other). Writes
chapters/results/word2vec_senses.json.
"""

import json
import random
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from plm.data import language_model_text
from plm.files import read_json, write_atomically
from plm.similarity import cosine, nearest
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.word2vec import Word2VecConfig, train_word2vec

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/word2vec_senses.py"
PAIRS = [
    ("music", "money"),
    ("camera", "wife"),
    ("book", "war"),
    ("king", "murder"),
    ("doctor", "army"),
    ("church", "train"),
    ("hospital", "summer"),
    ("phone", "ship"),
]
SEEDS, EPOCHS, REACH = (0, 1, 2), 10, 5
STORE = CHAPTERS / "results" / "word2vec_senses.json"
Sentences = list[list[str]]


def disguise(sentences: Sentences, seed: int) -> Sentences:
    """Of each word a third becomes the pair, and a third the word's double."""
    rng = random.Random(seed)
    names = {}
    for pair in PAIRS:
        for word in pair:
            names[word] = (word, f"{word}|{word}", "|".join(pair))
    return [
        [rng.choice(names[w]) if w in names else w for w in s] for s in sentences
    ]


def occurrences(
    sentences: Sentences, words: tuple[str, str], Q: Tensor, vocab: Vocab
) -> tuple[np.ndarray, np.ndarray]:
    """The average vector of each occurrence's neighbours, and which word it was.

    As many of the one as of the other, in the order of the text.
    """
    found: tuple[list, list] = ([], [])
    for sentence in sentences:
        for i, word in enumerate(sentence):
            if word in words:
                around = (
                    sentence[max(0, i - REACH) : i]
                    + sentence[i + 1 : i + 1 + REACH]
                )
                ids = [
                    vocab.ids[w] for w in around if w in vocab and w not in words
                ]
                if ids:
                    found[words.index(word)].append(Q[ids].mean(0))
    n = min(map(len, found))
    x = torch.stack([*found[0][:n], *found[1][:n]]).numpy()
    return x, np.repeat([0, 1], n)


def measure(Q: Tensor, vocab: Vocab, text) -> list[dict]:
    rows = []
    for a, b in PAIRS:
        both, double_a, double_b = f"{a}|{b}", f"{a}|{a}", f"{b}|{b}"
        v = {w: Q[vocab[w]] for w in (a, b, both, double_a, double_b)}
        middle = v[a] / v[a].norm() + v[b] / v[b].norm()
        x, y = occurrences(text.train, (a, b), Q, vocab)
        test_x, test_y = occurrences(text.test + text.dev, (a, b), Q, vocab)
        model = LogisticRegression(C=1.0, max_iter=2000).fit(x, y)
        one_vector = np.repeat(v[both][None].numpy(), len(test_y), 0)
        static = LogisticRegression().fit(np.repeat(one_vector[:1], len(y), 0), y)
        names = {a, b, both, double_a, double_b}
        near = nearest(v[both], Q, k=8, exclude=[vocab[w] for w in names])
        rows.append(
            {
                "pair": [a, b],
                "cosine": {
                    "both, first": float(cosine(v[both], v[a])),
                    "both, second": float(cosine(v[both], v[b])),
                    "first, second": float(cosine(v[a], v[b])),
                    "both, middle": float(cosine(v[both], middle)),
                    "first, its double": float(cosine(v[a], v[double_a])),
                    "second, its double": float(cosine(v[b], v[double_b])),
                },
                "neighbours": vocab.decode(near.ids),
                "occurrences": {"train": len(y), "test": len(test_y)},
                "accuracy": {
                    "its own vector": float(static.score(one_vector, test_y)),
                    "its neighbours": float(model.score(test_x, test_y)),
                },
            }
        )
    return rows


def main() -> None:
    torch.set_num_threads(1)
    text = language_model_text(5_000_000)
    base = Vocab.build(
        (w for s in language_model_text(1_000_000).train for w in s),
        10_000,
        specials=LANGUAGE_MODEL_SPECIALS,
    )
    new = sorted(
        {f"{w}|{w}" for pair in PAIRS for w in pair} | {"|".join(p) for p in PAIRS}
    )
    vocab = Vocab([*base.tokens[3:], *new])
    runs = read_json(STORE)["runs"] if STORE.exists() else []
    for seed in SEEDS[len(runs) :]:
        config = Word2VecConfig(epochs=EPOCHS, seed=seed)
        disguised = disguise(text.train, seed)
        Q = train_word2vec(disguised, config, vocab=vocab).vectors
        runs.append({"seed": seed, "pairs": measure(Q, vocab, text)})
        mean = {
            key: np.mean([p["cosine"][key] for p in runs[-1]["pairs"]]).round(3)
            for key in runs[-1]["pairs"][0]["cosine"]
        }
        right = [p["accuracy"]["its neighbours"] for p in runs[-1]["pairs"]]
        print(seed, mean, np.round(right, 2), flush=True)
        content = {
            "command": COMMAND,
            "seeds": SEEDS[: len(runs)],
            "config": {"epochs": EPOCHS, "words": 5_000_000, "reach": REACH},
            "runs": runs,
        }
        write_atomically(STORE, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
