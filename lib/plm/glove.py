"""GloVe (Pennington, Socher and Manning 2014): count how often words meet, then fit vectors to the logarithms of the counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional as F

from plm.compiled import in_threads
from plm.keyed_vectors import KeyedVectors
from plm.progress import progress
from plm.vocab import Vocab
from plm.word2vec import Word2VecConfig, check_ids
from plm.word2vec_text import flatten
from plm.word2vec_training import Text, prepare

CHUNK = 100_000  # cells of the table of counts handed to a thread at a time


@dataclass(frozen=True)
class GloVeConfig:
    """How to count and to fit. The defaults are the paper's, except where a comment says otherwise."""

    d_emb: int = 100  # length of a word vector
    window: int = 10  # neighbours on each side; one d words away counts 1 / d
    x_max: float = 100.0  # counts from here on weigh 1
    alpha: float = 0.75  # smaller counts weigh (count / x_max) ** alpha
    epochs: int = 25  # passes over the cells that are not 0; the paper takes 50 for short vectors, 100 for long ones
    lr: float = 0.05  # AdaGrad's step, before it is divided by the gradients seen so far
    min_count: int = 5  # rarer words are taken out of the text
    max_size: int | None = None  # keep at most so many words, the most frequent
    seed: int = 0
    threads: int = 1  # more are faster, but write into the same tables at once: two runs then differ
    batch_size: int = 4096  # cells per step of the PyTorch loop; the compiled loop steps after each cell

    def __post_init__(self) -> None:
        for name in ("d_emb", "window", "epochs", "min_count", "threads", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("x_max", "alpha", "lr"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be above 0 and finite, not {getattr(self, name)}")


def cooccurrences(
    sentences: Sequence[Sequence[int]], vocab_size: int | None = None, window: int = 10
) -> sparse.csr_matrix:
    """How often word j stands within `window` words of word i, each meeting at distance d counted 1 / d.

    Returns X (V, V), symmetric, float64; no window crosses a sentence boundary. Pennington et al. 2014, section 4.2.
    """
    if window < 1:
        raise ValueError(f"a window reaches at least one word far, not {window}")
    ids, starts = flatten(sentences)
    V = (int(ids.max()) + 1 if len(ids) else 0) if vocab_size is None else vocab_size
    if len(ids) and ids.max() >= V:
        raise IndexError(f"id {ids.max()} is outside the vocabulary of {V} words")
    return _count(ids, starts, V, window)


def _count(ids: NDArray[np.int32], starts: NDArray[np.int64], V: int, window: int) -> sparse.csr_matrix:
    owner = np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))
    X = sparse.csr_matrix((V, V))
    for d in progress(range(1, window + 1), "counting neighbours"):
        together = owner[:-d] == owner[d:]
        left, right = ids[:-d][together], ids[d:][together]
        X = X + sparse.csr_matrix((np.full(len(left), 1 / d), (left, right)), shape=(V, V))
    return (X + X.T).tocsr()


def glove_weight(counts: Tensor, x_max: float = 100.0, alpha: float = 0.75) -> Tensor:
    """f(x) = (x / x_max) ** alpha, at most 1: rare meetings are noise and say less. Pennington et al. 2014, eq. 9."""
    return (counts / x_max).clamp(max=1) ** alpha


class GloVe(nn.Module):
    """log of the count of words i and j = Q[i] · C[j] + b[i] + a[j].

    Parameters: Q, C (V, d_emb); b, a (V, 1), the biases of the two tables.
    """

    def __init__(self, vocab_size: int, d_emb: int = 100, x_max: float = 100.0, alpha: float = 0.75):
        super().__init__()
        self.x_max, self.alpha = x_max, alpha
        start = [nn.Parameter((torch.rand(vocab_size, width) - 0.5) / d_emb) for width in (d_emb, d_emb, 1, 1)]
        self.Q, self.C, self.b, self.a = start

    def forward(self, i: Tensor, j: Tensor) -> Tensor:
        """The predicted logarithm of the count, (B,), for words i and j, both (B,)."""
        check_ids(i, 1, len(self.Q))
        check_ids(j, 1, len(self.Q))
        if i.shape != j.shape:
            raise ValueError(
                f"i and j must name one cell each, of one shape; got {tuple(i.shape)} and {tuple(j.shape)}"
            )
        q, c, b, a = (F.embedding(k, table) for k, table in zip((i, j, i, j), self.parameters(), strict=True))
        return (q * c).sum(1) + b[:, 0] + a[:, 0]

    def loss(self, i: Tensor, j: Tensor, counts: Tensor) -> Tensor:
        """Sum of f(count) (prediction - log count)^2 / 2 over cells that are not 0.

        The half, which Pennington et al. 2014, eq. 8, lacks and their program has, leaves the gradient without a factor 2.
        """
        if counts.shape != i.shape:
            raise ValueError(f"each cell needs one count: i {tuple(i.shape)}, counts {tuple(counts.shape)}")
        if not (counts > 0).all():
            raise ValueError("GloVe fits the cells that are not 0: the logarithm of 0 is not a number")
        return (glove_weight(counts, self.x_max, self.alpha) * (self(i, j) - counts.log()) ** 2).sum() / 2


