"""BERT reads, GPT writes: an encoder-decoder from two pretrained halves. Rothe et al. 2020.

GPT's blocks become decoder layers: between self-attention and feed-forward stands a new attention to what BERT has read. Its
last matrix starts at 0, so before the first step of training the decoder is the GPT it was made from, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from torch import Tensor, nn
from torch.nn import functional as F

from plm.attention import KVCache, MultiHeadAttention
from plm.bert import IGNORED, Bert
from plm.gpt import GPT
from plm.layers import Decoder, DecoderCache, DecoderLayer

Half = TypeVar("Half", Bert, GPT)


class Written(NamedTuple):
    """What decoding carries from token to token."""

    memory: Tensor  # (B, T_source, d_model)
    mask: Tensor  # (B, 1, T_source)
    caches: list[DecoderCache]


class EncoderDecoder(nn.Module):
    """A BERT, a bridge from its width to the GPT's, and the GPT with attention to the source. Both are copied."""

    def __init__(self, bert: Bert, gpt: GPT, dropout: float = 0.1):
        super().__init__()
        if gpt.config.norm != "pre":
            raise ValueError(
                "the new attention is left out of a sum only where norms stand in front: need a pre-norm GPT"
            )
        self.config = gpt.config
        self.encoder = _copy(bert, dropout)
        self.bridge = nn.Linear(bert.config.d_model, gpt.config.d_model)
        source = _copy(gpt, dropout)
        self.tokens, self.positions, self.drop = source.tokens, source.positions, source.drop
        self.decoder = Decoder(source.config)
        missing, extra = self.decoder.load_state_dict(source.blocks.state_dict(), strict=False)
        assert not extra
        assert all("cross_attention" in name for name in missing)
        for layer in self.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            nn.init.zeros_(layer.cross_attention.w_o.weight)
            nn.init.zeros_(layer.cross_attention.w_o.bias)
        for module in self.decoder.modules():
            if isinstance(module, MultiHeadAttention):
                module.keep_weights = False

    def read(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """source: (B, T_source) ids of the encoder, filled up with its pad_id. Returns the memory and its mask."""
        real = source != self.encoder.config.pad_id
        return self.bridge(self.encoder(source, mask=real).states), real[:, None]

    def write(
        self, target: Tensor, memory: Tensor, mask: Tensor, caches: Sequence[DecoderCache] | None = None
    ) -> Tensor:
        """target: (B, T) ids of the decoder, behind those in the caches. Returns logits (B, T, V)."""
        before = len(caches[0].own) if caches else 0
        if before + target.shape[1] > self.config.n_positions:
            raise ValueError(f"{before + target.shape[1]} tokens do not fit into {self.config.n_positions} positions")
        places = self.positions.weight[before : before + target.shape[1]]
        x, _, _ = self.decoder(self.drop(self.tokens(target) + places), memory, "causal", mask, caches)
        return F.linear(x, self.tokens.weight)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V): those at t are about target token t + 1. Targets are filled up on the right with anything."""
        return self.write(target, *self.read(source))

    def loss(self, source: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy of target[:, 1:], (B, T + 1); -100 is padding and not asked for."""
        wanted = target[:, 1:]
        logits = self(source, target[:, :-1].clamp(min=0))
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=IGNORED)

    def start(self, source: Tensor) -> Written:
        """Read the source once; with `step`, what plm.decode needs."""
        return Written(*self.read(source), [DecoderCache(KVCache(), KVCache()) for _ in self.decoder.layers])

    def step(self, last: Tensor, state: Written) -> tuple[Tensor, Written]:
        """last: (N,), the token written last. Returns logits (N, V) for the next one."""
        return self.write(last[:, None], *state)[:, 0], state


def _copy(model: Half, dropout: float) -> Half:
    """A model of its own with the same weights and this dropout."""
    fresh = type(model)(replace(model.config, dropout=dropout))  # type: ignore[arg-type]
    fresh.load_state_dict(model.state_dict())
    return fresh
