"""Typical wrong answers of assignment 4, and the marks that the rubric gives them."""

from course.fakes import Fake

# What wrong distances lead to is not known beforehand, so these students did not get to question 6.
NOT_REACHED = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "gates-in-article-order",
        {"q1": 0, **NOT_REACHED},
        "Splits the stack as f, i, g, o, the order in which the gates are usually explained. The shapes fit, "
        "and nothing fails.",
        answers=UNANSWERED,
        edits={"q1": ("i, f, g, o = np.split", "f, i, g, o = np.split")},
    ),
    Fake(
        "reads-its-own-sum",
        {"q1": 6, **NOT_REACHED},
        "Adds the input inside the loop, so that the second layer reads the sum at its next step. One layer is right.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "            y[:, t] = h\n        x = y + x if number else y",
                "            h = h + x[:, t] if number else h\n            y[:, t] = h\n        x = y",
            )
        },
    ),
    Fake(
        "starts-in-the-padding",
        {"q1": 10, **NOT_REACHED},
        "Reads backwards from the end of the array, through the padding: a short sentence's state is no "
        "longer zero where the sentence begins.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "c = np.where(valid[:, t], sigmoid(f) * c + sigmoid(i) * np.tanh(g), 0)\n"
                "            h = np.where(\n"
                '                valid[:, t], (sigmoid(o) * np.tanh(c)) @ layer["proj"].T, 0\n'
                "            )\n"
                "            y[:, t] = h",
                "c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)\n"
                '            h = (sigmoid(o) * np.tanh(c)) @ layer["proj"].T\n'
                "            y[:, t] = np.where(valid[:, t], h, 0)",
            )
        },
    ),
    Fake(
        "sees-the-word",
        {"q2": 0, **NOT_REACHED},
        "Takes both readers' outputs at the place itself. They have read the word: the gap is none.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "left[:, 1:], right[:, :-1] = there[:, :-1], back[:, 1:]",
                "left[:], right[:] = there, back",
            )
        },
    ),
    Fake(
        "looks-behind-the-end",
        {"q2": 6, **NOT_REACHED},
        "Lets the last place of a short sentence see what the array holds behind it, which is padding.",
        answers=UNANSWERED,
        edits={"q2": ("(t < lengths[:, None] - 1)", "(t < lengths[:, None])")},
    ),
    Fake(
        "forgets-how-frequent",
        {"q3": 0, **NOT_REACHED},
        "Multiplies the two readers and does not divide by P(w): *the* and *a* are everybody's best substitutes.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "scores = scores - np.log((counts + 1) / (counts + 1).sum())",
                "scores = scores + 0.0",
            )
        },
    ),
    Fake(
        "bans-too-late",
        {"q3": 14, **NOT_REACHED},
        "Takes the banned words out after the last normalisation: the others do not sum to one.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "scores[:, banned] = -np.inf\n    return log_softmax(scores)",
                "scores = log_softmax(scores)\n    scores[:, banned] = -np.inf\n    return scores",
            )
        },
    ),
    Fake(
        "leaves-the-logarithms",
        {"q3": 12, **NOT_REACHED},
        "Computes probabilities and takes their logarithm: what is below the smallest number becomes zero, "
        "and minus infinity.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "return scores - np.log(np.exp(scores).sum(1, keepdims=True))",
                "p = np.exp(scores)\n        return np.log(p / p.sum(1, keepdims=True))",
            )
        },
    ),
    Fake(
        "zero-times-infinity",
        {"q4": 6, **NOT_REACHED},
        "Multiplies p = 0 with a logarithm of minus infinity: NaN as soon as a word is impossible.",
        answers=UNANSWERED,
        edits={"q4": ("np.log2(np.where(p > 0, p, 1))", "np.log2(p)")},
    ),
    Fake(
        "all-pairs-at-once",
        {"q4": 10, **NOT_REACHED},
        "Broadcasts all pairs and all words into one array. For small numbers it is right and quick.",
        answers={
            **UNANSWERED,
            "q4": "def divergences(log_p):\n"
            "    p = np.exp(log_p)\n"
            "    m = (p[:, None] + p) / 2\n"
            "    h = lambda p: -(p * np.log2(np.where(p > 0, p, 1))).sum(-1)\n"
            "    return h(m) - (h(p)[:, None] + h(p)) / 2",
        },
    ),
    Fake(
        "nearest-members",
        {"q5": 9, **NOT_REACHED},
        "Merges by the nearest two members (single linkage): two heaps come out right, and anything between "
        "them makes a chain.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "(a * mean[i] + b * mean[j]) / (a + b)",
                "np.minimum(mean[i], mean[j])",
            )
        },
    ),
    Fake(
        "mean-of-means",
        {"q5": 9, **NOT_REACHED},
        "Takes the mean of the two groups' means, as if they were of one size.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "(a * mean[i] + b * mean[j]) / (a + b)",
                "(mean[i] + mean[j]) / 2",
            )
        },
    ),
    Fake(
        "one-sense-for-all",
        {"q6": 0},
        "Says 0 for every gap, which is right for half of them.",
        answers={
            "q6": "def induce(left, right, table, bias, counts, banned):\n    return np.zeros(len(left), dtype=int)"
        },
    ),
]
