"""Names of persons and places in the People's Daily: Chinese BERT, fine-tuned on
few sentences, beside the same network without pretraining.

Command: python chapters/experiments/bert_ner.py
Budget: about two hours on one core, half an hour with --sizes 200; finished runs
are kept, so an interrupted run goes on.

Needs chapters/checkpoints/bert_zh.safetensors. Writes
chapters/results/bert_ner.json.

Three ways of starting: random numbers, random numbers below a table of word2vec
vectors of the characters, and the pretrained BERT. The untrained ones get three
times as many steps. Each chooses its learning rate on the dev sentences with the
first seed. Beside them a dictionary: the names of the labelled sentences, found
again as strings. Labels are IOBES, one per character; the score is strict: a name
counts if its borders and its type are right. ORG is under-labelled in this corpus
(see the card of the data set), so the result is the F1 of PER and LOC together; ORG
is shown beside it.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from functools import cache

import torch
from bert_pretrain import CHAPTERS, start_from_vectors
from torch import Tensor, nn
from torch.nn import functional as F

from plm.bert import Bert, BertConfig, pad
from plm.chinese import Sentence, news
from plm.entities import Span, entity_f1, from_iobes, labels_of, to_iobes
from plm.files import read_json, write_atomically
from plm.model_files import load_bert
from plm.run_settings import decay_groups
from plm.train import fit, linear_decay
from plm.wordpiece import WordPiece

RESULT = CHAPTERS / "results" / "bert_ner.json"
CHECKPOINT = CHAPTERS / "checkpoints" / "bert_zh.safetensors"
COMMAND = "python chapters/experiments/bert_ner.py"
TYPES = ("PER", "LOC", "ORG")
LABELS = labels_of(TYPES)
STARTS = ("scratch", "vectors only", "pretrained")
SIZES = {200: 400, 1000: 1000}  # labelled sentences: steps of 16 sentences
PATIENCE = {"scratch": 3, "vectors only": 3, "pretrained": 1}  # times as many steps
RATES = (3e-4, 1e-3)
SEEDS = range(3)
N_DEV, N_TEST, BATCH = 400, 1500, 16
EXAMPLES = (
    "爱因斯坦在柏林发表演讲。",
    "李明和王小红去了上海的复旦大学。",
    "联合国秘书长安南昨天抵达巴格达。",
)
Tagged = tuple[list[int], list[str], Sentence]


@cache
def pretrained() -> tuple[Bert, WordPiece]:
    """The Chinese encoder."""
    model, tokenizer, _ = load_bert(CHECKPOINT)
    return model.bert, tokenizer


def start(how: str) -> Bert:
    """One of STARTS, with dropout."""
    bert, _ = pretrained()
    fresh = Bert(BertConfig(**{**vars(bert.config), "dropout": 0.1}))
    if how == "pretrained":
        fresh.load_state_dict(bert.state_dict())
    if how == "vectors only":
        start_from_vectors(fresh, "zh")
    return fresh


def tagged(sentence: Sentence) -> Tagged:
    """Ids with [CLS] and [SEP], and a label for each token between them."""
    encoding = pretrained()[1].encode(sentence.text)
    offsets = [o for o in encoding.offsets if o is not None]
    first = {o[0]: i for i, o in enumerate(offsets)}
    last = {o[1]: i + 1 for i, o in enumerate(offsets)}
    spans = [(first[e.start], last[e.end], e.type) for e in sentence.entities]
    return encoding.ids, to_iobes(len(offsets), spans), sentence


@cache
def sentences(part: str) -> list[Tagged]:
    """Sentences of 4 to 100 characters, shuffled once for all."""
    found = [s for article in news(part) for s in article.sentences]
    found = [s for s in found if 4 <= len(s.text) <= 100]
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0))
    most = {"train": 3 * max(SIZES), "dev": N_DEV, "test": N_TEST}[part]
    return [tagged(found[i]) for i in order[:most].tolist()]


class NameTagger(nn.Module):
    """A linear layer on each token's state."""

    def __init__(self, bert: Bert):
        super().__init__()
        self.bert, self.drop = bert, nn.Dropout(0.1)
        self.head = nn.Linear(bert.config.d_model, len(LABELS))
        nn.init.zeros_(self.head.weight)

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.drop(self.bert(rows).states))


def targets(batch: list[Tagged], width: int) -> Tensor:
    """(B, T) label ids, -100 at special tokens and padding."""
    found = torch.full((len(batch), width), -100)
    for i, (_, labels, _) in enumerate(batch):
        found[i, 1 : 1 + len(labels)] = torch.tensor(
            [LABELS.index(x) for x in labels]
        )
    return found


