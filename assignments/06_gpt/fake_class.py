"""Typical wrong answers of assignment 6, and the marks that the rubric gives them."""

from course.fakes import Fake

# Training takes a while, so only those who are here for question 6 answer it.
NO_TRAINING = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "window-and-one-more",
        {"q1": 12, **NO_TRAINING},
        "Looks W tokens back and at the token itself, which makes W + 1. A window of 1 shows it: a token alone is its own "
        "average.",
        answers=UNANSWERED,
        edits={"q1": ("ages < window", "ages <= window")},
    ),
    Fake(
        "slope-behind-the-softmax",
        {"q1": 5, **NO_TRAINING},
        "Takes the distance off the weights where it belongs to the scores. The weights do not sum to 1 any more, and may "
        "be negative.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "scores = q @ k.T / np.sqrt(d) - slopes[:, None, None] * ages\n"
                "    scores = np.where((ages >= 0) & (ages < window), scores, -np.inf)\n"
                "    weights = np.exp(scores - scores.max(-1, keepdims=True))\n"
                "    return weights / weights.sum(-1, keepdims=True) @ v",
                "inside = (ages >= 0) & (ages < window)\n"
                "    scores = np.where(inside, q @ k.T / np.sqrt(d), -np.inf)\n"
                "    weights = np.exp(scores - scores.max(-1, keepdims=True))\n"
                "    weights /= weights.sum(-1, keepdims=True)\n"
                "    return (weights - inside * slopes[:, None, None] * ages) @ v",
            )
        },
    ),
    Fake(
        "row-for-token",
        {"q2": 11, **NO_TRAINING},
        "Takes the number of a row for the number of its token. True until the ring has gone round; then the newest token "
        "may look the oldest.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "ages = (n - np.arange(W)) % W\n    there = ages <= n",
                "ages = min(n, W - 1) - np.arange(W)\n    there = ages >= 0",
            )
        },
    ),
    Fake(
        "empty-rows-count",
        {"q2": 3, **NO_TRAINING},
        "Lets the first tokens look at the zeros in the rows that nobody has written yet. They have a score of 0, which is "
        "not a small one.",
        answers=UNANSWERED,
        edits={"q2": ("there = ages <= n", "there = ages >= 0")},
    ),
    Fake(
        "ring-in-place",
        {"q2": 13, **NO_TRAINING},
        "Writes into the arrays it was given. The outputs are right, and whoever kept the old cache, as a beam search "
        "does, has lost it.",
        answers=UNANSWERED,
        edits={
            "q2": ('cache["k"].copy(), cache["v"].copy()', 'cache["k"], cache["v"]')
        },
    ),
    Fake(
        "top-p-again",
        {"q3": 0, **NO_TRAINING},
        "Sorts by probability: that is top-p. The most probable token is always kept, which typical sampling may well cut.",
        answers=UNANSWERED,
        edits={"q3": ("np.argsort(np.abs(surprise - entropy)", "np.argsort(-p")},
    ),
    Fake(
        "nothing-times-infinity",
        {"q3": 11, **NO_TRAINING},
        "Sums -p log p over forbidden tokens too. 0 times infinity is NaN, so is the entropy, and all distances.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "entropy = p[p > 0] @ surprise[p > 0]",
                "entropy = (p * surprise).sum()",
            )
        },
    ),
    Fake(
        "draws-again-from-p",
        {"q4": 5, **NO_TRAINING},
        "After a refusal draws from the good model's whole distribution. Tokens that the draft offers often then come too often.",
        answers=UNANSWERED,
        edits={"q4": ("rest = np.maximum(p[i] - q[i], 0)", "rest = p[i]")},
    ),
    Fake(
        "goes-on-behind-a-refusal",
        {"q4": 5, **NO_TRAINING},
        "Puts a new token in the place of the refused one and goes on with the draft, which was written behind another token.",
        answers=UNANSWERED,
        edits={
            "q4": (
                "rest = np.maximum(p[i] - q[i], 0)\n            break\n        taken.append(int(token))\n    else:\n"
                "        rest = p[len(proposed)]",
                "so_far = np.cumsum(np.maximum(p[i] - q[i], 0))\n"
                "            token = np.searchsorted(so_far, last * so_far[-1], side='right')\n"
                "        taken.append(int(token))\n    rest = p[len(proposed)]",
            )
        },
    ),
    Fake(
        "scale-forwards-only",
        {"q5": 5, **NO_TRAINING},
        "Scales the bypass forwards and forgets the scale backwards. All gradients of the bypass are too small by one factor.",
        answers=UNANSWERED,
        edits={"q5": ("scale = alpha / len(down)\n", "scale = 1.0\n")},
    ),
    Fake(
        "bypasses-asleep",
        {"q6": 11},
        "Starts down and up both at zero. Each one's gradient is a product with the other, so neither ever moves; only the "
        "head learns.",
        edits={
            "q6": (
                "start = torch.randn(rank, layer.in_features) / layer.in_features**0.5",
                "start = torch.zeros(rank, layer.in_features)",
            )
        },
    ),
]
