"""Put the recurrent language models into the table that grows through the book.

    python chapters/experiments/recurrent_table.py [--mixture NAME …]

Reads results/recurrent_lm/*.json, left by recurrent_lm.py, and replaces their rows
in results/perplexity.json, means over seeds. "RNN" is trained and measured from a
state of zeros at each sentence, "RNN, state carried" trained and measured with the
state carried through the text; the same for LSTM and GRU. Takes a second.

--mixture takes runs whose weights are in the cache folder and adds to their results
the mixture with the Kneser-Ney 5-gram of the same text (the weight of the network
chosen on dev), about two minutes each; it makes a row "RNN + Kneser-Ney".
"""

import argparse
import json
from pathlib import Path

import numpy as np

from plm.data import language_model_text
from plm.evaluate import perplexity
from plm.files import cache_dir, read_json, write_atomically
from plm.ngram import KneserNey
from plm.recurrent import RecurrentLM, RecurrentLMConfig
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

RESULTS = Path(__file__).parent.parent / "results"
CHAPTER = {"rnn": 5, "lstm": 6, "gru": 6}
REGIMES = {"sentence": "", "carried": ", state carried"}
PARTS = ("dev", "test")
COMMAND = "python chapters/experiments/recurrent_table.py"


def mixture(name: str) -> None:
    """Measure one run's mixture with the best n-gram model, and store it with the
    run. Each sentence is judged by itself, as in chapter 3."""
    path = RESULTS / "recurrent_lm" / f"{name}.json"
    run = read_json(path)
    state, config = load_checkpoint(cache_dir() / "runs" / f"{name}.safetensors")
    model = RecurrentLM(RecurrentLMConfig(**config))
    model.load_state_dict(state)
    small = language_model_text(1_000_000).train
    vocab = Vocab.build(
        (w for s in small for w in s), 10_000, specials=LANGUAGE_MODEL_SPECIALS
    )
    text = language_model_text(run["words"])
    train, dev, test = ([vocab.encode(s) for s in part] for part in text)
    kn = KneserNey(5, len(vocab)).fit(train)
    pairs = [
        [np.exp(m.token_log_probs(part)) for m in (model, kn)]
        for part in (dev, test)
    ]

    def mixed(pair: list, weight: float) -> float:
        return perplexity(np.log(weight * pair[0] + (1 - weight) * pair[1]))

    weight = min(np.linspace(0, 1, 21), key=lambda w: mixed(pairs[0], w))
    run["mixture"] = {
        "weight": round(float(weight), 2),
        "dev": round(mixed(pairs[0], weight), 3),
        "test": round(mixed(pairs[1], weight), 3),
        "parameters": run["parameters"] + kn.n_parameters,
    }
    print(name, run["mixture"], flush=True)
    write_atomically(path, json.dumps(run, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mixture", nargs="*", default=[], metavar="NAME")
    for name in parser.parse_args().mixture:
        mixture(name)
    groups: dict[tuple, list[dict]] = {}
    for path in sorted((RESULTS / "recurrent_lm").glob("*.json")):
        run = read_json(path)
        key = (run["words"], list(CHAPTER).index(run["kind"]), run["regime"])
        # One recipe per row: runs that try other settings carry another name.
        if (
            path.stem
            == f"{run['kind']}-{run['words'] / 1e6:g}m-{key[2]}-{run['seed']}"
        ):
            groups.setdefault(key, []).append(run)
    rows = []
    for (words, kind, regime), runs in sorted(groups.items()):
        name = list(CHAPTER)[kind]
        assert len({run["parameters"] for run in runs}) == 1
        row = {
            "model": name.upper() + REGIMES[regime],
            "chapter": CHAPTER[name],
            "train_words": words,
        }
        for part in PARTS:
            found = [run[f"{part}_{regime}"] for run in runs]
            row[part] = round(float(np.mean(found)), 3)
        rows.append(row | {"parameters": runs[0]["parameters"], "command": COMMAND})
        print(row, f"{len(runs)} seeds")
        both = [run["mixture"] for run in runs if "mixture" in run]
        if regime == "sentence" and both:
            means = {
                p: round(float(np.mean([m[p] for m in both])), 3) for p in PARTS
            }
            row = {
                "model": f"{name.upper()} + Kneser-Ney",
                "chapter": CHAPTER[name],
            }
            row |= {"train_words": words, **means}
            row |= {"parameters": both[0]["parameters"], "command": COMMAND}
            rows.append(row)
    path = RESULTS / "perplexity.json"
    mine = {(row["model"], row["train_words"]) for row in rows}
    others = [
        r for r in read_json(path) if (r["model"], r["train_words"]) not in mine
    ]
    write_atomically(path, json.dumps(others + rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
