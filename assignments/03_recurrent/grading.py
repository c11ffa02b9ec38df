"""Hidden tests of assignment 3. Never released, never in the file system that student code sees."""

from dataclasses import replace

import numpy as np

from course.questions import Question, Written, case, close

TITLE = "A cell that looks at its own belt"
NO_TORCH = (
    "torch",
    "babel",
)  # the LSTM and its gradient are to be written, the names to be learnt

q1 = Question("q1", "One step of a peephole LSTM", "step", cpu=4, without=NO_TORCH)
q2 = Question(
    "q2", "A batch of sentences", "read_some_cell", cpu=4, without=NO_TORCH
)
q3 = Question("q3", "Count in secret", "parity", cpu=4, without=NO_TORCH)
q4 = Question(
    "q4", "One step back", "step_back", needs=("q1",), cpu=4, without=NO_TORCH
)
q5 = Question(
    "q5", "Backwards through time", "read_back_some_cell", cpu=4, without=NO_TORCH
)
q6 = Question(
    "q6",
    "Which language is this?",
    "train",
    needs=("q1", "q2", "q4", "q5"),
    cpu=70,
    memory=2 << 30,
    without=NO_TORCH,
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "Why a plain LSTM cannot count in secret",
        {
            "While nobody asks, h is near zero whatever the count": 1,
            (
                "The gates read only x and h, so they take the same values in "
                "both cases"
            ): 2,
            (
                "So the new c is one increasing function of the old at each "
                "pulse, which cannot exchange two values"
            ): 1,
            "With a peephole the input gate sees the belt": 1,
        },
    ),
    Written(
        "w2",
        "Which languages are mixed up",
        {
            (
                "The confusion matrix on names the model has not seen, and the "
                "pair read off rightly"
            ): 2,
            "Some of the names, and a reason that fits them": 1,
            "The reason could be wrong, and there is a test that would show it": 2,
        },
    ),
]


def weights(rng, d_in, d_hidden, holes="ifo"):
    """A random cell; peepholes that are not named are zero."""
    w = {
        "x": rng.normal(size=(4 * d_hidden, d_in)),
        "h": rng.normal(size=(4 * d_hidden, d_hidden)),
    }
    w["b"] = rng.normal(size=4 * d_hidden)
    return w | {
        "peep": np.stack(
            [rng.normal(size=d_hidden) * (gate in holes) for gate in "ifo"]
        )
    }


def one_step(rng, holes="ifo", backwards=False):
    """Arguments of `step`, or of `step_back`, for a random batch."""
    B, d_in, d_hidden = (int(n) for n in rng.integers(2, 8, size=3))
    sizes = {"x": d_in, "h": d_hidden, "c": d_hidden} | (
        {"dh": d_hidden, "dc": d_hidden} if backwards else {}
    )
    arrays = {name: rng.normal(size=(B, size)) for name, size in sizes.items()}
    return case(**arrays, w=weights(rng, d_in, d_hidden, holes))


@q1.part(
    5,
    "without peepholes",
    ("Gates stand in the order i, f, g, o; g gets a tanh, the others a sigmoid."),
)
def plain(rng, ref):
    return [one_step(rng, holes="") for _ in range(3)]


@q1.part(
    4,
    "peepholes of i and f",
    (
        "These two gates decide what becomes of the belt, so they look at it before: "
        "at the old c."
    ),
)
def holes_before(rng, ref):
    return [one_step(rng, holes="if") for _ in range(3)]


@q1.part(
    4,
    "the peephole of o",
    ("The output gate decides about the belt as it is now: it looks at the new c."),
)
def hole_after(rng, ref):
    return [one_step(rng, holes="o") for _ in range(3)]


@q1.part(
    2,
    "arguments stay as they are",
    "Something like c *= f changes the caller's array. Make a new one.",
    call="step_and_arguments",
)
def arguments_after(rng, ref):
    return [one_step(rng, holes="") for _ in range(2)]


def batch(rng, lengths, B=5, T=7):
    """Arguments of `read` for the cell of calls.py."""
    d_in, d_hidden = (int(n) for n in rng.integers(2, 6, size=2))
    shapes = {"x": (d_hidden, d_in), "h": (d_hidden, d_hidden), "b": (d_hidden,)}
    w = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return case(x=rng.normal(size=(B, T, d_in)), lengths=np.asarray(lengths), w=w)


