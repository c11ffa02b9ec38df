"""Typical wrong answers of assignment 8, and the marks that the rubric gives them; and the reference on the other tasks."""

from course.fakes import Fake

# Training takes a while, so only those who are here for questions 1 and 2 answer them.
NO_TRAINING = {"q1": 0, "q2": 0}
UNANSWERED = {"q1": "", "q2": ""}
BEGINNING = """    torch.manual_seed(seed)
    pretrained = "fine-tuned" if TASK == "film" else "frozen"
    way = pretrained if start == "pretrained" else "scratch"
    encoder = downstream.start(bert, way)
"""
# These students' readers do not train on many texts, so that only question 2 costs time.
NO_READER = """    if len(train) > 100:
        return np.zeros((len(test), 2))
"""


def begins(code: str) -> dict[str, tuple[str, str]]:
    """The reference's `solve` with another beginning."""
    return {"q1": (BEGINNING, NO_READER + code)}


# Not handed in by those who are here to show another task.
LEFT_OUT = {"q2": "", "q3": "", "q4": "", "q5": ""}
NOTHING = dict.fromkeys(LEFT_OUT, 0.0)

FAKES = [
    Fake(
        "chooses-reviews",
        NOTHING,
        "Not wrong: a frozen encoder on the reviews. It loses to the baseline, and its report has to say so.",
        answers=LEFT_OUT,
        edits={"q1": ('TASK = "film"', 'TASK = "reviews"')},
    ),
    Fake(
        "names-without-a-list",
        {"q1": 15, **NOTHING},
        "Chooses names and trusts the network alone. A list of the names in the training sentences costs nothing and finds "
        "far more.",
        answers=LEFT_OUT,
        edits={"q1": ('TASK = "film"', 'TASK = "names"')},
    ),
    Fake(
        "always-the-same",
        {"q1": 0, "q2": 10},
        "Gives all texts the same scores. That such a control knows nothing is true, and no merit; half of the reviews are "
        "right by chance.",
        edits={
            "q1": (
                "    torch.manual_seed(seed)\n",
                "    return np.zeros((len(test), 2))\n",
            )
        },
    ),
    Fake(
        "control-with-layers",
        {"q1": 0, "q2": 10},
        "Draws the word vectors of the control anew and keeps the layers: what was learnt there is in the control, too.",
        edits=begins(
            BEGINNING
            + """    if start == "scratch":
        encoder = downstream.start(bert, "fine-tuned")
        torch.nn.init.normal_(encoder.embedding.words.weight, std=0.02)
"""
        ),
    ),
    Fake(
        "trains-what-it-was-given",
        {"q1": 0, "q2": 13},
        "Trains the encoder that was handed over in place of a copy. Whoever uses it next gets a film critic.",
        edits=begins(
            BEGINNING + '    if start == "pretrained":\n        encoder = bert\n'
        ),
    ),
    Fake(
        "forgets-the-seed",
        {"q1": 0, "q2": 6},
        "Does not set the seed before the weights are drawn: no run can be repeated, and no two ways begin alike.",
        edits=begins(BEGINNING.replace("torch.manual_seed(seed)", "torch.seed()")),
    ),
    Fake(
        "the-same-rows-for-all",
        {"q3": 4, **NO_TRAINING},
        "Takes the first rows for every seed. The spread then shows the luck of the start and not that of the labels.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "np.random.default_rng(s).permutation(n_rows).tolist()",
                "list(range(n_rows))",
            )
        },
    ),
    Fake(
        "new-rows-for-each-size",
        {"q3": 4, **NO_TRAINING},
        "Draws anew for each size: a larger set may be harder than a smaller one, and the curve bends for no reason.",
        answers=UNANSWERED,
        edits={
            "q3": (
                "return {n: [run(orders[s][:n], s) for s in seeds] for n in sizes}",
                "draw = lambda n, s: np.random.default_rng([n, s]).permutation(n_rows)\n"
                "    return {n: [run(draw(n, s)[:n].tolist(), s) for s in seeds] for n in sizes}",
            )
        },
    ),
    Fake(
        "each-its-own-resample",
        {"q4": 4, **NO_TRAINING},
        "Measures the two readers on different resamples. What makes texts hard for both then looks like a difference.",
        answers=UNANSWERED,
        edits={
            "q4": (
                "gain[draws].mean(1)",
                "np.asarray(right_a)[draws].mean(1) - np.asarray(right_b)[draws[::-1]].mean(1)",
            )
        },
    ),
    Fake(
        "one-tail",
        {"q4": 4, **NO_TRAINING},
        "Counts one end of the coin. Who chooses the end after seeing the result has halved the p-value.",
        answers=UNANSWERED,
        edits={"q4": ("2 * sum(", "sum(")},
    ),
    Fake(
        "all-texts-decide",
        {"q4": 4, **NO_TRAINING},
        "Counts the texts on which both were right, or both wrong, as throws of the coin.",
        answers=UNANSWERED,
        edits={
            "q4": ("n, few = a + b, min(a, b)", "n, few = len(right_a), min(a, b)")
        },
    ),
    Fake(
        "no-errors-no-doubt",
        {"q5": 0, **NO_TRAINING},
        "Takes the usual p ± z √(p(1 − p)/n). For a group without errors the interval has no width, so six lucky texts "
        "stand out.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "middle = p + z**2 / (2 * n)\n"
                "        half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5",
                "middle, scale = p, 1\n        half = z * (p * (1 - p) / n) ** 0.5",
            )
        },
    ),
    Fake(
        "mean-of-the-groups",
        {"q5": 3, **NO_TRAINING},
        "Compares with the mean of the groups' shares, in which a group of three counts as much as one of three hundred.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "overall = float(np.mean(np.asarray(wrong, dtype=float)))",
                "overall = float(np.mean([k / n for k, n, *_ in slices(wrong, groups).values()]))",
            )
        },
    ),
]
