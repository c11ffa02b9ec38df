"""Perplexity of every n-gram model of chapter 2, for four sizes of the training text.

Command: python chapters/experiments/ngram_perplexity.py
Budget: about 3 minutes on one core, 2.2 GB of memory. Writes the n-gram rows of chapters/results/perplexity.json (the rows
of other models stay) and, with more detail, chapters/results/ngram_perplexity.json.
"""

import json
import time
from pathlib import Path

from plm.data import language_model_text
from plm.evaluate import perplexity
from plm.files import read_json, write_atomically
from plm.ngram import KneserNey, NGram
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

RESULTS = Path(__file__).resolve().parents[1] / "results"
COMMAND = "python chapters/experiments/ngram_perplexity.py"
SIZES = (100_000, 300_000, 1_000_000, 5_000_000)
ADD_K = (1, 0.1, 0.01, 0.001)


def main() -> None:
    """Fit and score all models; print one line for each."""
    text = language_model_text(1_000_000)
    vocab = Vocab.build((w for s in text.train for w in s), max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS)
    dev, test = ([vocab.encode(s) for s in part] for part in (text.dev, text.test))
    rows, details = [], []
    # Guessing every word but <s> with equal probability needs no text at all.
    guess = float(len(vocab) - 1)
    rows.append(row("uniform", 0, guess, guess, 0))
    for size in SIZES:
        train = [vocab.encode(s) for s in language_model_text(size).train]
        for n in range(1, 6):
            started = time.perf_counter()
            add_k, kn = NGram(n, len(vocab)).fit(train), KneserNey(n, len(vocab)).fit(train)
            for k in ADD_K:
                add_k.add_k = k
                details.append(detail("add-k", n, size, add_k, dev, test) | {"k": k})
            best = min(details[-len(ADD_K) :], key=lambda d: d["dev"])  # k is chosen on the dev part
            rows.append(row(f"{n}-gram, add-k", size, best["dev"], best["test"], add_k.n_parameters))
            details.append(detail("Kneser-Ney", n, size, kn, dev, test))
            details[-1]["discounts"] = [d.round(4).tolist() for d in kn.discounts]
            rows.append(row(f"{n}-gram, Kneser-Ney", size, details[-1]["dev"], details[-1]["test"], kn.n_parameters))
            print(f"{size:>9,} words, n = {n}: add-k {best['dev']:.1f}, Kneser-Ney {details[-1]['dev']:.1f} (dev), "
                  f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip
    path = RESULTS / "perplexity.json"
    others = [r for r in read_json(path) if r["command"] != COMMAND] if path.exists() else []
    write_atomically(path, json.dumps(rows + others, indent=1) + "\n")
    config = {"vocabulary": len(vocab), "sizes": SIZES, "add_k": ADD_K, "seeds": "none: counting is deterministic"}
    result = {"command": COMMAND, "config": config, "runs": details}
    write_atomically(RESULTS / "ngram_perplexity.json", json.dumps(result, indent=1) + "\n")


def row(model: str, words: int, dev: float, test: float, parameters: int) -> dict:
    """One line of the table that grows through the book."""
    return {
        "model": model,
        "chapter": 2,
        "train_words": words,
        "dev": round(dev, 3),
        "test": round(test, 3),
        "parameters": parameters,
        "command": COMMAND,
    }


def detail(kind: str, n: int, size: int, model: NGram | KneserNey, dev: list, test: list) -> dict:
    """Dev and test perplexity of one fitted model."""
    scores = {part: perplexity(model.token_log_probs(ids)) for part, ids in (("dev", dev), ("test", test))}
    return {"model": kind, "n": n, "train_words": size} | {k: round(v, 3) for k, v in scores.items()}


if __name__ == "__main__":
    main()
