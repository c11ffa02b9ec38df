"""One pretraining step of our BERT beside transformers' BertForPreTraining, at equal sizes and equal text.

Command: python benchmarks/bert.py    (about two minutes, one thread)

Two differences are ours to claim: only hidden places go through the decoder, and rows are full. "Same batch" gives both
models the same full rows; "same text" gives transformers rows as its pairs of whole sentences would fill them, the rest
padding, and compares real tokens per second. The step is forward, backward, clipping and AdamW on both sides; dropout 0.1.
Medians of alternating rounds.
"""

import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig as TheirConfig
from transformers import BertForPreTraining

from plm.bert import BertConfig, BertForPretraining
from plm.masking import Documents, MaskingConfig, PretrainingBatches
from plm.run_settings import decay_groups

V, D, LAYERS, HEADS, T, ROWS, ROUNDS = 6000, 256, 4, 4, 64, 32, 7


class Vocabulary:
    """The ids that the batches need."""

    cls_id, sep_id, mask_id, special_ids = 2, 3, 4, (0, 1, 2, 3, 4)

    def __len__(self) -> int:
        return V


def documents() -> Documents:
    """Invented documents with sentences as long as those of reviews."""
    rng = np.random.default_rng(0)
    return Documents.build(
        [[rng.integers(5, V, rng.integers(6, 45)).tolist() for _ in range(rng.integers(5, 20))] for _ in range(300)]
    )


def padded(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same rows as pairs of two whole sentences would leave them: cut shorter, and filled up with padding."""
    rng = np.random.default_rng(1)
    lengths = np.minimum(T, 3 + rng.integers(6, 45, len(batch["ids"])) + rng.integers(6, 45, len(batch["ids"])))
    ids, real = batch["ids"].clone(), torch.arange(T) < torch.from_numpy(lengths)[:, None]
    return {**batch, "ids": ids.masked_fill(~real, 0), "real": real}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Everything behind the forward pass."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ours = BertForPretraining(
        BertConfig(vocab_size=V, n_positions=T, d_model=D, n_heads=HEADS, n_layers=LAYERS)
    ).train()
    sizes = {"hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 4 * D}
    theirs = BertForPreTraining(TheirConfig(vocab_size=V, max_position_embeddings=T, **sizes)).train()
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    optimizers = [torch.optim.AdamW(decay_groups(m, 0.01), lr=1e-4, fused=True) for m in (ours, theirs)]
    batches = PretrainingBatches(documents(), Vocabulary(), MaskingConfig(), tokens=ROWS * T, lengths=(T,))

    def our_step(batch: dict[str, Tensor]) -> None:
        step(ours, optimizers[0], sum(total / max(1, n) for total, n in ours.loss(batch).values()))

    def their_step(batch: dict[str, Tensor]) -> None:
        labels = torch.full(batch["ids"].shape, -100)
        labels.view(-1)[batch["positions"]] = batch["targets"]
        real = batch.get("real", torch.ones_like(batch["ids"], dtype=torch.bool))
        labels[~real] = -100
        found = theirs(
            batch["ids"], attention_mask=real.long(), token_type_ids=batch["segments"], labels=labels,
            next_sentence_label=batch["is_next"],
        )  # fmt: skip
        step(theirs, optimizers[1], found.loss)

    times: dict[str, list[float]] = {"ours": [], "theirs": [], "theirs, padded rows": []}
    shares = []
    for r in range(ROUNDS + 1):
        batch = batches.next()
        rows = padded(batch)
        shares.append(rows["real"].float().mean().item())
        for name, run in (("ours", lambda b=batch: our_step(b)), ("theirs", lambda b=batch: their_step(b)),
                          ("theirs, padded rows", lambda b=rows: their_step(b))):  # fmt: skip
            started = time.perf_counter()
            run()
            if r:  # the first round warms up
                times[name].append(time.perf_counter() - started)
    median = {name: statistics.median(values) for name, values in times.items()}
    share = statistics.mean(shares)
    print(f"BERT, d {D}, {LAYERS} layers, V {V}, {ROWS} rows of {T}, one thread; seconds per step")
    for name, value in median.items():
        print(f"  {name:22} {value:.3f}")
    print(f"same batch: transformers / ours = {median['theirs'] / median['ours']:.2f}")
    padded_ratio = median["theirs, padded rows"] / share / median["ours"]
    print(
        f"same text, real tokens per second: ours / transformers = {padded_ratio:.2f} ({share:.0%} of a padded row is real)"
    )


if __name__ == "__main__":
    main()
