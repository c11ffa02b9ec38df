"""Text as a recurrent language model reads it: one stream, sentences side by side, lanes, and batches of sentences."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from plm.ngram import END_ID, START_ID, windows

IGNORED = -100
Sentences = Sequence[Sequence[int]]


def text_stream(sentences: Sentences, start_id: int = START_ID, end_id: int = END_ID) -> tuple[Tensor, Tensor]:
    """All sentences as one text: inputs and targets (N,) int64, N = words + sentences; a model reads on across the ends.

    The target after the last word of a sentence is </s>; the input after that is <s>, the first of the next sentence.
    """
    pairs = bigrams(sentences, start_id, end_id)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous()


def pad_sentences(
    sentences: Sentences, start_id: int = START_ID, end_id: int = END_ID
) -> tuple[Tensor, Tensor, Tensor]:
    """Sentences side by side: inputs (B, T) that open with <s>, targets (B, T) that end with </s>, lengths (B,), int64.

    Padding is `end_id` in the inputs and -100, the ignored target, in the targets.
    """
    bigrams(sentences, start_id, end_id)
    lengths = torch.tensor([len(s) + 1 for s in sentences])
    inputs = torch.full((len(sentences), int(lengths.max())), end_id)
    targets = torch.full_like(inputs, IGNORED)
    for row, sentence in enumerate(sentences):
        n = len(sentence) + 1
        inputs[row, :n] = torch.tensor([start_id, *sentence])
        targets[row, :n] = torch.tensor([*sentence, end_id])
    return inputs, targets, lengths


def bigrams(sentences: Sentences, start_id: int, end_id: int) -> Tensor:
    """(word before, word) of all words and </s>, (N, 2) int64: the n-gram models' own count, with their checks."""
    if len(sentences) == 0:
        raise ValueError("there is no sentence")
    if any(isinstance(s, str) or (isinstance(s, Sequence) and s and isinstance(s[0], str)) for s in sentences):
        raise TypeError("sentences must be lists of ids, not strings: vocab.encode(words(text)) makes them")
    return torch.from_numpy(windows(sentences, 2, start_id, end_id).astype(np.int64))


class TextLanes:
    """One long text cut into `batch_size` lanes side by side, read in steps of `T`: for training with a carried state.

    inputs, targets: (N,) as made by `text_stream`. Yields (inputs, targets), each (batch_size, T); row i of a batch goes on
    where row i of the one before stopped, and the last batch of a pass may be shorter. Fewer than batch_size tokens at the
    end of the text do not fill all lanes and are left out. `shift` starts the pass that many tokens into the text (the
    tokens before it come last), so that passes cut the text at different places.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, batch_size: int, T: int, shift: int = 0):
        if inputs.shape != targets.shape or inputs.ndim != 1:
            raise ValueError(f"inputs and targets must be (N,); got {tuple(inputs.shape)} and {tuple(targets.shape)}")
        if batch_size < 1 or T < 1 or len(inputs) < batch_size:
            raise ValueError(f"{len(inputs)} tokens cannot fill {batch_size} lanes in steps of {T}")
        n = len(inputs) // batch_size
        self.T = T
        self.inputs, self.targets = (
            tokens.roll(-shift)[: n * batch_size].view(batch_size, n) for tokens in (inputs, targets)
        )

    def __len__(self) -> int:
        return -(-self.inputs.shape[1] // self.T)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(self.inputs.split(self.T, 1), self.targets.split(self.T, 1))


class SentenceBatches:
    """Shuffled batches of whole sentences, for training where each starts anew: about `tokens` predictions in each.

    Sentences of like length share a batch. Yields (inputs, targets, lengths) of `pad_sentences`. Each pass has a new order.
    Sentences beyond `longest` words are cut into pieces of that length; only the first piece opens with <s>.
    """

    def __init__(
        self,
        sentences: Sentences,
        tokens: int,
        seed: int = 0,
        longest: int = 80,
        start_id: int = START_ID,
        end_id: int = END_ID,
    ):
        bigrams(sentences, start_id, end_id)
        if tokens < 1 or longest < 1:
            raise ValueError(f"tokens and longest must be at least 1; got {tokens} and {longest}")
        self.generator, self.tokens = torch.Generator().manual_seed(seed), tokens
        self.pieces: list[tuple[Tensor, Tensor]] = []
        for sentence in sentences:
            pair = torch.tensor([start_id, *sentence]), torch.tensor([*sentence, end_id])
            self.pieces += zip(*(part.split(longest) for part in pair))
        self.end_id = end_id

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        noise = torch.rand(len(self.pieces), generator=self.generator).tolist()
        # Sorted by length with a little noise: each pass mixes the neighbours anew, and almost nothing is padding.
        order = sorted(range(len(self.pieces)), key=lambda i: len(self.pieces[i][0]) + 2 * noise[i])
        cuts, longest = [0], 0
        for k, i in enumerate(order):
            longest = max(longest, len(self.pieces[i][0]))
            if longest * (k + 1 - cuts[-1]) > self.tokens and k > cuts[-1]:
                cuts.append(k)
                longest = len(self.pieces[i][0])
        batches = list(pairwise([*cuts, len(order)]))
        for b in torch.randperm(len(batches), generator=self.generator).tolist():
            chosen = [self.pieces[i] for i in order[slice(*batches[b])]]
            lengths = torch.tensor([len(x) for x, _ in chosen])
            columns = zip(*chosen)
            inputs, targets = (
                nn.utils.rnn.pad_sequence(list(column), batch_first=True, padding_value=fill)
                for column, fill in zip(columns, (self.end_id, IGNORED))
            )
            yield inputs, targets, lengths
