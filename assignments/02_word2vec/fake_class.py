"""Typical wrong answers of assignment 2, and the marks that the rubric gives them."""

from course.fakes import Fake

# Training takes a while, so only those who are here for question 6 answer it.
NO_TRAINING = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "whole-word-twice",
        {"q1": 10, **NO_TRAINING},
        "Takes the whole word for a piece, too, where it is short enough, and lists it twice. Short words then lean on one "
        "row.",
        answers=UNANSWERED,
        edits={"q1": (" and n < len(text)", "")},
    ),
    Fake(
        "numbers-of-letters",
        {"q1": 10, **NO_TRAINING},
        "Takes the number of each letter, ord, for its bytes. The same for English, and another row for every é.",
        answers=UNANSWERED,
        edits={"q1": ('text.encode("utf-8")', "map(ord, text)")},
    ),
    Fake(
        "product-first",
        {"q1": 6, **NO_TRAINING},
        "Multiplies before the exclusive or: that is FNV-1, the older brother. Vectors of others cannot be read with it.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "(number ^ byte) * 16777619 % 2**32",
                "number * 16777619 % 2**32 ^ byte",
            )
        },
    ),
    Fake(
        "each-row-takes-all",
        {"q2": 9, **NO_TRAINING},
        "Gives each piece the whole gradient of h, as if the pieces were added up. A long word then moves too far.",
        answers=UNANSWERED,
        edits={"q2": ("error @ C[chosen] / len(rows)", "error @ C[chosen]")},
    ),
    Fake(
        "adds-once",
        {"q2": 18, **NO_TRAINING},
        "Writes A[rows] += x. NumPy adds once, however often a row is named, and says nothing.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "np.add.at(dC, chosen, error[:, None] * h)\n    np.add.at(dQ, rows, error @ C[chosen] / len(rows))",
                "dC[chosen] += error[:, None] * h\n    dQ[rows] += error @ C[chosen] / len(rows)",
            )
        },
    ),
    Fake(
        "noise-that-is-true",
        {"q2": 20, **NO_TRAINING},
        "Keeps noise that happens to be the target: the pair is called true and false in one step.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "negatives = np.asarray(negatives)[np.asarray(negatives) != target]",
                "negatives = np.asarray(negatives)",
            )
        },
    ),
    Fake(
        "log-of-zero",
        {"q2": 20, **NO_TRAINING},
        "Computes the sigmoid and then its logarithm. At a score of -1000 the sigmoid is 0, and its logarithm infinite.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "np.logaddexp(0, -scores).sum()",
                "-np.log(1 / (1 + np.exp(-scores))).sum()",
            )
        },
    ),
    Fake(
        "lends-without-end",
        {"q3": 0, **NO_TRAINING},
        "Never looks at what a large word has left. It goes on lending when it is small itself.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "        if share[j] < 1:\n            small.append(large.pop())\n",
                "",
            )
        },
    ),
    Fake(
        "nothing-to-the-power-of-nothing",
        {"q3": 12, **NO_TRAINING},
        "Takes 0 to the power of 0, which is 1: words that never occur are drawn like all others.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "share = np.zeros(len(counts))\n    share[counts > 0] = counts[counts > 0] ** power",
                "share = counts**power",
            )
        },
    ),
    Fake(
        "share-of-the-vocabulary",
        {"q4": 9, **NO_TRAINING},
        "Averages over the words of the list in place of the words of the text. Nearly all of the list is rare and stays.",
        answers=UNANSWERED,
        edits={
            "q4": (
                "f @ (1 - np.minimum(1, np.sqrt(t / f)))",
                "np.mean(1 - np.minimum(1, np.sqrt(t / f)))",
            )
        },
    ),
    Fake(
        "gaps-stay-open",
        {"q4": 9, **NO_TRAINING},
        "Counts places of the sentence as it was. A dropped word still takes up room in the window.",
        answers=UNANSWERED,
        edits={
            "q4": (
                "for j in left[max(0, k - reach[i]) : k + reach[i] + 1]:\n            if j != i:",
                "for j in left:\n            if j != i and abs(j - i) <= reach[i]:",
            )
        },
    ),
    Fake(
        "sum-of-cosines",
        {"q5": 0, **NO_TRAINING},
        "Takes the sum of chapter 4 in place of the product.",
        answers=UNANSWERED,
        edits={"q5": ("b * c / (a + 0.001)", "b + c - a")},
    ),
    Fake(
        "lengths-count",
        {"q5": 4, **NO_TRAINING},
        "Takes products of the vectors as they are for cosines. Long vectors win.",
        answers=UNANSWERED,
        edits={"q5": ("vectors / np.where(lengths > 0, lengths, 1)", "vectors")},
    ),
    Fake(
        "nan-wins",
        {"q5": 8, **NO_TRAINING},
        "Divides a vector of zeros by its length, 0. argmax takes NaN for the largest number.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "vectors / np.where(lengths > 0, lengths, 1)",
                "vectors / lengths",
            )
        },
    ),
    Fake(
        "whole-words-only",
        {"q6": 4},
        "Trains the row of the whole word and no other. New words have no row that ever moved, and rare ones learn from "
        "nobody.",
        edits={
            "q6": (
                "real = rows >= 0\n",
                "real = np.zeros(rows.shape, dtype=bool)\n    real[np.arange(V), (rows >= 0).sum(1) - 1] = True\n",
            )
        },
    ),
]
