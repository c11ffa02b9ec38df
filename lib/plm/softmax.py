"""Cross entropy over a large vocabulary at the price of a small one."""

import torch
from torch import Tensor
from torch.nn import functional as F


class WordSampler:
    """Draws the words among which one batch estimates the softmax's sum; its own generator, so runs repeat.

    counts: (V,) how often each word occurs in the training text; keep: how many words a draw holds on average. Word j is
    drawn with probability k_j = min(1, c * frequency_j ** 0.5), each word on its own: the most frequent ones always.
    """

    def __init__(self, counts: Tensor, keep: int, seed: int = 0):
        if counts.ndim != 1 or not len(counts) or not bool(((counts >= 0) & (counts < torch.inf)).all()):
            raise ValueError(
                f"counts must be (V,), one finite number of at least 0 per word; got shape {tuple(counts.shape)}"
            )
        if not 1 <= keep <= len(counts):
            raise ValueError(f"keep must lie in 1 … {len(counts)}, the size of the vocabulary; got {keep}")
        weight = (counts.double() + 0.1).sqrt()  # a word that never occurred must still be possible
        low, high = 0.0, float(keep / weight.min())
        for _ in range(100):  # bisection for c
            middle = (low + high) / 2
            low, high = (middle, high) if (middle * weight).clamp(max=1).sum() < keep else (low, middle)
        self.probability = (high * weight).clamp(max=1).float()
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self) -> Tensor:
        """Ids of the words of one draw, (K,) int64 in rising order; K varies around `keep`."""
        return (torch.rand(len(self.probability), generator=self.generator) < self.probability).nonzero()[:, 0]


def sampled_cross_entropy(
    h: Tensor, targets: Tensor, weight: Tensor, bias: Tensor | None, sampler: WordSampler, ignore_index: int = -100
) -> Tensor:
    """Mean cross entropy of softmax(h @ weight.T + bias) with the sum over V words estimated from about `keep` of them.

    h: (N, D); targets: (N,) int64; weight: (V, D); bias: (V,) or None. A drawn word stands for 1 / k_j words of its kind in
    the sum, which makes the sum right on average whatever the targets are (Horvitz and Thompson 1952); the target itself is
    always there and counts once. All rows of a batch share one draw. Rows with `ignore_index` do not count; with no row left
    the loss is 0. For training only: perplexities need the full sum. After Bengio and Senécal 2003.
    """
    if h.ndim != 2 or targets.shape != (len(h),) or targets.dtype != torch.int64:
        raise ValueError(f"h must be (N, D) and targets (N,) int64; got {tuple(h.shape)} and {tuple(targets.shape)}")
    V = len(sampler.probability)
    if weight.shape != (V, h.shape[1]):
        raise ValueError(f"weight must be {(V, h.shape[1])}, (words of the sampler, D); got {tuple(weight.shape)}")
    if bias is not None and bias.shape != (V,):
        raise ValueError(f"bias must be ({V},), one number per word; got {tuple(bias.shape)}")
    used = targets != ignore_index
    if not bool(used.all()):
        h, targets = h[used], targets[used]
    if not len(targets):
        return (h.sum() + weight.sum()) * 0.0
    if not (targets.min() >= 0 and targets.max() < V):
        raise IndexError(f"targets must lie in 0 … {V - 1}; got {targets.min().item()} … {targets.max().item()}")
    words = sampler.draw().to(h.device)
    correction = -sampler.probability.to(h)[words].log()
    # index_select and embedding: their gradients are several times cheaper than that of weight[words].
    chosen = weight.index_select(0, words)
    logits = F.linear(h, chosen, correction if bias is None else bias.index_select(0, words) + correction)
    logits = logits.masked_fill(words == targets[:, None], -torch.inf)  # a target that was drawn must not count twice
    own = (h * F.embedding(targets, weight)).sum(1) + (0 if bias is None else bias.index_select(0, targets))
    return (torch.logaddexp(own, logits.logsumexp(1)) - own).mean()
