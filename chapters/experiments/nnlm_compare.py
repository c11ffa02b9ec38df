"""Compare the trained NNLMs of chapter 3 with the best n-gram model, alone and
mixed, and pack what the book ships.

Command: python chapters/experiments/nnlm_compare.py RUNS
(and, to renew one part only, 1m, 5m or one_pass)
Budget: about 5 minutes on one core, 4 GB of memory.

RUNS is the folder with the results and weights of `nnlm_train.py`, named 1m-seed0 …
1m-seed2 and 5m-seed0, and of the runs planned for one pass (ONE_PASS). Writes
chapters/results/nnlm_perplexity.json, the NNLM rows of
chapters/results/perplexity.json (the rows of other models stay), and
chapters/checkpoints/nnlm*.safetensors.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from plm.data import language_model_text
from plm.evaluate import mean_and_spread, perplexity
from plm.files import read_json, write_atomically
from plm.ngram import KneserNey
from plm.nnlm import NNLM, NNLMConfig
from plm.train import load_checkpoint, save_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/nnlm_compare.py RUNS"
SIZES = {"1m": 1_000_000, "5m": 5_000_000}
# The learning rate falls to zero within the one pass. For a million words also with
# less dropout: who sees the text once needs less.
ONE_PASS = {
    "1m-onepass": "--epochs 1 --sampled 1000",
    "1m-onepass-dropout0.1": "--epochs 1 --sampled 1000 --dropout 0.1",
    "5m-onepass": "--epochs 1 --sampled 1000 --words 5000000 --d-hidden 200"
    " --dropout 0.1 --batch 1024",
}
WEIGHTS = np.arange(0, 1.01, 0.05).round(2)  # the share of the NNLM in the mixture
SLICE = 500  # first sentences of the test part, for the test of the shipped weights


def mix(ours: np.ndarray, theirs: np.ndarray, weight: float) -> float:
    """Perplexity of the average of two models' probabilities, token by token."""
    with np.errstate(divide="ignore"):
        return perplexity(
            np.logaddexp(np.log(weight) + ours, np.log1p(-weight) + theirs)
        )


def load(path: Path) -> NNLM:
    """A model from the checkpoint of `nnlm_train.py`."""
    state, config = load_checkpoint(path)
    model = NNLM(NNLMConfig(**config))
    model.load_state_dict(state)
    return model.eval()


def tuned_kneser_ney(
    train: list, dev: list, V: int
) -> tuple[KneserNey, list[dict]]:
    """The best n-gram model on dev: n = 3, 4, 5 with three estimated discounts,
    with one, and for n = 5 with fixed ones.

    On five million words only the kind of discounts is tried that is best on one
    million.
    """
    tried: list[dict] = []
    best: tuple[float, KneserNey | None] = (np.inf, None)
    choices: list[tuple[int, str | float]] = [(n, "modified") for n in (3, 4, 5)]
    if len(train) < 200_000:
        choices += [(n, "single") for n in (3, 4, 5)] + [
            (5, d) for d in (0.6, 0.7, 0.8, 0.9)
        ]
    for n, discount in choices:
        model = KneserNey(n, V, discount).fit(train)
        tried.append(
            {
                "n": n,
                "discount": discount,
                "dev": round(perplexity(model.token_log_probs(dev)), 3),
            }
        )
        print(tried[-1], flush=True)
        if tried[-1]["dev"] < best[0]:
            best = tried[-1]["dev"], model
    assert best[1] is not None
    return best[1], tried


def compare(runs: Path, size: str, encode) -> dict:
    """Everything about one size of training text."""
    train, dev, test = (encode(part) for part in language_model_text(SIZES[size]))
    kn, tried = tuned_kneser_ney(train, dev, len(encode.vocab))
    kn_dev, kn_test = kn.token_log_probs(dev), kn.token_log_probs(test)
    rows = []
    for path in sorted(runs.glob(f"{size}-seed*.json")):
        model = load(path.with_suffix(".safetensors"))
        ours_dev, ours_test = (
            model.token_log_probs(dev),
            model.token_log_probs(test),
        )
        by_weight = [mix(ours_dev, kn_dev, w) for w in WEIGHTS]
        weight = float(WEIGHTS[np.argmin(by_weight)])
        rows.append(
            read_json(path)
            | {
                "dev": perplexity(ours_dev),
                "test": perplexity(ours_test),
                "mixture_weight": weight,
                "mixture_by_weight_dev": [round(p, 3) for p in by_weight],
                "mixture_dev": min(by_weight),
                "mixture_test": mix(ours_test, kn_test, weight),
                "wins": float(
                    (ours_test > kn_test).mean()
                ),  # share of tokens to which the NNLM gives more
            }
        )
        print(
            size,
            path.stem,
            {
                k: rows[-1][k]
                for k in ("dev", "test", "mixture_weight", "mixture_test")
            },
            flush=True,
        )
    return {
        "train_words": SIZES[size],
        "kneser_ney": {
            "n": kn.n,
            "discount": kn.discount,
            "tried": tried,
            "parameters": kn.n_parameters,
        }
        | {"dev": perplexity(kn_dev), "test": perplexity(kn_test)},
        "runs": rows,
        "mixture_weights": WEIGHTS.tolist(),
    }


