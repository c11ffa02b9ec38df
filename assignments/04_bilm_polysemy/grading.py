"""Hidden tests of assignment 4. Never released, never in the file system that student code sees."""

import numpy as np

from course.questions import Question, Written, case

TITLE = "What could stand here?"
NUMPY_ONLY = (
    "torch",
    "scipy",
    "sklearn",
    "plm",
)  # readers and groups are to be written

q1 = Question("q1", "A reader", "read", cpu=5, without=NUMPY_ONLY)
q2 = Question("q2", "A gap", "gaps", cpu=5, without=NUMPY_ONLY)
q3 = Question("q3", "Substitutes", "substitutes", cpu=5, without=NUMPY_ONLY)
q4 = Question(
    "q4", "How different are two lists?", "divergences", cpu=20, without=NUMPY_ONLY
)
q5 = Question("q5", "Groups", "groups", cpu=8, without=NUMPY_ONLY)
q6 = Question(
    "q6",
    "One word, two lives",
    "induce_all",
    needs=("q3", "q4", "q5"),
    cpu=40,
    memory=2 << 30,
    without=NUMPY_ONLY,
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "Two readers and Bayes",
        {
            "Bayes' rule is applied to both sides together, then to each": 2,
            "The assumption stands at the right step: left and right are independent given the word": 1,
            "A sentence in which both sides tell the same, and what is counted twice there": 2,
        },
    ),
    Written(
        "w2",
        "What the groups are",
        {
            "Sentences of both groups with their substitutes": 1,
            "What separates the groups is said, and fits the sentences, also where it is not the sense": 2,
            "A way to measure it, with something to compare the number with": 2,
        },
    ),
]


def stack(rng, n_layers, d, H):
    """Random layers of a reader."""
    shapes = {"x": (4 * H, d), "h": (4 * H, d), "b": (4 * H,), "proj": (d, H)}
    return [
        {key: rng.normal(size=shape) for key, shape in shapes.items()}
        for _ in range(n_layers)
    ]


def sentences(rng, n_layers, lengths, backwards=False):
    """Arguments of `read`."""
    d, H = (int(n) for n in rng.integers(2, 7, size=2))
    x = rng.normal(size=(len(lengths), max(lengths), d))
    return case(
        x=x,
        lengths=np.array(lengths),
        layers=stack(rng, n_layers, d, H),
        backwards=backwards,
    )


@q1.part(
    6,
    "one layer, forwards",
    "Gates in the order i, f, g, o; c stays H wide, the projection of o tanh(c) is output and next h.",
)
def one_layer(rng, ref):
    return [sentences(rng, 1, [5, 5, 5]) for _ in range(3)]


@q1.part(
    4,
    "several layers",
    "From the second layer on its input is added to what it hands up. What it reads itself at the next "
    "step is the projection alone.",
)
def layers(rng, ref):
    return [sentences(rng, 2, [5, 5]), sentences(rng, 3, [6, 6])]


@q1.part(
    5,
    "backwards, sentences of many lengths",
    "Each sentence starts at its own last word: before that the state stays zero. And the output stands "
    "at the word it belongs to.",
)
def backwards(rng, ref):
    return [sentences(rng, 2, [6, 1, 4, 3], backwards=True) for _ in range(3)]


@q1.part(
    3,
    "NaN in the padding",
    "Zero times NaN is NaN: choose with np.where, do not multiply with a mask.",
)
def spoilt(rng, ref):
    drawn = []
    for way in (False, True):
        one = sentences(rng, 2, [6, 2, 4], backwards=way)
        one.inputs["x"][np.arange(6) >= one.inputs["lengths"][:, None]] = np.nan
        drawn.append(one)
    return drawn


def both(rng, lengths):
    """Arguments of `gaps`."""
    shape = (len(lengths), max(lengths), 4)
    return case(
        there=rng.normal(size=shape),
        back=rng.normal(size=shape),
        lengths=np.array(lengths),
    )


@q2.part(
    6,
    "one length",
    "Left is what the forward reader held one place before, right what the backward reader held one place behind.",
)
def full(rng, ref):
    return [both(rng, [6, 6]), both(rng, [3])]


@q2.part(
    6,
    "many lengths",
    "A short sentence's last place has nothing behind it, though the array goes on; in the padding both are zero.",
)
def padded(rng, ref):
    return [both(rng, [6, 3, 1, 5]) for _ in range(2)]


def gap_states(rng, scale=1.0, banned=()):
    """Arguments of `substitutes`."""
    N, d, V = 5, 4, 12
    return case(
        left=scale * rng.normal(size=(N, d)),
        right=scale * rng.normal(size=(N, d)),
        table=rng.normal(size=(V, d)),
        bias=rng.normal(size=V),
        counts=rng.integers(0, 40, size=V),
        banned=np.array(banned, dtype=np.int64),
    )


