"""A tagger: one label per word, from word vectors and, if there are any, the vectors of a pretrained language model.

Peters et al. 2017 (TagLM) and 2018 (ELMo, sec. 3.3), without their conditional random field on top.
"""

import torch
from torch import Tensor, nn

from plm.elmo import ScalarMix
from plm.lstm import LSTM


class Tagger(nn.Module):
    """Word vectors, mixed biLM vectors beside them, one LSTM in each direction, and a linear layer for the labels.

    vectors: (V, D), where the word vectors start; they are trained along. n_layers, d_features: what `features` will hold
    (0 layers: no features). The biLM itself is no part of the tagger and is never trained: it delivers features.
    """

    def __init__(
        self,
        vectors: Tensor,
        n_labels: int,
        d_hidden: int = 64,
        n_layers: int = 0,
        d_features: int = 0,
        dropout: float = 0.3,
    ):
        super().__init__()
        if n_labels < 2 or n_layers < 0 or (n_layers > 0) != (d_features > 0):
            raise ValueError(
                "a tagger needs at least two labels, and features need both a number of layers and a width; got "
                f"{n_labels} labels, {n_layers} layers, width {d_features}"
            )
        if vectors.ndim != 2 or not vectors.is_floating_point():
            raise TypeError(f"vectors must be (V, D) floats; got {tuple(vectors.shape)} {vectors.dtype}")
        self.words = nn.Embedding.from_pretrained(vectors.clone(), freeze=False)
        self.mix = ScalarMix(n_layers) if n_layers else None
        self.drop = nn.Dropout(dropout)
        self.lstm = LSTM(vectors.shape[1] + d_features, d_hidden, bidirectional=True, forget_bias=1.0)
        self.output = nn.Linear(2 * d_hidden, n_labels)

    def forward(self, ids: Tensor, lengths: Tensor, features: Tensor | None = None) -> Tensor:
        """ids: (B, T) int64; lengths: (B,); features: (n_layers, B, T, d_features). Returns logits (B, T, n_labels)."""
        if (features is None) != (self.mix is None):
            raise ValueError(
                "this tagger was built " + ("with" if self.mix else "without") + " features: build and call alike"
            )
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.ndim != 2:
            raise TypeError("ids must be an int64 tensor (B, T)")
        V = self.words.num_embeddings
        if ids.numel() and not (ids.min() >= 0 and ids.max() < V):
            raise IndexError(f"ids must lie in 0 … {V - 1}; got {ids.min().item()} … {ids.max().item()}")
        x = self.words(ids)
        if self.mix is not None and features is not None:
            if features.shape[1:3] != ids.shape:
                raise ValueError(f"features must be (layers, {tuple(ids.shape)}, width); got {tuple(features.shape)}")
            x = torch.cat([x, self.mix(features)], -1)
        h, _ = self.lstm(self.drop(x), None, lengths)
        return self.output(self.drop(h))
