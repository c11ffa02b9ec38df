"""Perplexity of every n-gram model of chapter 2, for four sizes of training text.

Command: python chapters/experiments/ngram_perplexity.py
Budget: about 3 minutes on one core, 2.2 GB of memory. Writes the n-gram rows of
chapters/results/perplexity.json (others' rows stay) and, in detail,
chapters/results/ngram_perplexity.json.
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
ADD_K = (1, 0.1, 0.01, 0.003, 0.001, 0.0001)


def main() -> None:
    """Fit and score all models; print one line for each."""
    text = language_model_text(1_000_000)
    every_word = (word for sentence in text.train for word in sentence)
    vocab = Vocab.build(
        every_word, max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS
    )
    V = len(vocab)
    dev, test = ([vocab.encode(s) for s in part] for part in (text.dev, text.test))
    # Guessing every word but <s> with equal probability needs no text at all.
    rows, details = [row("uniform", 0, V - 1, V - 1, 0)], []
    for size in SIZES:
        train = [vocab.encode(s) for s in language_model_text(size).train]
        for n in range(1, 6):
            started, config = time.perf_counter(), {"n": n, "train_words": size}
            model, tried = NGram(n, V).fit(train), []
            for k in ADD_K:
                model.add_k = k
                tried.append(
                    {"model": "add-k", "k": k} | config | score(model, dev, test)
                )
            best = min(tried, key=lambda found: found["dev"])  # k is chosen on dev
            count = model.n_parameters
            rows.append(
                row(f"{n}-gram, add-k", size, best["dev"], best["test"], count)
            )
            kn = KneserNey(n, V).fit(train)
            found = score(kn, dev, test)
            rows.append(
                row(f"{n}-gram, Kneser-Ney", size, *found.values(), kn.n_parameters)
            )
            used = {"discounts": [d.round(4).tolist() for d in kn.discounts]}
            details += [*tried, {"model": "Kneser-Ney"} | config | found | used]
            took = f"{time.perf_counter() - started:.0f} s"
            print(
                f"{size:>9,} words, n = {n}: {best['dev']}, {found['dev']}, {took}"
            )
    path = RESULTS / "perplexity.json"
    others = read_json(path) if path.exists() else []
    others = [other for other in others if other["command"] != COMMAND]
    write_atomically(path, json.dumps(rows + others, indent=1) + "\n")
    config = {
        "vocabulary": V,
        "sizes": SIZES,
        "add_k": ADD_K,
        "seeds": "none: counting",
    }
    result = {"command": COMMAND, "config": config, "runs": details}
    path = RESULTS / "ngram_perplexity.json"
    write_atomically(path, json.dumps(result, indent=1) + "\n")


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


def score(model: NGram | KneserNey, dev: list, test: list) -> dict[str, float]:
    """Dev and test perplexity of a fitted model."""
    parts = {"dev": dev, "test": test}
    return {
        name: round(perplexity(model.token_log_probs(ids)), 3)
        for name, ids in parts.items()
    }


if __name__ == "__main__":
    main()
