"""Train the word vectors of chapter 4: the tables that are shipped, and quality
against the amount of text.

Commands:
    python chapters/experiments/word2vec_train.py tables
    python chapters/experiments/word2vec_train.py quality
Budget: about 10 and 40 minutes on one core; "quality" goes on where it stopped.

"tables" writes chapters/checkpoints/{word2vec_5m,word2vec_all,glove_5m}_vectors.
safetensors, half precision. The first and the last are trained on the five million
words of chapter 3, with its vocabulary of 10,000; "all" on all reviews but the
held-out ones, Rotten Tomatoes included, 20,000 words. "quality" writes
chapters/results/word2vec_quality.json: for word2vec on 0.3 to 5 million words, and
for GloVe and gensim (same text, same settings) on five million, three seeds each;
for CBOW, hierarchical softmax, half the passes, and the NNLM of chapter 3, once:
Spearman's correlation with WordSim353 and SimLex999, and analogies, all on the same
words.

Settings: those of the C program but for the number of passes, ten instead of five:
with gensim, WordSim353 rose from .33 to .42 with it, and the ladder with 100 labels
from .649 to .662.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from plm.data import language_model_text, review_sentences
from plm.files import read_json, write_atomically
from plm.glove import GloVeConfig, train_glove
from plm.keyed_vectors import KeyedVectors
from plm.train import load_checkpoint, save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.word2vec import Word2VecConfig, train_word2vec
from plm.word_evaluation import PAIR_SETS, analogies, word_similarity

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/word2vec_train.py"
SIZES, SEEDS, EPOCHS = (300_000, 1_000_000, 2_500_000, 5_000_000), (0, 1, 2), 10
GLOVE = {"x_max": 10, "epochs": 15}  # the paper's x_max is for far larger counts
QUALITY = CHAPTERS / "results" / "word2vec_quality.json"
Sentences = list[list[str]]


def base_vocab() -> Vocab:
    """The ten thousand words of chapter 3, in its order."""
    text = language_model_text(1_000_000).train
    return Vocab.build(
        (w for s in text for w in s), 10_000, specials=LANGUAGE_MODEL_SPECIALS
    )


def all_text() -> Sentences:
    """Every review that is not held out."""
    parts = (review_sentences(f"{source}_train") for source in ("imdb", "rt"))
    return [s for part in parts for document in part for s in document]


class Table(nn.Module):
    """A table of vectors, to be stored."""

    def __init__(self, Q: Tensor):
        super().__init__()
        self.Q = nn.Parameter(Q)


def tables() -> None:
    five, base = language_model_text(5_000_000).train, base_vocab()
    everything = all_text()
    large = Vocab.build(
        (w for s in everything for w in s), 20_000, specials=("<unk>",)
    )
    config = Word2VecConfig(epochs=EPOCHS)
    known = {"epochs": EPOCHS, "seed": 0, "command": f"{COMMAND} tables"}
    jobs = {
        "word2vec_5m": lambda: train_word2vec(five, config, vocab=base),
        "glove_5m": lambda: train_glove(five, GloVeConfig(**GLOVE), vocab=base),
        "word2vec_all": lambda: train_word2vec(everything, config, vocab=large),
    }
    for name, train in jobs.items():
        about = {**known, "words": list(large.tokens)} if "all" in name else known
        path = CHAPTERS / "checkpoints" / f"{name}_vectors.safetensors"
        save_checkpoint(path, Table(train().vectors), about, half=True)
        print(name, f"{path.stat().st_size / 1e6:.1f} MB", flush=True)


def gensim_vectors(sentences: Sentences, seed: int) -> KeyedVectors:
    """The same settings in gensim, the yardstick of the field."""
    from gensim.models import Word2Vec

    base = base_vocab()
    known = [[w for w in sentence if w in base] for sentence in sentences]
    model = Word2Vec(
        known,
        vector_size=100,
        window=5,
        sg=1,
        negative=5,
        sample=1e-3,
        min_count=1,
        epochs=EPOCHS,
        seed=seed,
        workers=1,
    )
    return KeyedVectors(model.wv.index_to_key, model.wv.vectors)


def nnlm_vectors(words: int) -> KeyedVectors:
    file = {1_000_000: "nnlm", 5_000_000: "nnlm_5m_vectors"}[words]
    state, _ = load_checkpoint(CHAPTERS / "checkpoints" / f"{file}.safetensors")
    return KeyedVectors(base_vocab().tokens, state["Q"])


def score(found: KeyedVectors) -> dict:
    """Both correlations with their intervals, and the analogies."""
    analogy = analogies(found)
    return {
        **{name: word_similarity(name, found)._asdict() for name in PAIR_SETS},
        "analogies": {
            name: a._asdict() for name, a in analogy.items() if a.covered
        },
    }


def train(method: str, words: int, seed: int) -> KeyedVectors:
    text, base = language_model_text(words).train, base_vocab()
    if method == "NNLM":
        return nnlm_vectors(words)
    if method == "gensim":
        return gensim_vectors(text, seed)
    if method == "GloVe":
        return train_glove(text, GloVeConfig(**GLOVE, seed=seed), vocab=base)
    other = {
        "CBOW": {"architecture": "cbow"},
        "hierarchical": {"loss": "hierarchical"},
        "word2vec, 5 passes": {"epochs": 5},
    }.get(method, {})
    config = Word2VecConfig(**{"epochs": EPOCHS, "seed": seed, **other})
    return train_word2vec(text, config, vocab=base)


def quality() -> None:
    jobs = [("NNLM", words, 0) for words in (1_000_000, 5_000_000)]
    for seed in SEEDS:
        jobs += [("word2vec", words, seed) for words in SIZES]
        jobs += [(method, 5_000_000, seed) for method in ("gensim", "GloVe")]
    others = ("word2vec, 5 passes", "CBOW", "hierarchical")
    jobs += [(method, 5_000_000, 0) for method in others]
    runs = read_json(QUALITY)["runs"] if QUALITY.exists() else []
    done = {(run["method"], run["words"], run["seed"]) for run in runs}
    for method, words, seed in jobs:
        if (method, words, seed) in done:
            continue
        found = score(train(method, words, seed))
        runs.append({"method": method, "words": words, "seed": seed, **found})
        rho = {name: round(found[name]["rho"], 3) for name in PAIR_SETS}
        print(method, words, seed, rho, found["analogies"]["all"], flush=True)
        content = {
            "command": f"{COMMAND} quality",
            "seeds": SEEDS,
            "epochs": EPOCHS,
            "runs": runs,
        }
        write_atomically(QUALITY, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=["tables", "quality"])
    {"tables": tables, "quality": quality}[parser.parse_args().what]()