def some_lengths(rng, B=5, T=7):
    """Lengths that differ: a whole sentence, an empty one, and others between."""
    return rng.permutation([T, 0, *rng.integers(1, T, size=B - 2)])


@q2.part(
    5,
    "sentences of one length",
    ("The state goes from step to step; an output per step."),
)
def full(rng, ref):
    return [batch(rng, [7] * 5), batch(rng, [7] * 5)]


@q2.part(
    6,
    "states stop at the sentence's end",
    "Where a step is padding, the old state has to stay: np.where on both h and c.",
    judge=lambda got, one: close()(got[1:], replace(one, want=one.want[1:])),
)
def states(rng, ref):
    return [batch(rng, some_lengths(rng)) for _ in range(3)]


@q2.part(
    4,
    "outputs of the padding are zero, and NaN stays in it",
    "Zero times NaN is NaN: choose with np.where, do not multiply with a mask.",
)
def spoilt(rng, ref):
    drawn = []
    for filling in (np.nan, np.inf):
        one = batch(rng, some_lengths(rng))
        one.inputs["x"][np.arange(7) >= one.inputs["lengths"][:, None]] = filling
        drawn.append(one)
    return drawn


def outputs_of(w, x):
    """Outputs (B, T, d_hidden) of a peephole LSTM, written anew: what a student's weights do is computed here, not there."""
    h = c = np.zeros((len(x), w["h"].shape[1]))
    outputs = []
    for x_t in np.moveaxis(x, 1, 0):
        a = np.split(x_t @ w["x"].T + h @ w["h"].T + w["b"], 4, axis=1)
        i, f = (
            1 / (1 + np.exp(-np.clip(a[k] + w["peep"][k] * c, -500, 500)))
            for k in (0, 1)
        )
        c = f * c + i * np.tanh(a[2])
        h = np.tanh(c) / (1 + np.exp(-np.clip(a[3] + w["peep"][2] * c, -500, 500)))
        outputs.append(h)
    return np.stack(outputs, 1)


def has_shapes(w, shapes):
    """Whether a returned value is a dict of real arrays of these shapes."""
    found = (
        {k: v.shape for k, v in w.items() if isinstance(v, np.ndarray)}
        if isinstance(w, dict)
        else {}
    )
    return found == shapes


def counts(got, one, told):
    """Judge a unit on hidden sequences: at questions (`told`), or at all other steps."""
    if not has_shapes(got, {"x": (4, 2), "h": (4, 1), "b": (4,), "peep": (3, 1)}):
        return "the dict has not the four arrays of one unit with two inputs"
    pulses, questions = np.asarray(one.secret) == "p", np.asarray(one.secret) == "?"
    h = outputs_of(got, np.stack([pulses, questions], -1).astype(float))[:, :, 0]
    odd = pulses.cumsum(1) % 2 == 1
    right = np.where(odd, h > 0.5, np.abs(h) < 0.05) if told else np.abs(h) < 0.05
    return bool(right[questions if told else ~questions].all())


def sequences(rng, longest, symbols="pp?.", n=40):
    """Random sequences of pulses, questions and nothing, of one length."""
    return rng.choice(list(symbols), size=(n, longest)).tolist()


@q3.part(
    4,
    "answers when asked",
    (
        "At a pulse: what should i and f be when the belt carries 0, and when it "
        "carries 1? Only a peephole tells them apart."
    ),
    judge=lambda got, one: counts(got, one, told=True),
    reference=False,
)
def short(rng, ref):
    return [case(secret=sequences(rng, 6))]


@q3.part(
    4,
    "keeps it secret",
    "Without a question the output gate has to be shut, by a large negative bias.",
    judge=lambda got, one: counts(got, one, told=False),
    reference=False,
)
def silent(rng, ref):
    return [case(secret=sequences(rng, 6))]


@q3.part(
    4,
    "after hundreds of steps",
    (
        "A gate of 0.99 keeps 0.99 of the belt, and 0.99 to the power of 500 is "
        "nearly nothing. Make the weights larger."
    ),
    judge=lambda got, one: (
        counts(got, one, told=True) is True and counts(got, one, told=False)
    ),
    reference=False,
)
def enduring(rng, ref):
    return [case(secret=sequences(rng, 600, "p?" + 40 * "."))]


@q4.part(
    5,
    "without peepholes",
    (
        "Chapter 6, the gradient of the LSTM: h hands its part to the belt, then "
        "each gate takes its share."
    ),
)
def plain_back(rng, ref):
    return [one_step(rng, holes="", backwards=True) for _ in range(3)]