class Encode:
    """Sentences of words to sentences of ids, with the vocabulary of the book's
    language models.
    """

    def __init__(self):
        words = (w for s in language_model_text(1_000_000).train for w in s)
        self.vocab = Vocab.build(
            words, max_size=10_000, specials=LANGUAGE_MODEL_SPECIALS
        )

    def __call__(self, sentences: list) -> list:
        return [self.vocab.encode(s) for s in sentences]


def table_rows(result: dict) -> list[dict]:
    """Lines for the table that grows through the book: means over seeds."""
    rows = []
    for name, dev, test in (
        ("NNLM", "dev", "test"),
        ("NNLM + Kneser-Ney", "mixture_dev", "mixture_test"),
    ):
        rows.append(
            {
                "model": name,
                "chapter": 3,
                "train_words": result["train_words"],
                "dev": round(float(np.mean([r[dev] for r in result["runs"]])), 3),
                "test": round(float(np.mean([r[test] for r in result["runs"]])), 3),
                "parameters": result["runs"][0]["parameters"]
                + (result["kneser_ney"]["parameters"] if "+" in name else 0),
                "command": COMMAND,
            }
        )
    return rows


def one_pass(runs: Path) -> list[dict]:
    """Dev and test perplexity of the runs that were planned for a single pass."""
    train = "python chapters/experiments/nnlm_train.py"
    rows = []
    for name, options in ONE_PASS.items():
        run = read_json(runs / f"{name}.json")
        rows.append(
            {key: run[key] for key in ("train_words", "seed", "lr", "batch")}
            | {"dropout": run["config"]["dropout"]}
            | {"dev": run["curve"][-1]["dev_perplexity"]}
            | {"test": run["test_perplexity"]}
            | {"command": f"{train} {options} --out RUNS/{name}.json"}
        )
    return rows


def pack(runs: Path, encode: Encode) -> dict:
    """Write the shipped files in half precision; return what they must reach."""
    best = runs / "1m-seed0.json"  # the first seed, not the luckiest
    model = load(best.with_suffix(".safetensors"))
    path = CHAPTERS / "checkpoints" / "nnlm.safetensors"
    save_checkpoint(
        path, model, load_checkpoint(best.with_suffix(".safetensors"))[1], half=True
    )
    # Of the model of five million words the chapter only needs the word vectors.
    vectors = torch.nn.Module()
    large, config = load_checkpoint(runs / "5m-seed0.safetensors")
    vectors.register_buffer("Q", large["Q"])
    save_checkpoint(
        CHAPTERS / "checkpoints" / "nnlm_5m_vectors.safetensors",
        vectors,
        config,
        half=True,
    )
    test = encode(language_model_text(1_000_000).test[:SLICE])
    return {
        "file": path.name,
        "run": best.stem,
        "test_sentences": SLICE,
        "perplexity": round(perplexity(load(path).token_log_probs(test)), 3),
        "perplexity_before_rounding": round(
            perplexity(model.token_log_probs(test)), 3
        ),
    }


def main() -> None:
    torch.set_num_threads(1)
    runs, encode = Path(sys.argv[1]), Encode()
    path = CHAPTERS / "results" / "nnlm_perplexity.json"
    before = read_json(path) if path.exists() else {}
    sizes = before.get("sizes", {})
    parts = sys.argv[2:] or [*SIZES, "one_pass"]
    for size in SIZES:
        if size in parts:
            sizes[size] = compare(runs, size, encode)
    for result in sizes.values():
        for key in ("test", "mixture_test"):
            scores = [r[key] for r in result["runs"]]
            result[f"{key}_mean"] = float(np.mean(scores))
            result[f"{key}_std"] = (
                float(mean_and_spread(scores).std) if len(scores) > 1 else None
            )
    packed = pack(runs, encode) if set(parts) & {*SIZES} else before["checkpoint"]
    single = one_pass(runs) if "one_pass" in parts else before["one_pass"]
    result = {"command": COMMAND, "sizes": sizes}
    result |= {"one_pass": single, "checkpoint": packed}
    write_atomically(
        CHAPTERS / "results" / "nnlm_perplexity.json",
        json.dumps(result, indent=1) + "\n",
    )
    path = CHAPTERS / "results" / "perplexity.json"
    others = (
        [r for r in read_json(path) if r["command"] != COMMAND]
        if path.exists()
        else []
    )
    rows = [row for result in sizes.values() for row in table_rows(result)]
    write_atomically(path, json.dumps(others + rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
