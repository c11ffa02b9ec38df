"""Filling gaps: what a pretrained BERT puts where a text says [MASK], and what it would say of each token it did not see."""

from typing import Any, NamedTuple

import torch

from plm.bert import BertForPretraining
from plm.wordpiece import INSIDE, MASK, WordPiece


class Guess(NamedTuple):
    """A piece and its probability in a gap."""

    piece: str
    probability: float


def encode_gaps(tokenizer: WordPiece, text: str) -> list[int]:
    """[CLS] text [SEP] as ids, where each "[MASK]" written in the text is a gap. The only place where a special token is read."""
    ids = [tokenizer.cls_id]
    for i, part in enumerate(text.split(MASK)):
        ids += [tokenizer.mask_id] if i else []
        ids += [tokenizer.ids[piece.text] for piece in tokenizer.tokenise(part)]
    return [*ids, tokenizer.sep_id]


def fill_in(model: BertForPretraining, tokenizer: WordPiece, text: str, k: int = 5) -> list[list[Guess]]:
    """The k likeliest pieces of each gap, each gap for itself: two gaps side by side are not guessed together."""
    if k < 1:
        raise ValueError(f"ask for at least one guess, not {k}")
    if MASK not in text:
        raise ValueError(f"there is no gap in the text: write {MASK} where one is to be")
    return best(model.fill(torch.tensor([encode_gaps(tokenizer, text)]), tokenizer.mask_id), tokenizer, k)


def hide_each(model: BertForPretraining, tokenizer: WordPiece, text: str, k: int = 5) -> dict[str, Any]:
    """Hide each token of a text in turn: {"tokens", "guesses" (k for each token), "rank" (of the true token, from 1)}.

    What the front end `fill_in` draws.
    """
    ids = torch.tensor(tokenizer.encode(text).ids)
    n = len(ids) - 2
    if n < 1:
        raise ValueError("the text has no token to hide")
    rows = ids.repeat(n, 1)
    rows[torch.arange(n), torch.arange(1, n + 1)] = tokenizer.mask_id
    probabilities = torch.cat([model.fill(part, tokenizer.mask_id) for part in rows.split(32)])
    true = probabilities[torch.arange(n), ids[1:-1]]
    rank = (probabilities > true[:, None]).sum(1) + 1
    return {
        "tokens": [tokenizer.pieces[i] for i in ids[1:-1].tolist()],
        "guesses": [[(g.piece, round(g.probability, 4)) for g in row] for row in best(probabilities, tokenizer, k)],
        "rank": rank.tolist(),
    }


def complete_words(guesses: list[Guess]) -> list[Guess]:
    """Only whole words: no pieces that would continue the word before the gap."""
    return [guess for guess in guesses if not guess.piece.startswith(INSIDE)]


def best(probabilities: torch.Tensor, tokenizer: WordPiece, k: int) -> list[list[Guess]]:
    """The k likeliest pieces of each row of (N, V). A table that was rounded up has rows for no piece: they are left out."""
    if not bool(torch.isfinite(probabilities).all()):
        raise FloatingPointError("the model's scores are NaN or infinite: did its training diverge?")
    p, ids = probabilities[:, : len(tokenizer)].topk(min(k, len(tokenizer)))
    return [[Guess(tokenizer.pieces[i], value) for i, value in zip(*row)] for row in zip(ids.tolist(), p.tolist())]
