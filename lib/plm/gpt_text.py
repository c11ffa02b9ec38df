"""Reviews as a GPT reads them: one stream of sub-words, and the way back from tokens to words, so that models can be compared.

A review is <s>, then its sentences, each a run of words with a space behind every word, and </s> behind every sentence. Words
are those of plm.tokenize (lower case), so that the models of chapters 2 to 7 read the same text.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plm.bpe import BPE
from plm.data import review_sentences
from plm.gpt import GPT

Document = list[list[str]]  # sentences of words


def pretraining_documents(n_words: int = 5_000_000, seed: int = 0) -> list[Document]:
    """IMDB reviews up to `n_words` words (those of `language_model_text`) and all Rotten Tomatoes training texts, shuffled."""
    documents, size = [], 0
    for document in review_sentences("imdb_train"):
        if size >= n_words:
            break
        documents.append(document)
        size += sum(map(len, document))
    if size < n_words:
        raise ValueError(f"asked for {n_words:,} words, but the reviews hold {size:,}")
    documents += review_sentences("rt_train")
    return [documents[i] for i in np.random.default_rng(seed).permutation(len(documents))]


def sentence_text(words: Sequence[str]) -> str:
    """The text of a sentence: a space behind each word, also the last."""
    if isinstance(words, str):
        raise TypeError("a sentence is a list of words, not one string: plm.tokenize.words(text) makes it")
    return "".join(word + " " for word in words)


def encode_document(tokenizer: BPE, document: Iterable[Sequence[str]]) -> list[int]:
    """<s>, and each sentence with </s> behind it."""
    ids = [tokenizer.start_id]
    for sentence in document:
        ids += [*tokenizer.encode(sentence_text(sentence)), tokenizer.end_id]
    return ids


def pack(documents: Iterable[Sequence[int]], T: int) -> Tensor:
    """Documents end to end in rows of T + 1 ids, (N, T + 1) int64; what is left at the end is dropped.

    Rows overlap by one: the last id of a row is the first of the next, so that every token but the first is predicted once.
    """
    if T < 1:
        raise ValueError(f"T must be at least 1 token, not {T}")
    stream = torch.tensor([i for ids in documents for i in ids])
    if len(stream) <= T:
        raise ValueError(f"{len(stream)} tokens are too few for a single row of T + 1 = {T + 1}")
    return stream.unfold(0, T + 1, T).contiguous()


@dataclass(frozen=True)
class Judged:
    """What a model gave to some documents: one number per word and sentence end, in the order of the text."""

    log_probs: NDArray[np.float64]  # natural logs; a word's is the sum over its tokens
    words: list[str]  # with </s> for sentence ends
    tokens: int  # how many tokens that were
    characters: (
        int  # a word's letters and the space behind it; a sentence end stands for one character, as a line break does
    )

    @property
    def perplexity(self) -> float:
        """Per word, sentence ends included: what the word models of chapters 2 to 7 report."""
        return math.exp(-self.log_probs.mean())

    @property
    def token_perplexity(self) -> float:
        """Per token: it says as much about the tokenizer as about the model."""
        return math.exp(-self.log_probs.sum() / self.tokens)

    @property
    def bits_per_character(self) -> float:
        """Comparable between any two models that give the whole text a probability."""
        return -self.log_probs.sum() / math.log(2) / self.characters


def judge(model: GPT, tokenizer: BPE, documents: Sequence[Document], stride: int | None = None) -> Judged:
    """Read each document by itself and add up each word's log probabilities. stride: as in `GPT.token_log_probs`."""
    if not len(documents):
        raise ValueError("there is no document to judge")
    sums, words, n_tokens, n_characters = [], [], 0, 0
    for document in documents:
        ids, starts = [tokenizer.start_id], []
        for sentence in document:
            if isinstance(sentence, str):
                raise TypeError("a document is a list of sentences, each a list of words: plm.tokenize.words(text)")
            for word in sentence:
                starts.append(len(ids) - 1)  # of the word's first token, among the predicted ones
                ids += tokenizer.encode_word(word + " ")
                n_characters += len(word) + 1
            starts.append(len(ids) - 1)
            ids.append(tokenizer.end_id)
            words += [*sentence, "</s>"]
            n_characters += 1
        logs = model.token_log_probs(ids, stride)
        sums.append(np.add.reduceat(logs, starts))
        n_tokens += len(logs)
    return Judged(np.concatenate(sums), words, n_tokens, n_characters)
