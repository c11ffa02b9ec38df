"""How the answers of assignment 7 are called. Student code may read this file: it holds no expected value."""

import numpy as np


def some_fill(rows, vocab_size=30):
    """Log probabilities (B, T, V) that depend on every id of a row; they stand in for BERT's."""
    rows = np.asarray(rows)
    at = np.arange(rows.shape[1])
    waves = np.sin(rows[:, None] * (1.3 + at) + 0.7 * (at[:, None] - at)).sum(-1)
    scores = 3 * np.cos(waves[..., None] * (1 + np.arange(vocab_size)))
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def hide_words_and_arguments(answers, **arguments):
    """What `hide_words` returns, and what it leaves of its arguments."""
    return answers.hide_words(**arguments), arguments


def score_with_some_fill(answers, **arguments):
    """`score` with the stand-in above."""
    return answers.score(some_fill, **arguments)


def calls_of_fill(answers, **arguments):
    """How many scores come back, and how often `fill` was called for them."""
    asked = []

    def fill(rows):
        asked.append(len(rows))
        return some_fill(rows)

    return len(answers.score(fill, **arguments)), len(asked)
