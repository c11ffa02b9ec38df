"""Put the recurrent language models into the table that grows through the book.

    python chapters/experiments/recurrent_table.py

Reads results/recurrent_lm/*.json, left by recurrent_lm.py, and replaces their rows
in results/perplexity.json, means over seeds. "RNN" is trained and measured from a
state of zeros at each sentence, "RNN, state carried" trained and measured with the
state carried through the text; the same for LSTM and GRU. Takes a second.
"""

import json
from pathlib import Path

import numpy as np

from plm.files import read_json, write_atomically

RESULTS = Path(__file__).parent.parent / "results"
CHAPTER = {"rnn": 5, "lstm": 6, "gru": 6}
REGIMES = {"sentence": "", "carried": ", state carried"}
COMMAND = "python chapters/experiments/recurrent_table.py"


def main() -> None:
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
        for part in ("dev", "test"):
            found = [run[f"{part}_{regime}"] for run in runs]
            row[part] = round(float(np.mean(found)), 3)
        rows.append(row | {"parameters": runs[0]["parameters"], "command": COMMAND})
        print(row, f"{len(runs)} seeds")
    path = RESULTS / "perplexity.json"
    mine = {(row["model"], row["train_words"]) for row in rows}
    others = [
        r for r in read_json(path) if (r["model"], r["train_words"]) not in mine
    ]
    write_atomically(path, json.dumps(others + rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
