"""Language models made of counts: n-grams with add-k smoothing, and interpolated Kneser-Ney.

Both keep sorted arrays instead of dictionaries, so that millions of words are counted and looked up in seconds. A context is
read from its last word backwards: the context (a, b) is the context (b,) plus the older word a. Each context gets an
integer, each n-gram the integer `context * V + word`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from plm.vocab import END, LANGUAGE_MODEL_SPECIALS, START

START_ID = LANGUAGE_MODEL_SPECIALS.index(START)
END_ID = LANGUAGE_MODEL_SPECIALS.index(END)
UNSEEN = -1

Ids = Sequence[Sequence[int]]
Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Floats = NDArray[np.float64]


def windows(sentences: Ids, n: int, start_id: int = START_ID, end_id: int = END_ID) -> Ints32:
    """Every word of every sentence, and `</s>`, with the n - 1 ids before it: (N, n), the last column is the target.

    sentences: lists of ids without `<s>` and `</s>`. A sentence is padded on the left with `<s>`, so no window reaches
    into the sentence before; `<s>` is never a target. Raises TypeError when given words instead of ids.
    """
    sentences = sentences if isinstance(sentences, str) else list(sentences)
    if any(isinstance(s, str) for s in sentences):
        raise TypeError("sentences must be lists of ids, not strings: vocab.encode(words(text)) makes them")
    if any(isinstance(s, int | np.integer) for s in sentences):
        raise TypeError("sentences must be a list of sentences; for one sentence write [sentence]")
    if start_id == end_id:
        raise ValueError(f"<s> and </s> need different ids, not both {start_id}")
    lengths = np.fromiter((len(s) for s in sentences), np.int64)
    try:
        flat = np.array(list(chain.from_iterable(sentences)) or np.empty(0, np.int64))
        flat = flat.astype(np.int64, casting="same_kind")
    except (TypeError, ValueError) as error:
        raise TypeError(f"sentences must be lists of integer ids: {error}") from None
    if len(flat) and (flat.min() < 0 or flat.max() > np.iinfo(np.int32).max):
        raise ValueError(f"ids must lie in 0 … 2^31 - 1; got {flat.min()} … {flat.max()}")
    if np.isin([start_id, end_id], flat).any():
        raise ValueError("sentences are given without <s> and </s>: the model adds them")
    # Where does each id go once every sentence is n longer (n - 1 times <s> before it, one </s> after it)?
    ends = np.cumsum(lengths + n)
    stream = np.full(ends[-1] if len(ends) else 0, start_id, np.int32)
    stream[np.arange(len(flat)) + np.repeat(np.arange(len(lengths)) * n + n - 1, lengths)] = flat
    stream[ends - 1] = end_id
    targets = np.flatnonzero(stream != start_id)
    return stream[targets[:, None] + np.arange(1 - n, 1)]


@dataclass(frozen=True)
class Table:
    """The distinct k-grams of a text and how often each one stands there, k fixed.

    contexts: sorted (shorter context * V + older word); the position is the id of the context.
    grams: sorted (context * V + word). counts: one number per gram.
    """

    contexts: Ints
    grams: Ints
    counts: Ints


def count_grams(grams: Ints32, V: int, skip: int | None = None) -> list[Table]:
    """Tables for k = 1 … n of the windows `grams` (N, n).

    skip: a padding id; k-grams that open with it twice are left out (the start of a sentence is then one context, not n - 1).
    """
    rows = grams.astype(np.int64)
    context = np.zeros(len(rows), np.int64)
    tables = []
    for k in range(1, rows.shape[1] + 1):
        contexts = np.zeros(1, np.int64)
        if k > 2 and skip is not None:
            keep = rows[:, 1 - k] != skip
            rows, context = rows[keep], context[keep]
        if k > 1:
            contexts, context = np.unique(context * V + rows[:, -k], return_inverse=True)
        tables.append(Table(contexts, *np.unique(context * V + rows[:, -1], return_counts=True)))
    return tables


def find(values: Ints, wanted: Ints) -> Ints:
    """Position of each wanted number in the sorted array `values`, or UNSEEN."""
    if not len(values):
        return np.full(len(wanted), UNSEEN)
    position = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[position] == wanted, position, UNSEEN)


class CountModel:
    """What the two models share: fitting, looking up, sampling. A subclass says how counts become probabilities.

    n: words of an n-gram, the predicted one included. start_id, end_id: ids of `<s>` and `</s>` in the vocabulary.
    """

    def __init__(self, n: int, vocab_size: int, start_id: int = START_ID, end_id: int = END_ID):
        if n < 1:
            raise ValueError(f"n counts the words of an n-gram and is at least 1, not {n}")
        if not (0 <= start_id < vocab_size and 0 <= end_id < vocab_size and start_id != end_id):
            raise ValueError(f"<s> ({start_id}) and </s> ({end_id}) must be two different ids below {vocab_size}")
        self.n, self.vocab_size, self.start_id, self.end_id = n, vocab_size, start_id, end_id
        self.tables: list[Table] = []

    def _windows(self, sentences: Ids) -> Ints32:
        found = windows(sentences, self.n, self.start_id, self.end_id)
        if len(found) and not (found.min() >= 0 and found.max() < self.vocab_size):
            raise ValueError(f"ids go from {found.min()} to {found.max()}, but the vocabulary has {self.vocab_size}")
        return found

    def _count(self, sentences: Ids, skip: int | None = None) -> None:
        grams = self._windows(sentences)
        if not len(grams):
            raise ValueError("there is no sentence to count")
        self.tables = count_grams(grams, self.vocab_size, skip)

    def _look_up(self, contexts: Ints32, targets: Ints32) -> Iterator[tuple[int, Ints, Ints]]:
        """For k = 1 … n: k, and the positions of each context and each k-gram in table k, or UNSEEN.

        contexts: (N, n - 1), or (1, n - 1) when all targets (N,) share it.
        """
        if not self.tables:
            raise RuntimeError("the model has counted nothing yet: call fit(sentences) first")
        context = np.zeros(len(contexts), np.int64)
        for k, table in enumerate(self.tables, 1):
            if k > 1:
                key = context * self.vocab_size + contexts[:, 1 - k]
                context = find(table.contexts, np.where(context == UNSEEN, UNSEEN, key))
            key = context * self.vocab_size + targets
            yield k, context, find(table.grams, np.where(context == UNSEEN, UNSEEN, key))

    def _probabilities(self, contexts: Ints32, targets: Ints32) -> Floats:
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        """How many counts the model keeps, all orders together."""
        return sum(len(table.grams) for table in self.tables)

    def token_log_probs(self, sentences: Ids) -> Floats:
        """Natural logarithm of the probability of every token, `</s>` included, in text order: (N,).

        -inf where the model says a token is impossible (only without smoothing).
        """
        grams = self._windows(sentences)
        with np.errstate(divide="ignore"):
            return np.log(self._probabilities(grams[:, :-1], grams[:, -1]))

    def distribution(self, context: Sequence[int] = ()) -> Floats:
        """P(next word | context) for all V words; `<s>` has probability 0.

        context: the ids of the sentence so far, without `<s>`; only the last n - 1 count.
        """
        padded = [self.start_id] * (self.n - 1) + [int(i) for i in context]
        recent = padded[len(padded) - self.n + 1 :]
        if recent and not (min(recent) >= 0 and max(recent) < self.vocab_size):
            raise ValueError(f"context {list(context)} holds an id outside the vocabulary of {self.vocab_size}")
        p = self._probabilities(np.array([recent], np.int32), np.arange(self.vocab_size, dtype=np.int32))
        if p.sum() < 0.5:  # without smoothing, an unseen context is followed by nothing
            raise ValueError(f"the context {list(context)} was never seen, so it has no distribution without smoothing")
        return p

    def sample(self, rng: np.random.Generator, max_words: int = 50, context: Sequence[int] = ()) -> list[int]:
        """Draw a sentence word by word until `</s>` or `max_words`; returns the drawn ids without `</s>`."""
        drawn: list[int] = []
        while len(drawn) < max_words:
            p = self.distribution([*context, *drawn])
            word = int(rng.choice(self.vocab_size, p=p / p.sum()))
            if word == self.end_id:
                break
            drawn.append(word)
        return drawn


class NGram(CountModel):
    """P(w | context) = (count(context, w) + k) / (count(context) + k (V - 1)): maximum likelihood for k = 0.

    V - 1 because `<s>` is never predicted. For k > 0 an unseen context gives the uniform distribution.
    """

    def __init__(self, n: int, vocab_size: int, add_k: float = 1.0, **special_ids: int) -> None:
        super().__init__(n, vocab_size, **special_ids)
        if not add_k >= 0:
            raise ValueError(f"add_k is what every count gets on top, 0 or more, not {add_k}")
        self.add_k = add_k

    def fit(self, sentences: Ids) -> "NGram":
        """Count the n-grams of `sentences` (lists of ids)."""
        self._count(sentences)
        table = self.tables[-1]
        totals = np.bincount(table.grams // self.vocab_size, table.counts)
        # What was never seen has position UNSEEN = -1 and finds the 0 at the end.
        self.counts, self.totals = np.append(table.counts, 0), np.append(totals, 0)
        return self

    def _probabilities(self, contexts: Ints32, targets: Ints32) -> Floats:
        *_, (_, context, gram) = self._look_up(contexts, targets)
        with np.errstate(invalid="ignore"):
            p = (self.counts[gram] + self.add_k) / (self.totals[context] + self.add_k * (self.vocab_size - 1))
        return np.where(targets == self.start_id, 0.0, np.nan_to_num(p))  # 0 / 0: unseen context, k = 0


class KneserNey(CountModel):
    """Interpolated Kneser-Ney (Kneser and Ney 1995; Ney et al. 1994; Chen and Goodman 1999, section 3).

    Each k-gram gives up a discount; what a context collects that way is spread by the (k-1)-gram model. That model does not
    count how often a word occurs, but after how many different words. k-grams at the start of a sentence, which nothing
    precedes, keep their counts. The last resort is uniform over the V - 1 words other than `<s>`.

    discount: 'modified' (three per order, for counts 1, 2 and 3+), 'single' (one per order: n1 / (n1 + 2 n2)), or what you
    fix: one number in [0, 1] for all orders, or n of them, the shortest first. Where a text is too small for an estimate,
    'modified' falls back to 'single', and that to 0.75.
    """

    def __init__(
        self, n: int, vocab_size: int, discount: str | float | Sequence[float] = "modified", **special_ids: int
    ) -> None:
        super().__init__(n, vocab_size, **special_ids)
        fixed = None if isinstance(discount, str) else np.asarray(discount, dtype=float)
        if discount not in ("modified", "single") if fixed is None else fixed.shape not in ((), (n,)):
            raise ValueError(f"discount is 'modified', 'single', a number or {n} numbers, not {discount!r}")
        if fixed is not None and not ((fixed >= 0) & (fixed <= 1)).all():
            raise ValueError(f"a fixed discount lies between 0 and 1, not at {discount!r}")
        self.discount = discount

    def fit(self, sentences: Ids) -> "KneserNey":
        """Count the k-grams of `sentences` (lists of ids) for k = 1 … n and estimate the discounts."""
        V = self.vocab_size
        self._count(sentences, skip=self.start_id)
        self.discounts: list[Floats] = []
        self.shares: list[Floats] = []  # per gram: what its own count gives it
        self.left_over: list[Floats] = []  # per context: the mass left for the shorter context
        for k, table in enumerate(self.tables):
            counts = self._continuations(table, self.tables[k + 1]) if k + 1 < self.n else table.counts
            if isinstance(self.discount, str):
                discount = self._estimate(counts)
            else:
                discount = np.array([0.0, *[np.broadcast_to(self.discount, self.n)[k]] * 3])
            taken = discount[np.minimum(counts, 3)]
            context = table.grams // V
            totals = np.bincount(context, counts)
            self.discounts.append(discount[1:])
            # At the end, for what was never seen (position -1): no share, and all the mass left.
            self.shares.append(np.append((counts - taken) / totals[context], 0.0))
            self.left_over.append(np.append(np.bincount(context, taken) / totals, 1.0))
        return self

    def _continuations(self, table: Table, longer: Table) -> Ints:
        """Before how many different words does each k-gram stand? Sentence-initial ones keep their count."""
        context, word = np.divmod(longer.grams, self.vocab_size)
        shorter = longer.contexts[context] // self.vocab_size
        position = np.searchsorted(table.grams, shorter * self.vocab_size + word)
        different = np.bincount(position, minlength=len(table.grams))
        return np.where(different == 0, table.counts, different)

    def _estimate(self, counts: Ints) -> Floats:
        """Discounts for counts 0, 1, 2 and 3 or more (Chen and Goodman 1999, eq. 17)."""
        n1, n2, n3, n4 = (int((counts == c).sum()) for c in (1, 2, 3, 4))
        if n1 == 0 or n2 == 0:
            return np.array([0.0, 0.75, 0.75, 0.75])
        y = n1 / (n1 + 2 * n2)
        if self.discount == "modified" and n3 > 0 and n4 > 0:
            three = np.array([1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
            if (three >= 0).all() and (three <= [1, 2, 3]).all():
                return np.concatenate([[0.0], three])
        return np.array([0.0, y, y, y])

    def _probabilities(self, contexts: Ints32, targets: Ints32) -> Floats:
        p = np.where(targets == self.start_id, 0.0, 1 / (self.vocab_size - 1))
        for k, context, gram in self._look_up(contexts, targets):
            p = self.shares[k - 1][gram] + self.left_over[k - 1][context] * p
        return p
