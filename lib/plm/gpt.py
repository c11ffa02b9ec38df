"""GPT: a stack of masked blocks that predicts the next token. Radford et al. 2018 (GPT-1, post-norm), 2019 (GPT-2, pre-norm).

A block is the Transformer's encoder layer with a causal mask; or, said the other way round, its decoder layer without the
attention to a source. Positions are learnt, the activation is GELU, and the table of tokens serves as the output matrix too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import KVCache, Mask, MultiHeadAttention, causal_mask, keep_weights
from plm.evaluate import modes, restore
from plm.layers import Encoder, FeedForward, LayerConfig
from plm.linear_loss import linear_cross_entropy


@dataclass(frozen=True, kw_only=True)
class GPTConfig(LayerConfig):
    """Sizes of a GPT. GPT-1: 40,478 tokens, 512 positions, d_model 768, 12 heads, 12 layers, post-norm; see `GPT1`, `GPT2`."""

    vocab_size: int  # V, rows of the table
    n_positions: int = 128  # longest context; each position has a vector of its own, and there is none beyond
    d_ff: int = 0  # hidden width of the feed-forward layers; 0 means 4 * d_model
    n_layers: int = 4
    norm: str = "pre"  # "post" is GPT-1's, "pre" GPT-2's, with a last norm behind the stack
    activation: str = "gelu_tanh"  # the form with tanh, as both papers' code has it
    n_ids: int = 0  # ids that mean something, if vocab_size was rounded up; the rest is never generated. 0: all
    init_std: float = 0.02  # of all matrices and tables at the start

    def __post_init__(self) -> None:
        for name, value in (("d_ff", 4 * self.d_model), ("n_ids", self.vocab_size)):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, value)
        super().__post_init__()
        for name in ("vocab_size", "n_positions", "n_ids"):
            if not isinstance(getattr(self, name), int):
                raise TypeError(f"{name} is a whole number, not {getattr(self, name)!r}")
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.n_ids > self.vocab_size:
            raise ValueError(f"n_ids={self.n_ids} tokens do not fit into a table of vocab_size={self.vocab_size}")
        if not 0 <= self.init_std < float("inf"):
            raise ValueError(f"init_std is a standard deviation, not {self.init_std}")

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> "GPTConfig":
        """From the config of a checkpoint; keys that are no fields (a tokenizer, say) are left out."""
        if "vocab_size" not in stored:
            raise ValueError(
                f"no config of a GPT, as it has no vocab_size: {', '.join(map(str, stored)) or 'it is empty'}"
            )
        return cls(**{f.name: stored[f.name] for f in fields(cls) if f.name in stored})


GPT1 = GPTConfig(vocab_size=40_478, n_positions=512, d_model=768, n_heads=12, n_layers=12, norm="post")
GPT2 = GPTConfig(vocab_size=50_257, n_positions=1024, d_model=768, n_heads=12, n_layers=12, norm="pre")


class GPT(nn.Module):
    """Scores for the next token at each place. ids: (B, T) int64; nothing at a place depends on what stands to its right."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.config = c = config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = nn.Embedding(c.n_positions, c.d_model)
        self.drop = nn.Dropout(c.dropout)
        self.blocks = Encoder(c)
        self.reset_parameters()
        for module in self.blocks.modules():
            if isinstance(module, MultiHeadAttention):
                module.keep_weights = False  # `attention` asks for them

    def reset_parameters(self) -> None:
        """Everything from N(0, init_std), biases 0; with pre-norm, what is added to the sum shrinks with the depth (GPT-2)."""
        std = self.config.init_std
        shrunk = std / (2 * self.config.n_layers) ** 0.5 if self.config.norm == "pre" else std
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=shrunk if name.endswith(("w_o", "narrow")) else std)

    def forward(self, ids: Tensor, mask: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """Logits (B, T, V); those at t are about token t + 1. Arguments as in `hidden`."""
        return self.score(self.hidden(ids, mask, caches))

    def hidden(self, ids: Tensor, mask: Tensor | None = None, caches: Sequence[KVCache] | None = None) -> Tensor:
        """The last block's vectors, (B, T, d_model).

        mask: bool (B, T), False where a row is padded; padding on the left moves nothing: positions count true tokens only.
        caches: one per layer (`new_caches`), for reading piece by piece; then mask is (B, tokens before + T).
        """
        return self._read(ids, mask, caches)[0]

    def _read(self, ids: Tensor, mask: Tensor | None, caches: Sequence[KVCache] | None) -> tuple[Tensor, list[Tensor]]:
        before = len(caches[0]) if caches else 0
        self._check(ids, mask, before)
        places: Tensor = torch.arange(before, before + ids.shape[1], device=ids.device)
        look: Mask = "causal"
        if mask is not None:
            places = (mask.cumsum(1) - 1).clamp(min=0)[:, before:]
            causal = causal_mask(ids.shape[1], mask.shape[1], ids.device)
            itself = causal.triu(before)  # padding looks at itself: a query that may look nowhere has no softmax
            look = mask[:, None] & causal | itself
        if int(places.max()) >= self.config.n_positions:
            raise ValueError(
                f"{int(places.max()) + 1} tokens do not fit into n_positions = {self.config.n_positions}: keep the last ones"
            )
        try:
            x = self.tokens(ids) + self.positions(places)
        except IndexError:
            raise IndexError(
                f"ids must lie in 0 … {self.config.vocab_size - 1}; got {ids.min().item()} … {ids.max().item()}"
            ) from None
        return self.blocks(self.drop(x), look, caches)

    def score(self, h: Tensor) -> Tensor:
        """Logits (..., V) from the blocks' vectors (..., d_model): a dot product with each token's vector."""
        return F.linear(h, self.tokens.weight)

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, int]:
        """Summed cross entropy of each next token in batch["ids"], (B, T + 1), and the number of tokens predicted, B * T."""
        ids = batch["ids"]
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[1] < 2:
            raise TypeError(f"batch['ids'] must be a tensor (B, T + 1) with T at least 1; got {_said(ids)}")
        if bool((ids[:, -1] < 0).any()):  # -100 would not count as a target, and be counted as a token
            raise IndexError(
                f"ids must lie in 0 … {self.config.vocab_size - 1}; the last of a row is {ids[:, -1].min()}"
            )
        h, targets = self.hidden(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        return linear_cross_entropy(h, self.tokens.weight, targets), targets.numel()

    def new_caches(self) -> list[KVCache]:
        """Empty caches, one per layer."""
        return [KVCache() for _ in self.blocks.layers]

    @torch.no_grad()
    def attention(self, ids: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Each layer's attention weights, (B, n_heads, T, T), in evaluation mode, from the code that also trains."""
        found = modes(self)
        self.eval()
        try:
            with keep_weights(self):
                return self._read(ids, mask, None)[1]
        finally:
            restore(found)

    @torch.no_grad()
    def token_log_probs(self, ids: Sequence[int] | Tensor, stride: int | None = None) -> NDArray[np.float64]:
        """Natural log probability of ids[1:], each after what precedes it, float64 (N - 1,).

        A text longer than n_positions is read in windows that move on by `stride` tokens (half a window, unless given): a
        token then has at least n_positions - stride tokens of context, where the text has so many. One text, no padding.
        """
        if isinstance(ids, str):
            raise TypeError("ids are numbers, not text: tokenizer.encode(text) makes them")
        text = torch.as_tensor(ids, device=self.tokens.weight.device)
        longest = self.config.n_positions
        stride = max(1, longest // 2) if stride is None else stride
        if text.ndim != 1 or len(text) < 2:
            raise ValueError(
                f"need one text of at least two tokens, (N,), the first of which is given; got {text.shape}"
            )
        self._check(text[None], None, 0)
        if not 0 <= int(text.min()) <= int(text.max()) < self.config.vocab_size:
            raise IndexError(f"ids must lie in 0 … {self.config.vocab_size - 1}; got {text.min()} … {text.max()}")
        if not isinstance(stride, int) or not 1 <= stride <= longest:
            raise ValueError(f"stride must lie between 1 and n_positions = {longest}, not {stride}")
        found, parts, done = modes(self), [], 1  # ids[0] is given
        self.eval()
        try:
            for start in range(0, max(1, len(text) - 1 - longest + stride), stride):
                window = text[start : start + longest + 1]
                h, targets = self.hidden(window[None, :-1])[0], window[1:]
                new = done - start - 1  # the windows overlap: these were judged before, with more context
                parts.append(-F.cross_entropy(self.score(h[new:]), targets[new:], reduction="none").double().cpu())
                done = start + len(window)
        finally:
            restore(found)
        return torch.cat(parts).numpy()

    def _check(self, ids: Tensor, mask: Tensor | None, before: int) -> None:
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2 or 0 in ids.shape:
            raise TypeError(f"ids must be an int64 tensor (B, T) with B and T at least 1; got {_said(ids)}")
        if mask is not None and (mask.dtype != torch.bool or mask.shape != (len(ids), before + ids.shape[1])):
            raise TypeError(
                f"mask must be bool ({len(ids)}, {before + ids.shape[1]}), True for true tokens, those in the caches "
                f"included; got {tuple(mask.shape)} {mask.dtype}"
            )


def _said(ids: Any) -> str:
    return f"{tuple(ids.shape)} {ids.dtype}" if isinstance(ids, Tensor) else type(ids).__name__


def parameter_terms(config: GPTConfig) -> dict[str, int]:
    """Where the parameters of a GPT are, by part; the sum of the values is their number."""
    d, norm = config.d_model, 2 * config.d_model
    feed_forward = sum(p.numel() for p in FeedForward(config).parameters())
    terms = {
        "tokens": config.vocab_size * d,
        "positions": config.n_positions * d,
        "attention": config.n_layers * 4 * (d * d + d),
        "feed-forward": config.n_layers * feed_forward,
        "norms": config.n_layers * 2 * norm,
    }
    return terms | ({"last norm": norm} if config.norm == "pre" else {})
