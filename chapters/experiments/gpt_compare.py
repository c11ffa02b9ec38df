"""Chapter 10: the GPT beside the word models of chapters 2 and 7, fairly.

Command: python chapters/experiments/gpt_compare.py
Budget: about 8 minutes on one core, 2.5 GB of memory.

A word model writes <unk> for every word outside its ten thousand; the GPT has
to spell it. So two comparisons. First, words of the vocabulary only: the same
words, judged by all. Second, bits per character of the whole text: the word
models get a speller, which writes an unknown word letter by letter (a Kneser-
Ney 7-gram over the letters of the training text's unknown words), and its cost
is added to that of <unk>. Dev part chooses nothing here; the numbers are of the
test part.

Needs checkpoints/gpt.safetensors and elmo.safetensors. Writes
results/gpt_compare.json. Also: how well the GPT predicts the same tokens when it is
shown only the last few tokens before them.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from plm.bpe import BPE
from plm.data import language_model_text, review_sentences
from plm.elmo import load_bilm
from plm.files import write_atomically
from plm.gpt import GPT
from plm.gpt_text import encode_document, judge
from plm.model_files import load_gpt
from plm.ngram import KneserNey
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).resolve().parents[1]
COMMAND = "python chapters/experiments/gpt_compare.py"
V, WORDS = 10_000, 5_000_000
CONTEXTS = (1, 2, 4, 8, 16, 32, 64, 127)  # tokens
N_PLACES = 3000


def book_vocab() -> Vocab:
    """The ten thousand words of chapters 3 to 7."""
    text = language_model_text(1_000_000).train
    every = (w for s in text for w in s)
    return Vocab.build(every, V, specials=LANGUAGE_MODEL_SPECIALS)


class Speller:
    """P(letters of a word | it is unknown), by a Kneser-Ney model of letters."""

    def __init__(self, words: list[str], n: int = 7):
        self.letters = Vocab.build(
            (c for w in words for c in w), specials=LANGUAGE_MODEL_SPECIALS
        )
        self.model = KneserNey(n, len(self.letters))
        self.model.fit([self.letters.encode(list(w)) for w in words])

    def log_probs(self, words: list[str]) -> np.ndarray:
        """One natural log per word, its end included."""
        found = self.model.token_log_probs(
            [self.letters.encode(list(w)) for w in words]
        )
        ends = np.cumsum([len(w) + 1 for w in words])
        return np.add.reduceat(found, np.concatenate([[0], ends[:-1]]))


def table(logs: np.ndarray, words: list[str], vocab: Vocab, extra: float) -> dict:
    """Both measures. `extra`: the spellings' log probability, if not inside."""
    known = np.array([w in vocab for w in words])
    characters = sum(1 if w == "</s>" else len(w) + 1 for w in words)
    return {
        "perplexity": math.exp(-logs.mean()),
        "perplexity_known": math.exp(-logs[known].mean()),
        "known": float(known.mean()),
        "bits_per_character": -(logs.sum() + extra) / math.log(2) / characters,
    }


@torch.no_grad()
def by_context(
    model: GPT, tokenizer: BPE, documents: list[list[list[str]]]
) -> dict:
    """Mean bits for the same tokens, behind so many tokens of their review."""
    longest, rng = max(CONTEXTS), np.random.default_rng(0)
    texts = [encode_document(tokenizer, d) for d in documents]
    places = [(k, i) for k, t in enumerate(texts) for i in range(longest, len(t))]
    chosen = [places[i] for i in rng.choice(len(places), N_PLACES, replace=False)]
    rows = torch.tensor([texts[k][i - longest : i + 1] for k, i in chosen])
    found = {}
    for n in CONTEXTS:
        total = 0.0
        for part in rows.split(100):
            scores = model(part[:, longest - n : longest])[:, -1]
            total += float(F.cross_entropy(scores, part[:, -1], reduction="sum"))
        found[n] = total / N_PLACES / math.log(2)
    return found


def main() -> None:
    torch.set_num_threads(1)
    vocab, found = book_vocab(), {}
    train = language_model_text(WORDS).train
    documents = review_sentences("imdb_test")
    sentences = [s for d in documents for s in d]
    words = [w for s in sentences for w in [*s, "</s>"]]
    ids = [vocab.encode(s) for s in sentences]
    speller = Speller([w for s in train for w in s if w not in vocab])
    unknown = [w for w in words if w not in vocab]
    spelling = float(speller.log_probs(unknown).sum())

    model, tokenizer, _ = load_gpt(CHAPTERS / "checkpoints" / "gpt.safetensors")
    judged = judge(model, tokenizer, documents)
    assert judged.words == words
    found["GPT"] = table(judged.log_probs, words, vocab, 0.0)
    print("GPT", found["GPT"], flush=True)
    bilm, read = load_bilm(CHAPTERS / "checkpoints" / "elmo.safetensors")
    logs = bilm.token_log_probs([read.encode(s) for s in sentences], n_words=V)
    found["biLM, forward"] = table(logs, words, vocab, spelling)
    print("biLM", found["biLM, forward"], flush=True)
    kn = KneserNey(5, len(vocab)).fit([vocab.encode(s) for s in train])
    logs = kn.token_log_probs(ids)
    found["5-gram, Kneser-Ney"] = table(logs, words, vocab, spelling)
    print("KN", found["5-gram, Kneser-Ney"], flush=True)

    found_context = by_context(model, tokenizer, documents)
    print(found_context, flush=True)
    result = {
        "command": COMMAND,
        "models": found,
        "speller_bits_per_unknown_word": -spelling / math.log(2) / len(unknown),
        "unknown_words": len(unknown),
        "context": found_context,
    }
    path = CHAPTERS / "results" / "gpt_compare.json"
    write_atomically(path, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
