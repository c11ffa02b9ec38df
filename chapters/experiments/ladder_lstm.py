"""Chapter 6 on the ladder: a sentence classifier that reads with an LSTM.

    python chapters/experiments/ladder_lstm.py

Budget: about 20 minutes of one core, 5 seeds (the other rungs have 10). Needs
chapters/checkpoints/word2vec_5m_vectors.safetensors and lstm.safetensors. Finished
runs are kept in the cache folder, and rungs go into chapters/results/ladder.json.

Words -> vectors -> an LSTM in both directions, 64 units each -> the mean of its
true outputs -> a linear layer. The vectors are random, or word2vec's, and frozen or
trained along. "LSTM, pretrained" takes vectors and LSTM from the language model of
this chapter (one direction, 256 units), and trains all on. Learning rate and number
of steps of each way are chosen on the dev part, per number of labels.
"""

import argparse
from functools import cache
from pathlib import Path

import torch
from ladder_vectors import labels, scaled, table, texts
from torch import Tensor, nn
from torch.nn import functional as F

from plm.evaluate import Rung, accuracy, add_rung, climb
from plm.files import cache_dir
from plm.lstm import LSTM
from plm.recurrent import RecurrentLM, RecurrentLMConfig
from plm.rnn import mean_output
from plm.train import Batches, load_checkpoint, seed_everything

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/ladder_lstm.py"
SEEDS = range(5)
STEPS = (60, 150, 350)
RATES = (1e-3, 4e-3)
ARMS = {  # name: vectors, way, pretrained LSTM
    "LSTM, random vectors": ("random", "random", False),
    "LSTM on word2vec, frozen": ("word2vec_5m_vectors", "frozen", False),
    "LSTM on word2vec, fine-tuned": ("word2vec_5m_vectors", "fine-tuned", False),
    "LSTM, pretrained": ("lm", "fine-tuned", True),
}
Data = tuple[Tensor, Tensor, Tensor]  # ids (N, T), lengths (N,), labels (N,)


class Reader(nn.Module):
    """Vectors, an LSTM, the mean over the true words, a linear layer."""

    def __init__(self, Q: Tensor, layer: LSTM, frozen: bool):
        super().__init__()
        self.Q = nn.Parameter(Q.clone(), requires_grad=not frozen)
        self.layer, self.drop = layer, nn.Dropout(0.3)
        self.head = nn.Linear(layer.d_out * len(layer.directions), 2)

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        outputs, _ = self.layer(self.drop(F.embedding(ids, self.Q)), None, lengths)
        return self.head(self.drop(mean_output(outputs, lengths)))


@cache
def language_model() -> RecurrentLM:
    state, config = load_checkpoint(CHAPTERS / "checkpoints" / "lstm.safetensors")
    model = RecurrentLM(RecurrentLMConfig(**config))
    state["output.weight"] = state["embedding.weight"]  # one table, stored once
    model.load_state_dict(state)
    return model


@cache
def data(vectors: str, part: str) -> Data:
    """Known words only, at least one; padded with 0 and cut at 60 words."""
    vocab = table("random" if vectors == "lm" else vectors)[1]
    rows = [vocab.encode([w for w in s if w in vocab][:60]) for s in texts(part)]
    rows = [row or [0] for row in rows]
    tensors = [torch.tensor(row) for row in rows]
    ids = nn.utils.rnn.pad_sequence(tensors, batch_first=True)
    wanted = torch.as_tensor(labels(part))
    return ids, torch.tensor([len(row) for row in rows]), wanted


def build(vectors: str, way: str, pretrained: bool, seed: int) -> Reader:
    if not pretrained:
        Q = scaled(table(vectors, seed)[0], "own")
        layer = LSTM(Q.shape[1], 64, bidirectional=True, forget_bias=1.0)
        return Reader(Q, layer, way == "frozen")
    model = language_model()
    layer = LSTM(model.config.d_emb, model.config.d_hidden)
    layer.load_state_dict(model.layer.state_dict())
    return Reader(model.embedding.weight.detach(), layer, False)


@torch.no_grad()
def score(model: Reader, held_out: Data) -> float:
    ids, lengths, wanted = held_out
    order = lengths.argsort()  # little padding
    model.eval()
    guesses = [
        model(ids[rows, : int(lengths[rows].max())], lengths[rows]).argmax(1)
        for rows in order.split(100)
    ]
    model.train()
    return accuracy(torch.cat(guesses), wanted[order])


def run(arm: str, rows: Tensor, seed: int) -> dict:
    vectors, way, pretrained = ARMS[arm]
    ids, lengths, wanted = (part[rows] for part in data(vectors, "train"))
    scores = {}
    for lr in RATES:
        seed_everything(seed)
        model = build(vectors, way, pretrained, seed)
        chosen = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(chosen, lr, fused=True)
        batches, step = Batches(ids, lengths, wanted, batch_size=32, seed=seed), 0
        while step < STEPS[-1]:
            for x, n, y in batches:
                loss = F.cross_entropy(model(x[:, : int(n.max())], n), y)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(chosen, 1.0)
                optimizer.step()
                step += 1
                if step in STEPS:
                    scores[("lr", lr), ("steps", step)] = tuple(
                        score(model, data(vectors, part))
                        for part in ("dev", "test")
                    )
                if step == STEPS[-1]:
                    break
    return scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", choices=list(ARMS), default=list(ARMS))
    torch.set_num_threads(1)
    for arm in parser.parse_args().only:
        found = climb(
            lambda rows, seed, arm=arm: run(arm, rows, seed),
            seeds=SEEDS,
            store=cache_dir() / "runs" / f"ladder {arm}.json",
        )
        path = CHAPTERS / "results" / "ladder.json"
        add_rung(path, Rung(arm, 6, ARMS[arm][1], "LSTM", COMMAND, found))
        print(arm, found, flush=True)


if __name__ == "__main__":
    main()
