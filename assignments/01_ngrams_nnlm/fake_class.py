"""Typical wrong answers of assignment 1, and the marks that the rubric gives them."""

from course.fakes import Fake

# What a wrong network learns is not known beforehand, so these students did not get to question 6.
NO_TRAINING = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "straight-to-the-blind-guess",
        {"q1": 4, **NO_TRAINING},
        "Gives the share of something new to the blind guess at once. The equation has the next shorter model there.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "        if new:\n            p = new * p\n",
                "        if new:\n            p = np.full(V, new / (V - 1))\n            p[START] = 0\n",
            )
        },
    ),
    Fake(
        "drops-the-last-word",
        {"q1": 8, **NO_TRAINING},
        "Shortens a context at its end. The word nearest to the gap is the last to go; with one word of context nobody notices.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "tuple(context[len(context) - length :])",
                "tuple(context[:length])",
            )
        },
    ),
    Fake(
        "a-share-for-the-start",
        {"q1": 0, **NO_TRAINING},
        "Shares the blind guess among all V ids. <s> is never what comes next, so a little probability is lost at every step.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "p = np.full(V, 1 / (V - 1))\n    p[START] = 0",
                "p = np.full(V, 1 / V)",
            )
        },
    ),
    Fake(
        "as-many-kinds-as-before",
        {"q2": 0, **NO_TRAINING},
        "Takes one from the counts and leaves the number of kinds. A word whose only occurrence is taken out is new again.",
        answers=UNANSWERED,
        edits={"q2": ("len(table[h]) - (count == 0)", "len(table[h])")},
    ),
    Fake(
        "counts-all-again",
        {"q2": 9, **NO_TRAINING},
        "Counts the whole text again for each token: right, and for a hundred thousand tokens a matter of hours.",
        answers={
            **UNANSWERED,
            "q2": "def left_out(sentences, n, V):\n"
            "    logs = []\n"
            "    for i, sentence in enumerate(sentences):\n"
            "        padded = [START, *sentence, END]\n"
            "        for t in range(1, len(padded)):\n"
            "            table, word, p = followers(sentences, n), padded[t], 1 / (V - 1)\n"
            "            for length in range(min(n - 1, t) + 1):\n"
            "                counts = table[tuple(padded[t - length : t])]\n"
            "                counts[word] -= 1\n"
            "                if not counts[word]:\n"
            "                    del counts[word]\n"
            "                if counts:\n"
            "                    total = sum(counts.values()) + len(counts)\n"
            "                    p = (counts.get(word, 0) + len(counts) * p) / total\n"
            "            logs.append(np.log(p))\n"
            "    return np.array(logs)",
        },
        states={"q2": "time"},
    ),
    Fake(
        "knows-the-answer",
        {"q3": 0, **NO_TRAINING},
        "Puts the token into the cache before it is guessed. The perplexity falls far too well: the model has seen the answer.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "p = (1 - weight) * p + weight * value / whole",
                "p = (1 - weight) * p + weight * (value * decay + 1) / (whole * decay + 1)",
            )
        },
    ),
    Fake(
        "one-cache-for-all",
        {"q3": 11, **NO_TRAINING},
        "Never empties the cache, so a review begins with the words of the one before.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "    mixed = []\n    for document, model in zip(tokens, logs):\n        last, found, whole = {}, [], 0.0\n"
                "        for t, (word, log) in enumerate(zip(document, model)):",
                "    mixed, last, whole, t = [], {}, 0.0, -1\n    for document, model in zip(tokens, logs):\n        found = []\n"
                "        for word, log in zip(document, model):\n            t += 1",
            )
        },
    ),
    Fake(
        "matrices-the-other-way-round",
        {"q4": 0, **NO_TRAINING},
        "Multiplies row vectors with A where the equation has A times a column. The shapes fit, since A is square.",
        answers=UNANSWERED,
        edits={
            "q4": (
                "sum(Q[column] @ a.T for",
                "sum(Q[column] @ a for",
            )
        },
    ),
    Fake(
        "one-road",
        {"q5": 6, **NO_TRAINING},
        "Follows Q as the table of words that are read and forgets that it scores the answers as well.",
        answers=UNANSWERED,
        edits={"q5": ("dQ = p.T @ r", "dQ = np.zeros_like(Q)")},
    ),
    Fake(
        "adds-once",
        {"q5": 12, **NO_TRAINING},
        "Adds with dQ[ids] += …, which keeps one of several additions to the same row.",
        answers=UNANSWERED,
        edits={
            "q5": ("np.add.at(dQ, contexts.T, dr @ A)", "dQ[contexts.T] += dr @ A")
        },
    ),
    Fake(
        "climbs",
        {"q6": 0},
        "Adds the gradient in place of taking it away: the loss grows.",
        edits={"q6": ("model[k] -= scale", "model[k] += scale")},
    ),
]
