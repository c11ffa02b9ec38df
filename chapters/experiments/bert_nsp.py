"""Why does our BERT not learn next sentence prediction? Two measurements.

Command: python chapters/experiments/bert_nsp.py
Budget: about 2 minutes on one core; finished parts are kept. `--only` does one.

Needs chapters/checkpoints/bert.safetensors. Writes chapters/results/bert_nsp.json.

judge: held-out pairs judged by nothing but the pieces that A and B share, rare ones
weighing more; rows of two lengths, with and without hidden places; "judge zh" does
the same in Chinese. What it reaches is in the pairs for anyone to see. states: the
pretrained BERT as it is; nothing hidden, and no pair has been trained on but by a
logistic regression. It reads the state of [CLS], or the two passages' mean states,
either side by side or multiplied and subtracted; "cosine" has no parameter, only
the median as its threshold. Layer 0 is the control: a mean of word vectors.
"""

import argparse
import json

import numpy as np
import torch
from bert_pretrain import CHAPTERS
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from plm.bert import IS_NEXT
from plm.bert_data import Corpus, corpus, piece_counts
from plm.files import read_json, write_atomically
from plm.masking import Pairs
from plm.model_files import load_bert

COMMAND = "python chapters/experiments/bert_nsp.py"
LENGTHS, HIDDEN, N_JUDGED = (64, 128), (0.0, 0.3), 3000
N_TRAIN, N_TEST, PENALTY = 4000, 2000, 1e-3  # C of scikit-learn
T = 128


def judge(pairs: Pairs, weight: np.ndarray, length: int, hidden: float) -> float:
    """Accuracy of "B goes on if it shares more than the median pair does"."""
    rng = np.random.default_rng(1)
    drawn = pairs.draw(N_JUDGED, length, rng)
    shown = rng.random(drawn["ids"].shape) >= hidden
    shares = []
    for ids, seen, segments in zip(drawn["ids"], shown, drawn["segments"]):
        a, b = ({*ids[seen & (segments == k)].tolist()} for k in (0, 1))
        of_b = weight[list(b)].sum()
        shares.append(weight[list(a & b)].sum() / of_b if of_b else 0.0)
    near = np.array(shares) > np.median(shares)
    return float((near == (drawn["is_next"] == IS_NEXT)).mean())


def pairs_of(text: Corpus) -> list[Pairs]:
    """Pairs of the training and of the dev part."""
    ends = text.tokenizer.cls_id, text.tokenizer.sep_id
    return [Pairs(part, *ends) for part in (text.train, text.dev)]


def judges(text: Corpus, dev: Pairs) -> dict[str, float]:
    """`judge` on rows of two lengths, with and without hidden places."""
    counts = piece_counts(text.train, len(text.tokenizer)) + 1
    weight = np.log(counts.sum() / counts) ** 3
    weight[[text.tokenizer.cls_id, text.tokenizer.sep_id]] = 0
    return {
        f"{n} tokens, {hidden:.0%} hidden": judge(dev, weight, n, hidden)
        for n in LENGTHS
        for hidden in HIDDEN
    }


@torch.no_grad()
def passages(
    model, pairs: Pairs, n: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(layers, n, 3, d_model): [CLS] and the means of A and B; and what is next."""
    drawn = pairs.draw(n, T, np.random.default_rng(seed))
    found = []
    for rows in np.split(np.arange(n), n // 100):
        ids, segments = (
            torch.from_numpy(drawn[k][rows]) for k in ("ids", "segments")
        )
        layers = []
        for states in model.bert.all_states(ids, segments=segments):
            means = [states[:, 0]]
            for k in (0, 1):
                real = ((segments == k) & (ids > 4))[:, :, None]
                means.append((states * real).sum(1) / real.sum(1))
            layers.append(torch.stack(means, 1))
        found.append(torch.stack(layers))
    return torch.cat(found, 1).numpy(), drawn["is_next"] == IS_NEXT


def states(train: Pairs, dev: Pairs) -> dict[str, dict[str, float]]:
    """Accuracy on held-out pairs of four ways to read each layer."""
    model, _, _ = load_bert(CHAPTERS / "checkpoints" / "bert.safetensors")
    model.eval()
    x, y = passages(model, train, N_TRAIN, 0)
    held_out, wanted = passages(model, dev, N_TEST, 1)
    result = {}
    for k in range(len(x)):
        middle, spread = (f(x[k][:, 1:], (0, 1)) for f in (np.mean, np.std))
        parts = [
            [(layer[k][:, i] - middle) / spread for i in (1, 2)]
            for layer in (x, held_out)
        ]
        norms = [np.linalg.norm(p, axis=1) for p in parts[1]]
        cosine = (parts[1][0] * parts[1][1]).sum(1) / norms[0] / norms[1]
        near = cosine > np.median(cosine)
        ways = {
            "[CLS]": [layer[k][:, 0] for layer in (x, held_out)],
            "side by side": [np.hstack(p) for p in parts],
            "product and difference": [
                np.hstack([a * b, np.abs(a - b)]) for a, b in parts
            ],
        }
        result[f"layer {k}"] = {"cosine": float((near == wanted).mean())}
        for name, (fitted, tested) in ways.items():
            scale = StandardScaler().fit(fitted)
            probe = LogisticRegression(C=PENALTY, max_iter=500)
            probe.fit(scale.transform(fitted), y)
            right = probe.score(scale.transform(tested), wanted)
            result[f"layer {k}"][name] = float(right)
        print(k, result[f"layer {k}"], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("judge", "judge zh", "states"))
    only = parser.parse_args().only
    torch.set_num_threads(1)
    text = corpus("en")
    train, dev = pairs_of(text)
    path = CHAPTERS / "results" / "bert_nsp.json"
    stored = read_json(path) if path.exists() else {"command": COMMAND}
    stored |= {"length": T}

    def keep(part: str, make) -> None:
        if part not in stored and only in (None, part):
            stored[part] = make()
            write_atomically(path, json.dumps(stored, indent=1) + "\n")
            print(part, stored[part], flush=True)

    keep("judge", lambda: judges(text, dev))
    keep("judge zh", lambda: judges(chinese := corpus("zh"), pairs_of(chinese)[1]))
    keep("states", lambda: states(train, dev))


if __name__ == "__main__":
    main()
