"""The Transformer of Vaswani et al. (2017): encoder and decoder put together for translation, and its smoothed loss."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import KVCache, causal_mask, padding_mask
from plm.layers import Decoder, DecoderCache, Encoder, LayerConfig, sinusoidal_positions


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(LayerConfig):
    """Sizes of an encoder-decoder."""

    source_vocab: int
    target_vocab: int
    max_len: int = 128  # longest sequence, source or target; positions are computed, so more costs nothing but a table
    tied: bool = True  # one table for target words and for their scores (Press and Wolf 2017; the paper ties all three)
    pad_id: int = 0  # fills up short rows on the right; nothing may look at it

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("source_vocab", "target_vocab", "max_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")


class Embedding(nn.Module):
    """Word vectors times sqrt(d_model), plus positions. Without the factor the positions would drown the words."""

    def __init__(self, vocab_size: int, config: TransformerConfig):
        super().__init__()
        self.words = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.words.weight, std=config.d_model**-0.5)
        self.drop = nn.Dropout(config.dropout)
        self.positions: Tensor
        self.register_buffer("positions", sinusoidal_positions(config.max_len, config.d_model), persistent=False)

    def forward(self, ids: Tensor, first: int = 0) -> Tensor:
        """ids: (B, T) int64, standing at positions first, first + 1, … Returns (B, T, d_model)."""
        if not isinstance(ids, Tensor):
            raise TypeError(
                f"ids must be a tensor (B, T), not {type(ids).__name__}: look the words up in the vocabulary"
            )
        if ids.dtype != torch.int64 or ids.ndim != 2:
            raise TypeError(f"ids must be (B, T) int64; got {tuple(ids.shape)} {ids.dtype}")
        last, longest = first + ids.shape[1], len(self.positions)
        if first < 0 or ids.shape[1] == 0:
            raise ValueError(f"need at least one token, at position 0 or later; got {ids.shape[1]} from {first} on")
        if last > longest:
            raise ValueError(f"position {last - 1} is beyond max_len = {longest}: cut the input or raise max_len")
        if ids.numel() and not (ids.min() >= 0 and ids.max() < self.words.num_embeddings):
            raise IndexError(
                f"ids must lie in 0 … {self.words.num_embeddings - 1}; got {ids.min().item()} … {ids.max().item()}"
            )
        scaled = self.words(ids) * math.sqrt(self.words.embedding_dim)
        return self.drop(scaled + self.positions[first:last])


class Decoded(NamedTuple):
    """What the decoder gives for target words (B, T)."""

    logits: Tensor  # (B, T, V)
    weights: list[Tensor]  # per layer, of the self-attention: (B, n_heads, T, T_k)
    cross_weights: list[Tensor]  # per layer, of the attention to the source: (B, n_heads, T, T_source)


class State(NamedTuple):
    """What decoding carries from word to word."""

    memory: Tensor  # (B, T_source, d_model), the encoder's output
    memory_mask: Tensor  # (B, 1, T_source)
    caches: list[DecoderCache]  # per layer


class Transformer(nn.Module):
    """Encoder, decoder, and a score for every target word. Vaswani et al. 2017, figure 1."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(config.source_vocab, config)
        self.target_embedding = Embedding(config.target_vocab, config)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.generator = nn.Linear(config.d_model, config.target_vocab)
        nn.init.zeros_(self.generator.bias)
        if config.tied:
            self.generator.weight = self.target_embedding.words.weight

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """source: (B, T_source); target_in: (B, T), behind a start token. Returns logits (B, T, V): row t is about t + 1."""
        memory, mask, _ = self.encode(source)
        return self.decode(target_in, memory, mask).logits

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Read the source, (B, T_source) int64, filled up with pad_id on the right.

        Returns the memory (B, T_source, d_model), its mask (B, 1, T_source), and the attention weights of each layer.
        """
        x, mask = self.source_embedding(source), padding_mask(source, self.config.pad_id)
        memory, weights = self.encoder(x, mask)
        return memory, mask, weights

    def decode(
        self,
        target_in: Tensor,
        memory: Tensor,
        memory_mask: Tensor,
        caches: list[DecoderCache] | None = None,
    ) -> Decoded:
        """Score the word after each of the target words (B, T); with `caches`, after the words seen before and these."""
        before = len(caches[0].own) if caches else 0
        x, mask = self.target_embedding(target_in, before), self.target_mask(target_in, before)
        x, weights, cross_weights = self.decoder(x, memory, mask, memory_mask, caches)
        return Decoded(self.generator(x), weights, cross_weights)

    def target_mask(self, target_in: Tensor, before: int = 0) -> Tensor:
        """What each target word may look at: itself, the words on its left, never padding. (B, T, before + T)."""
        n = target_in.shape[1]
        real = F.pad(padding_mask(target_in, self.config.pad_id), (before, 0), value=True)
        return real & causal_mask(n, before + n, target_in.device)

    def start(self, source: Tensor) -> State:
        """Read the source once; with `step`, what plm.decode needs."""
        memory, mask, _ = self.encode(source)
        return State(memory, mask, [DecoderCache(KVCache(), KVCache()) for _ in self.decoder.layers])

    def step(self, last: Tensor, state: State) -> tuple[Tensor, State]:
        """last: (N,), the word written last. Returns logits (N, V) for the next one; the state's caches grow by a word."""
        decoded = self.decode(last[:, None], state.memory, state.memory_mask, caches=state.caches)
        return decoded.logits[:, 0], state


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.1, ignore: int = -100) -> Tensor:
    """Cross entropy against 1 - smoothing on the right word plus smoothing / V on every word; mean over targets that count.

    logits: (..., V); targets: (...) int64, `ignore` where none counts (0 if none does). Equals F.cross_entropy with
    label_smoothing. Szegedy et al. 2016, sec. 7.
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is a share below 1, not {smoothing}")
    counts = targets != ignore
    log_p = logits[counts].log_softmax(-1)  # (N, V)
    right = -log_p.gather(-1, targets[counts, None])[:, 0]
    everywhere = -log_p.mean(-1)
    return ((1 - smoothing) * right + smoothing * everywhere).sum() / counts.sum().clamp(min=1)