def glove_gradients(model: GloVe, i: Tensor, j: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each cell's own loss, for Q[i] (B, d), C[j] (B, d), b[i] (B, 1) and a[j] (B, 1)."""
    error = glove_weight(counts, model.x_max, model.alpha) * (model(i, j) - counts.log())
    return error[:, None] * model.C[j], error[:, None] * model.Q[i], error[:, None], error[:, None]


@torch.no_grad()
def adagrad_step(model: GloVe, squares: list[Tensor], i: Tensor, j: Tensor, counts: Tensor, lr: float = 0.05) -> None:
    """One step of AdaGrad (Duchi et al. 2011) down the sum of the cells' losses; only rows that occur in i or j move.

    squares: for each parameter the sum of its squared gradients so far, changed in place. As torch.optim.Adagrad.
    """
    tables = zip(model.parameters(), squares, (i, j, i, j), glove_gradients(model, i, j, counts), strict=True)
    for table, square, ids, gradients in tables:
        rows, place = ids.unique(return_inverse=True)
        gradient = torch.zeros_like(table[rows]).index_add_(0, place, gradients)  # a word may occur more than once
        square[rows] += gradient**2
        table[rows] -= lr * gradient / square[rows].sqrt()


def train_glove(
    sentences: Sequence[Sequence[Any]],
    config: GloVeConfig | None = None,
    backend: str = "numba",
    vocab: Vocab | None = None,
) -> KeyedVectors:
    """Count and fit; arguments as for `plm.word2vec.train_word2vec`. Returns Q + C, as the paper does, with C as `context`."""
    config = config or GloVeConfig()
    if backend not in BACKENDS:
        raise ValueError(f"backend is one of {', '.join(BACKENDS)}, not {backend!r}")
    text = prepare(sentences, Word2VecConfig(min_count=config.min_count, max_size=config.max_size), vocab)
    X = _count(text.ids, text.starts, len(text.words), config.window).tocoo()
    if X.nnz == 0:
        raise ValueError("no two words stand in one sentence: there is nothing to count")
    order = np.random.default_rng(config.seed).permutation(X.nnz)
    return fit_glove(text, X.row[order], X.col[order], X.data[order], config, backend)


def fit_glove(
    text: Text, rows: NDArray, cols: NDArray, counts: NDArray, config: GloVeConfig, backend: str
) -> KeyedVectors:
    """Fit vectors to the cells (row, column, count), in the order given, which should be random."""
    rng = np.random.default_rng(config.seed)
    V, d = len(text.words), config.d_emb
    tables = [((rng.random((V, width)) - 0.5) / d).astype(np.float32) for width in (d, d, 1, 1)]
    cells = (rows.astype(np.int32), cols.astype(np.int32), counts.astype(np.float32))
    BACKENDS[backend](tables, cells, config)
    if not all(np.isfinite(table).all() for table in tables):
        raise FloatingPointError(f"training diverged, the vectors hold NaN or infinity: lower lr={config.lr}")
    Q, C = map(torch.from_numpy, tables[:2])
    return KeyedVectors(text.words, Q + C, counts=text.counts, context=C)


def _fit_compiled(tables: list[NDArray], cells: tuple[NDArray, ...], config: GloVeConfig) -> None:
    from plm.glove_kernels import steps

    rows, cols, counts = cells
    logs = np.log(counts)
    weights = glove_weight(torch.from_numpy(counts), config.x_max, config.alpha).numpy()
    squares = [np.full_like(table, START) for table in tables]

    def one(at: slice) -> None:
        steps(*tables, *squares, rows[at], cols[at], logs[at], weights[at], config.lr)

    jobs = [slice(at, at + CHUNK) for at in range(0, len(rows), CHUNK)] * config.epochs
    for _ in progress(in_threads(one, jobs, config.threads), "training GloVe", len(jobs)):
        pass


def _fit_torch(tables: list[NDArray], cells: tuple[NDArray, ...], config: GloVeConfig) -> None:
    model = GloVe(len(tables[0]), config.d_emb, config.x_max, config.alpha)
    for parameter, table in zip(model.parameters(), tables, strict=True):
        parameter.data = torch.from_numpy(table)
    squares = [torch.full_like(parameter, START) for parameter in model.parameters()]
    i, j, counts = (torch.from_numpy(c) for c in cells)
    batches = list(zip(*(c.split(config.batch_size) for c in (i.long(), j.long(), counts)), strict=True))
    for rows, cols, x in progress(batches * config.epochs, "training GloVe"):
        adagrad_step(model, squares, rows, cols, x, config.lr)


START = 1.0  # AdaGrad's sum of squared gradients before the first step, as in the authors' program: no first leap
BACKENDS: dict[str, Callable[..., None]] = {"numba": _fit_compiled, "torch": _fit_torch}