@q4.part(
    6,
    "x, h and c",
    (
        "The peephole of o is a road from the output to the belt; those of i and f "
        "lead on to the old c."
    ),
    call="inputs_back",
)
def inputs(rng, ref):
    return [one_step(rng, backwards=True) for _ in range(3)]


@q4.part(
    5,
    ("the weights, peepholes among them"),
    (
        "Each peephole's gradient is the gate's, times the c it looked at, summed "
        "over the batch."
    ),
    call="weights_back",
)
def peepholes(rng, ref):
    return [one_step(rng, backwards=True) for _ in range(3)]


@q4.part(
    4,
    "a large cell in time",
    (
        "Moving every weight a little and running again is a check, not an "
        "answer: it takes one run per weight."
    ),
    call="weights_back",
)
def large(rng, ref):
    arrays = {
        name: rng.normal(size=(64, 256)) for name in ("x", "h", "c", "dh", "dc")
    }
    return [
        case(**arrays, w={k: 0.1 * v for k, v in weights(rng, 256, 256).items()})
    ]


def batch_back(rng, lengths):
    """Arguments of `read_back`."""
    one = batch(rng, lengths)
    one.inputs["d_outputs"] = rng.normal(size=(5, 7, one.inputs["w"]["h"].shape[1]))
    return one


@q5.part(
    6,
    "sentences of one length",
    (
        "What arrives at step t comes from its own output and from step t + 1. Each "
        "step needs the state it started from."
    ),
)
def full_back(rng, ref):
    return [batch_back(rng, [7] * 5) for _ in range(2)]


@q5.part(
    6,
    "sentences of many lengths",
    (
        "A short sentence's walk begins at its own last word: before that, "
        "nothing arrives and nothing is added."
    ),
)
def padded_back(rng, ref):
    return [batch_back(rng, some_lengths(rng)) for _ in range(3)]


@q5.part(
    3,
    "NaN in the padding",
    (
        "What stands in the padding, of x and of d_outputs, must not be touched: "
        "np.where before it is used."
    ),
)
def spoilt_back(rng, ref):
    one = batch_back(rng, some_lengths(rng))
    for name in ("x", "d_outputs"):
        one.inputs[name][np.arange(7) >= one.inputs["lengths"][:, None]] = np.nan
    return [one]


LEVELS = {0.25: 5, 0.4: 9, 0.5: 13}


def guesses_right(got, one):
    """The share of points for the share of hidden names that the returned model guesses."""
    ids, lengths, labels = one.secret
    n_letters, n_languages = one.inputs["n_letters"], one.inputs["n_languages"]
    d_hidden = got["h"].shape[1]
    shapes = {
        "x": (4 * d_hidden, n_letters),
        "h": (4 * d_hidden, d_hidden),
        "b": (4 * d_hidden,),
        "peep": (3, d_hidden),
    }
    if not has_shapes(
        got, shapes | {"head": (n_languages, d_hidden), "bias": (n_languages,)}
    ):
        return "the model has not the six arrays of the shapes asked for"
    if d_hidden > 512:
        return "the state is wider than 512"
    outputs = outputs_of(got, np.eye(n_letters)[ids])
    valid = (np.arange(ids.shape[1]) < lengths[:, None])[:, :, None]
    summary = np.where(valid, outputs, 0).sum(1) / lengths[:, None]
    right = ((summary @ got["head"].T + got["bias"]).argmax(1) == labels).mean()
    return (
        max(
            [points for level, points in LEVELS.items() if right >= level],
            default=0,
        )
        / 13
    )


@q6.part(
    13,
    "names guessed right: 25 % give 5 points, 40 % give 9, 50 % give 13",
    (
        "Does the loss on the training names fall to nearly nothing when there "
        "are only fifty? Then: rate, epochs, clipping, the forget gate's start."
    ),
    judge=guesses_right,
    reference=False,
)
def names(rng, ref):
    pairs = ref.country_names()
    letters = sorted({letter for name, _ in pairs for letter in name})
    rows = rng.permutation(len(pairs))
    arrays = ref.as_arrays([pairs[r] for r in rows], letters)
    known = dict(zip(("ids", "lengths", "labels"), (a[:3000] for a in arrays)))
    sizes = {
        "n_letters": len(letters),
        "n_languages": len(ref.LANGUAGES),
        "seed": int(rng.integers(1000)),
    }
    return [case(secret=[a[3000:] for a in arrays], **known, **sizes)]
