"""What gets BERT off the plateau of word frequencies, and what its parts are
worth: small equal budgets, one change at a time.

Command: python chapters/experiments/bert_arms.py
Budget: about 100 minutes on one core; finished arms are kept, so an interrupted run
goes on. `--only plateau|ablations|ladder|visible` does a part.

Writes chapters/results/bert_arms.json.

plateau: from "plain" (random table, bias 0, 15 % hidden, large batch) one
ingredient is switched on alone, then all together. Every arm reads the same
number of tokens. ablations: from the recipe of the book one part is taken away:
next sentence, both sides, or the 20 % of hidden places that do not show [MASK].
Two seeds (`--seeds` does some of them, so that two cores can share the work).
Dev batches are the same for all, 15 % hidden, all shown as [MASK].
ladder: each ablated model on two draws of 500 labelled sentences. visible: in text
without gaps, how often the head for gaps names the word that stands there.
"""

import argparse
import csv
import json

import torch
from bert_ladder import tuned, with_dropout
from bert_pretrain import CHAPTERS, RUNS, Experiment, parse

from plm.data import reviews
from plm.files import read_json, write_atomically
from plm.model_files import load_bert
from plm.pretrain import pretrain

RESULT = CHAPTERS / "results" / "bert_arms.json"
COMMAND = "python chapters/experiments/bert_arms.py"
TOKENS = 1_500_000  # read by each arm of the plateau
SMALL = ["--d-model", "128"]
PLAIN = [
    *("--init", "random", "--bias", "zero"),
    *("--rate", "0.15", "--tokens", "8192"),
]
PLATEAU = {
    "plain": "",
    "word2vec table": "--init word2vec",
    "log-frequency bias": "--bias counts",
    "30 % hidden": "--rate 0.3",
    "small batch": "--tokens 2048",
    "all four": "--init word2vec --bias counts --rate 0.3 --tokens 2048",
    "all but the table": "--bias counts --rate 0.3 --tokens 2048",
}
PARTS = "plateau", "ablations", "ladder", "visible"
STEPS, SEEDS = 2000, range(2)  # of the ablations, 2048 tokens each
ABLATIONS = {
    "as in the book": "",
    "without next sentence": "--no-nsp",
    "left to right": "--causal",
    "always [MASK]": "--always-mask",
}


def run(name: str, flags: list[str], steps: int) -> dict:
    """Train one arm with a cool-down over its last sixth; its curve on dev."""
    args, _ = parse(["--name", name, *SMALL, "--report", str(steps // 10), *flags])
    experiment = Experiment(args, COMMAND)
    task, folder = experiment.task(), RUNS / name
    settings = experiment.settings(steps, max(1, steps // 6))
    if pretrain(task, folder, settings, print).step < steps:
        raise SystemExit("stopped; the same command goes on")
    with open(folder / "eval.csv", newline="", encoding="utf-8") as file:
        rows = [{k: float(v) for k, v in r.items()} for r in csv.DictReader(file)]
    kept = "tokens", "cpu_seconds", "mlm_loss", "mlm_accuracy", "nsp_accuracy"
    return {name: [round(row[name], 4) for row in rows] for name in kept}


@torch.no_grad()
def named(name: str, seed: int) -> float:
    """The share of visible words of held-out reviews that a model names."""
    model, tokenizer, _ = load_bert(RUNS / f"bert {name} {seed}/model.safetensors")
    right = total = 0
    for review in reviews("imdb_dev")[:40]:
        ids = torch.tensor([tokenizer.encode(review.text, max_len=128).ids])
        said = model(ids, positions=torch.arange(1, ids.shape[1] - 1)).mlm
        right += int((said.argmax(1) == ids[0, 1:-1]).sum())
        total += len(said)
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[*SEEDS])
    args = parser.parse_args()
    only = args.only
    torch.set_num_threads(1)

    def so_far() -> dict[str, dict]:
        stored = read_json(RESULT) if RESULT.exists() else {}
        return {"command": COMMAND, **{part: {} for part in PARTS}, **stored}

    def keep(part: str, name: str, found) -> None:
        stored = so_far()
        stored[part][name] = found
        write_atomically(RESULT, json.dumps(stored, indent=1) + "\n")
        print(part, name, found, flush=True)

    for name, flags in PLATEAU.items() if only in (None, "plateau") else ():
        if name not in so_far()["plateau"]:
            given = [*PLAIN, *flags.split()]
            tokens = int(given[len(given) - given[::-1].index("--tokens")])
            keep("plateau", name, run(f"bert {name}", given, TOKENS // tokens))
    for name, flags in ABLATIONS.items() if only in (None, "ablations") else ():
        for seed in args.seeds:
            if f"{name}, {seed}" not in so_far()["ablations"]:
                given = [*flags.split(), "--seed", str(seed)]
                found = run(f"bert {name} {seed}", given, STEPS)
                keep("ablations", f"{name}, {seed}", found)
    for name in ABLATIONS if only in (None, "ladder") else ():
        for seed in args.seeds:
            if f"{name}, {seed}" not in so_far()["ladder"]:
                path = RUNS / f"bert {name} {seed}" / "model.safetensors"
                built = lambda path=path: with_dropout(load_bert(path)[0].bert)  # noqa: E731
                found = tuned(built, "ours", f"BERT {name} {seed}", (500,), SEEDS)
                keep("ladder", f"{name}, {seed}", found.accuracy[500])
    for name in ABLATIONS if only in (None, "visible") else ():
        for seed in args.seeds:
            keep("visible", f"{name}, {seed}", round(named(name, seed), 4))


if __name__ == "__main__":
    main()
