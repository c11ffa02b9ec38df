"""Our compiled skip-gram beside gensim's: same text, vocabulary, window, negatives, epochs and threads.

    python benchmarks/word2vec.py    # about two minutes on two free cores

Each round runs both, one after the other, with a new seed; the ratios are medians over the rounds, above 1 where ours is
faster. "training" starts from counted words (gensim looks each word up while it trains, ours gets ids), "all" from lists of
strings, "processor" counts the seconds of all threads in training: where other programs run, that is the number to trust.
Quality is Spearman's rho with people's ratings, mean and standard deviation over the rounds; it needs the whole text.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import gensim
import torch

from plm.data import review_sentences
from plm.evaluate import mean_and_spread
from plm.keyed_vectors import KeyedVectors
from plm.vocab import Vocab
from plm.word2vec import Word2VecConfig, train_word2vec
from plm.word_evaluation import PAIR_SETS, word_similarity

RUNS = {1: (1_000_000, 5), 2: (6_000_000, 3)}  # threads: words, rounds
EPOCHS, MIN_COUNT, D, WINDOW, NEGATIVES, SAMPLE = 1, 5, 100, 5, 5, 1e-3


class Timed(NamedTuple):
    """Seconds, and what they made."""

    training: float
    all: float
    processor: float
    vectors: KeyedVectors


def text(n_words: int) -> list[list[str]]:
    """Whole reviews up to `n_words` words."""
    sentences: list[list[str]] = []
    size = 0
    for document in review_sentences("imdb_train"):
        if size >= n_words:
            break
        sentences += document
        size += sum(map(len, document))
    return sentences


def run_gensim(sentences: list[list[str]], threads: int, seed: int) -> Timed:
    """gensim's Word2Vec."""
    start = time.perf_counter()
    model = gensim.models.Word2Vec(
        vector_size=D, window=WINDOW, sg=1, negative=NEGATIVES, sample=SAMPLE, min_count=MIN_COUNT, workers=threads, seed=seed
    )  # fmt: skip
    model.build_vocab(sentences)
    counted, cpu = time.perf_counter(), time.process_time()
    model.train(sentences, total_examples=len(sentences), epochs=EPOCHS)
    end, cpu = time.perf_counter(), time.process_time() - cpu
    return Timed(end - counted, end - start, cpu, KeyedVectors(model.wv.index_to_key, model.wv.vectors))


def run_ours(sentences: list[list[str]], threads: int, seed: int) -> Timed:
    """`train_word2vec`, compiled."""
    config = Word2VecConfig(
        d_emb=D, window=WINDOW, negatives=NEGATIVES, sample=SAMPLE, epochs=EPOCHS, min_count=MIN_COUNT, threads=threads, seed=seed
    )  # fmt: skip
    start = time.perf_counter()
    vocab = Vocab.build((w for s in sentences for w in s), min_count=MIN_COUNT, specials=())
    ids = [[vocab.ids[w] for w in s if w in vocab.ids] for s in sentences]
    counted, cpu = time.perf_counter(), time.process_time()
    vectors = train_word2vec(ids, config, vocab=vocab)
    end, cpu = time.perf_counter(), time.process_time() - cpu
    return Timed(end - counted, end - start, cpu, vectors)


def quality(vectors: KeyedVectors) -> list[float]:
    """Spearman's rho on each set of word pairs."""
    return [word_similarity(name, vectors, samples=2).rho for name in PAIR_SETS]


def compare(threads: int, n_words: int, rounds: int) -> None:
    """Print the table of one number of threads."""
    sentences = text(n_words)
    n_words = sum(map(len, sentences)) * EPOCHS
    programs: dict[str, Callable[..., Timed]] = {"gensim": run_gensim, "ours": run_ours}
    found: dict[str, list[Timed]] = {name: [] for name in programs}
    for seed in range(rounds):
        for name in list(programs)[:: 1 if seed % 2 else -1]:
            found[name].append(programs[name](sentences, threads, seed))
    assert set(found["ours"][0].vectors.words) == set(found["gensim"][0].vectors.words)
    print(
        f"\n{threads} thread{'s' if threads > 1 else ''}, {n_words / EPOCHS:,.0f} words, {EPOCHS} epoch, {rounds} rounds"
    )
    for name, runs in found.items():
        speed = n_words / statistics.median(r.training for r in runs)
        rho = mean_and_spread([quality(r.vectors) for r in runs])
        print(f"  {name:6}  {speed / 1000:5.0f} k words/s training", end="")
        for pairs, mean, std in zip(PAIR_SETS, rho.mean, rho.std, strict=True):
            print(f"   {pairs} {mean:.3f} ± {std:.3f}", end="")
        print()
    for part in ("training", "all", "processor"):
        ratios = [getattr(g, part) / getattr(o, part) for g, o in zip(found["gensim"], found["ours"], strict=True)]
        print(f"  ours is {statistics.median(ratios):.2f}x gensim, {part} ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> None:
    """Compile, then compare."""
    torch.set_num_threads(1)
    run_ours([["a", "b"]] * 10, 1, 0)
    print(f"gensim {gensim.__version__}")
    for threads, (n_words, rounds) in RUNS.items():
        compare(threads, n_words, rounds)


if __name__ == "__main__":
    main()