def batches(data: list[Tagged], seed: int) -> Iterator[list[Tagged]]:
    """Without end; sentences of like length share a batch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(data), generator=generator)
        pools = [
            sorted(pool, key=lambda i: len(data[i][0]))
            for pool in (part.tolist() for part in order.split(10 * BATCH))
        ]
        cut = [p[i : i + BATCH] for p in pools for i in range(0, len(p), BATCH)]
        for k in torch.randperm(len(cut), generator=generator).flip(0).tolist():
            yield [data[i] for i in cut[k]]


def fine_tune(
    model: NameTagger, data: list[Tagged], lr: float, seed: int, steps: int
) -> None:
    """As on the ladder."""

    def loss(batch: list[Tagged]) -> Tensor:
        rows = pad([ids for ids, _, _ in batch])
        wanted = targets(batch, rows.shape[1])
        return F.cross_entropy(model(rows).flatten(0, 1), wanted.flatten())

    fit(
        model,
        loss,
        batches(data, seed),
        steps,
        optimizer=torch.optim.AdamW(decay_groups(model, 0.01), lr=lr, fused=True),
        schedule=linear_decay(steps, steps // 10),
        clip=1.0,
    )


@torch.no_grad()
def names(model: NameTagger, data: list[Tagged]) -> list[list[Span]]:
    """The names found in each sentence, as places of tokens."""
    model.eval()
    found: list[list[Span]] = [[]] * len(data)
    order = sorted(range(len(data)), key=lambda i: len(data[i][0]))
    for i in range(0, len(order), 32):
        rows = order[i : i + 32]
        best = model(pad([data[k][0] for k in rows])).argmax(-1).tolist()
        for k, line in zip(rows, best):
            labels = [LABELS[x] for x in line[1 : 1 + len(data[k][1])]]
            found[k] = from_iobes(labels)
    return found


def score(model: NameTagger, part: str) -> dict[str, float]:
    """F1 of PER and LOC together, and of each type."""
    data = sentences(part)
    gold, found = [from_iobes(labels) for _, labels, _ in data], names(model, data)
    keep = lambda spans: [s for s in spans if s[2] != "ORG"]  # noqa: E731
    both = entity_f1([*map(keep, gold)], [*map(keep, found)]).f1
    each = {kind: round(entity_f1(gold, found, kind).f1, 4) for kind in TYPES}
    return {"f1": round(both, 4), **each}


def shown(model: NameTagger) -> dict[str, list[str]]:
    """The names found in EXAMPLES."""
    data = [tagged(Sentence(text, ())) for text in EXAMPLES]
    return {
        text: [f"{text[a:b]} {kind}" for a, b, kind in spans]
        for text, spans in zip(EXAMPLES, names(model, data))
    }


def known_names(sentences: Iterable[Sentence]) -> dict[str, str]:
    """The names in labelled sentences, with their types."""
    return {s.text[e.start : e.end]: e.type for s in sentences for e in s.entities}


def look_up(known: dict[str, str], text: str) -> list[Span]:
    """Known names, found again as strings, the longest first."""
    spans, free = [], [True] * len(text)
    for name in sorted(known, key=len, reverse=True):
        at = text.find(name)
        while at >= 0:
            if all(free[at : at + len(name)]):
                spans.append((at, at + len(name), known[name]))
                free[at : at + len(name)] = [False] * len(name)
            at = text.find(name, at + 1)
    return spans


def dictionary(n: int, seed: int) -> float:
    """F1 of PER and LOC together of the names that the labelled sentences hold."""
    known = known_names(s for _, _, s in sentences("train")[seed * n :][:n])
    gold, found = [], []
    for _, _, s in sentences("test"):
        gold.append([e for e in s.entities if e.type != "ORG"])
        found.append([e for e in look_up(known, s.text) if e[2] != "ORG"])
    return round(entity_f1(gold, found).f1, 4)


def run_one(how: str, n: int, seed: int, lr: float, steps: int) -> dict:
    """Fine-tune on sentences of their own for each seed; scores on dev and test."""
    data = sentences("train")[seed * n : (seed + 1) * n]
    torch.manual_seed(seed)
    model = NameTagger(start(how))
    fine_tune(model, data, lr, seed, steps)
    scores = {part: score(model, part) for part in ("dev", "test")}
    if n == max(SIZES) and seed == 0:
        scores["examples"] = shown(model)
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[*SIZES])
    sizes = parser.parse_args().sizes
    torch.set_num_threads(1)
    fixed = {"command": COMMAND, "sizes": SIZES, "patience": PATIENCE}
    fixed |= {"rates": RATES, "test": N_TEST}
    stored = read_json(RESULT) if RESULT.exists() else {**fixed, "runs": {}}

    def once(how: str, n: int, seed: int, lr: float) -> float:
        """Train and score, unless it is stored; F1 on the dev sentences."""
        steps = PATIENCE[how] * SIZES[n]
        key = f"{how}, {n} sentences, {steps} steps, seed {seed}, lr {lr}"
        if key not in stored["runs"]:
            stored["runs"][key] = run_one(how, n, seed, lr, steps)
            text = json.dumps(stored, indent=1, ensure_ascii=False)
            write_atomically(RESULT, text + "\n")
            print(
                key, json.dumps(stored["runs"][key], ensure_ascii=False), flush=True
            )
        return stored["runs"][key]["dev"]["f1"]

    for n in sizes:
        found = [dictionary(n, seed) for seed in SEEDS]
        stored.setdefault("dictionary", {})[str(n)] = found
        text = json.dumps(stored, indent=1, ensure_ascii=False)
        write_atomically(RESULT, text + "\n")
        for how in STARTS:
            lr = max(RATES, key=lambda rate: once(how, n, SEEDS[0], rate))
            for seed in SEEDS[1:]:
                once(how, n, seed, lr)


if __name__ == "__main__":
    main()
