"""How the answers of assignment 1 are called. Student code may read this file: it holds no expected value."""

import numpy as np


def counted(sentences, n):
    """The counting of the setup cell: {context: {word: count}}."""
    table = {}
    for sentence in sentences:
        padded = [1, *sentence, 2]
        for t in range(1, len(padded)):
            for length in range(min(n - 1, t) + 1):
                counts = table.setdefault(tuple(padded[t - length : t]), {})
                counts[padded[t]] = counts.get(padded[t], 0) + 1
    return table


def distributions(answers, sentences, n, contexts, V):
    """`distribution` after each of these contexts."""
    table = counted(sentences, n)
    return [answers.distribution(table, tuple(context), V) for context in contexts]


def log_probs_of(answers, contexts, Q, A, b):
    """`log_probs` of a model of these arrays."""
    return answers.log_probs(contexts, {"Q": Q, "A": A, "b": b})


def gradients_of(answers, contexts, targets, Q, A, b):
    """`gradients` of a model of these arrays."""
    return answers.gradients(contexts, targets, {"Q": Q, "A": A, "b": b})


def gradients_of_a_and_b(answers, **arguments):
    """Only those of A and b."""
    found = gradients_of(answers, **arguments)
    return {"A": np.asarray(found["A"]), "b": np.asarray(found["b"])}