@q3.part(
    8,
    "both readers and the frequency",
    "Each reader's probabilities first, each with its own sum; then the logarithms add up, the "
    "frequency's is taken away, and all sum to one again.",
)
def together(rng, ref):
    return [gap_states(rng) for _ in range(3)]


@q3.part(
    4,
    "banned words",
    "Minus infinity before the last normalisation, so that the others share what is theirs.",
)
def banned(rng, ref):
    return [gap_states(rng, banned=rng.permutation(12)[:3]) for _ in range(2)]


@q3.part(
    6,
    "large scores",
    "exp of 1000 overflows, and the log of an exp that became 0 is minus infinity. Take the largest "
    "score away, and stay with logarithms.",
)
def large(rng, ref):
    return [gap_states(rng, scale=1000.0), gap_states(rng, scale=300.0)]


def lists(rng, N, V, zeros=0.0):
    """Arguments of `divergences`: random distributions, a share of the words impossible."""
    scores = 3 * rng.normal(size=(N, V))
    scores[rng.random((N, V)) < zeros] = -np.inf
    scores[:, 0] = 0
    return case(log_p=scores - np.log(np.exp(scores).sum(1, keepdims=True)))


@q4.part(
    6,
    "all words possible",
    "m is the mean of the two distributions, not of their logarithms; bits are logarithms to the base 2.",
)
def possible(rng, ref):
    return [lists(rng, 6, 20), lists(rng, 3, 50)]


@q4.part(
    4,
    "impossible words",
    "Where p is 0 its part is 0, whatever the logarithm says.",
)
def impossible(rng, ref):
    return [lists(rng, 6, 20, zeros=0.5), lists(rng, 5, 4, zeros=0.9)]


@q4.part(
    4,
    "a hundred gaps, ten thousand words",
    "One row against all others at a time: N times V numbers fit, N times N times V do not. A loop over "
    "words takes for ever.",
)
def many(rng, ref):
    return [lists(rng, 100, 10_000, zeros=0.001)]


def things(rng, N, n, dims=2):
    """Arguments of `groups`: points in the plane."""
    x = rng.normal(size=(N, dims))
    return case(distances=np.sqrt(((x[:, None] - x) ** 2).sum(-1)), n=n)


@q5.part(
    6,
    "two heaps",
    "The nearest two groups merge, again and again. A thing's distance to itself is none.",
)
def heaps(rng, ref):
    drawn = []
    for _ in range(3):
        x = np.concatenate([rng.normal(size=(5, 2)), 30 + rng.normal(size=(4, 2))])[
            rng.permutation(9)
        ]
        drawn.append(case(distances=np.sqrt(((x[:, None] - x) ** 2).sum(-1)), n=2))
    return drawn


@q5.part(
    5,
    "mean distances",
    "Between groups of unlike size the mean is over all pairs of members: a large group's distances "
    "weigh more when two groups merge.",
)
def means(rng, ref):
    return [things(rng, 40, n) for n in (2, 3, 5, 8, 12, 2, 3, 5)]


@q5.part(
    3,
    "few things",
    "With no more things than groups nothing is merged: 0, 1, 2 and so on.",
)
def few(rng, ref):
    return [
        things(rng, 4, 4),
        things(rng, 3, 7),
        things(rng, 1, 2),
        things(rng, 6, 1),
    ]


LEVELS = {0.6: 5, 0.65: 10, 0.7: 14}
# None of them is in the notebook: who knows the two words needs no senses.
HIDDEN = (
    "mother brother daughter son hero comedy drama camera world country town voice "
)
HIDDEN += (
    "script police killer television series fight king job husband body blood face"
)


def senses_right(got, one):
    """The share of points for the mean share of gaps in the right sense."""
    if not isinstance(got, list) or len(got) != len(one.secret):
        return "not one answer for each word"
    shares = []
    for found, labels in zip(got, one.secret):
        found, labels = np.asarray(found), np.asarray(labels)
        if found.shape != labels.shape or not np.isin(found, (0, 1)).all():
            return "not a 0 or 1 for each gap"
        same = (found == labels).mean()
        shares.append(max(same, 1 - same))
    return (
        max(
            [
                points
                for level, points in LEVELS.items()
                if np.mean(shares) >= level
            ],
            default=0,
        )
        / 14
    )


@q6.part(
    14,
    "gaps in the right sense: 60 % give 5 points, 65 % give 10, 70 % give 14",
    "How large are your groups? One strange gap against all others is a split, too. What do many gaps of "
    "one sense have in common?",
    judge=senses_right,
    reference=False,
)
def senses(rng, ref):
    gaps, labels = [], []
    ref.collect(HIDDEN.split())
    for _ in range(16):
        words = rng.choice(HIDDEN.split(), 2, replace=False)
        _, left, right, which = ref.occurrences(words, 30, rng)
        gaps.append([left, right])
        labels.append(which)
    model = {
        "table": ref.TABLE,
        "bias": ref.BIAS,
        "counts": ref.COUNTS,
        "banned": ref.BANNED,
    }
    return [case(secret=labels, gaps=gaps, **model)]
