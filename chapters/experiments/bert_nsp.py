"""Why does our BERT not learn next sentence prediction? Two measurements.

Command: python chapters/experiments/bert_nsp.py
Budget: about 8 minutes on one core.

Needs chapters/checkpoints/bert.safetensors. Writes chapters/results/bert_nsp.json.

judge: held-out pairs judged by nothing but the pieces that A and B share, rare ones
weighing more; rows of two lengths, with and without hidden places. What it reaches
is in the pairs for anyone to see. alone: the pretrained BERT goes on with the
second task only, nothing hidden, with fresh weights behind [CLS]; accuracy on
held-out pairs on the way.
"""

import json

import numpy as np
import torch
from bert_pretrain import CHAPTERS
from torch import nn
from torch.nn import functional as F

from plm.bert import IS_NEXT
from plm.bert_data import corpus, piece_counts
from plm.files import write_atomically
from plm.masking import Pairs
from plm.model_files import load_bert
from plm.train import linear_decay

COMMAND = "python chapters/experiments/bert_nsp.py"
LENGTHS, HIDDEN, N_JUDGED = (64, 128), (0.0, 0.3), 3000
RATES, STEPS, BATCH, T, N_DEV = (3e-4, 1e-3), 200, 32, 128, 600


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


def alone(train: Pairs, dev: Pairs, lr: float) -> dict[int, float]:
    """Accuracy on held-out pairs, every 50 steps of the second task alone."""
    torch.manual_seed(0)
    model, _, _ = load_bert(CHAPTERS / "checkpoints" / "bert.safetensors")
    for layer in (model.bert.pooler, model.nsp):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.98))
    factor, rng = linear_decay(STEPS, 20), np.random.default_rng(0)
    held_out = dev.draw(N_DEV, T, np.random.default_rng(1))
    found: dict[int, float] = {}

    def logits(drawn: dict) -> torch.Tensor:
        ids, segments = (torch.from_numpy(drawn[k]) for k in ("ids", "segments"))
        return model.nsp(model.bert(ids, segments=segments).pooled)

    for step in range(1, STEPS + 1):
        optimizer.param_groups[0]["lr"] = lr * factor(step - 1)
        drawn = train.draw(BATCH, T, rng)
        loss = F.cross_entropy(logits(drawn), torch.from_numpy(drawn["is_next"]))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            with torch.no_grad():
                parts = np.split(np.arange(N_DEV), N_DEV // 100)
                rows = [{k: v[i] for k, v in held_out.items()} for i in parts]
                guess = torch.cat([logits(r).argmax(1) for r in rows]).numpy()
            found[step] = float((guess == held_out["is_next"]).mean())
            print(lr, step, round(loss.item(), 4), found[step], flush=True)
    return found


def main() -> None:
    torch.set_num_threads(1)
    text = corpus("en")
    ends = text.tokenizer.cls_id, text.tokenizer.sep_id
    train, dev = Pairs(text.train, *ends), Pairs(text.dev, *ends)
    counts = piece_counts(text.train, len(text.tokenizer)) + 1
    weight = np.log(counts.sum() / counts) ** 3
    weight[list(ends)] = 0
    judged = {
        f"{n} tokens, {hidden:.0%} hidden": judge(dev, weight, n, hidden)
        for n in LENGTHS
        for hidden in HIDDEN
    }
    print(judged, flush=True)
    result = {"command": COMMAND, "judge": judged, "batch": BATCH, "length": T}
    result["alone"] = {lr: alone(train, dev, lr) for lr in RATES}
    path = CHAPTERS / "results" / "bert_nsp.json"
    write_atomically(path, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
