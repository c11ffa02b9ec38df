"""Hidden tests of assignment 5. Never released, never in the file system that student code sees."""

import numpy as np
import torch

from course.questions import Question, Written, case, close

TITLE = "Turn, don't add"
ALONE = ("plm", "babel")  # the layers are to be written, the phrases to be learnt
PAD, START, END, D_HEAD = 0, 1, 2, 16
GROSS = close(1e-3, 1e-3)  # numbers are float32

q1 = Question("q1", "Turn", "turn", cpu=15, without=ALONE, tensors=True)
q2 = Question("q2", "Look", "attend_unturned", cpu=15, without=ALONE, tensors=True)
q3 = Question(
    "q3",
    "Two heads by hand",
    "look_back",
    needs=("q1",),
    cpu=15,
    without=ALONE,
    tensors=True,
)
q4 = Question(
    "q4", "The translator", "translate", cpu=15, without=ALONE, tensors=True
)
q5 = Question(
    "q5",
    "Write, and let someone else begin",
    "write_by_table",
    cpu=15,
    without=ALONE,
    tensors=True,
)
q6 = Question(
    "q6",
    "102 kilometra",
    "train",
    needs=("q1", "q2", "q4"),
    cpu=40,
    without=ALONE,
    tensors=True,
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "Why turn queries and keys",
        {
            "Rotations: the transpose turns back, and two in a row add their angles": 1,
            "So the score holds the difference of the places and nothing else of them": 2,
            "Turned before the matrices, the two rotations do not meet: the product of the weights stands between them": 2,
        },
    ),
    Written(
        "w2",
        "Places in cross-attention",
        {
            "Both were trained, the same otherwise, and compared by a number; chance is mentioned or measured": 2,
            "The explanation speaks of the order and the number of tokens in the two languages": 2,
            "A case where the opposite is expected, that could be tested": 1,
        },
    ),
]


def normal(rng, *shape):
    """A float32 tensor of random numbers."""
    return torch.from_numpy(rng.normal(size=shape).astype(np.float32))


@q1.part(
    6,
    "each pair by its own angle",
    "Pairs are neighbours: 0 and 1, 2 and 3. Pair i turns by p times 10000 to the power of -2i/d, against the clock.",
    judge=GROSS,
)
def pairs(rng, ref):
    return [
        case(x=normal(rng, 5, d), places=torch.from_numpy(rng.permutation(20)[:5]))
        for d in (2, 8, 16)
    ]


@q1.part(
    4,
    "batches, heads, negative places",
    "places[..., None] stands beside the pairs; all dimensions before broadcast by themselves.",
    judge=GROSS,
)
def batches(rng, ref):
    places = torch.from_numpy(rng.integers(-30, 30, size=7))
    each = torch.from_numpy(rng.integers(-30, 30, size=(2, 1, 7)))
    return [
        case(x=normal(rng, 2, 3, 7, 8), places=places),
        case(x=normal(rng, 2, 3, 7, 8), places=each),
    ]


def same_kind(got, one):
    """Equal, and of the same dtype."""
    if getattr(got, "dtype", None) != np.float32:
        return "the dtype is not that of x"
    return GROSS(got, one)


@q1.part(
    4,
    "places far out",
    "In float32 the angle of a place around a million is wrong by several hundredths. Compute angles in "
    "float64, and only cosine and sine in x's dtype.",
    judge=same_kind,
)
def far(rng, ref):
    return [
        case(
            x=normal(rng, 6, 16),
            places=torch.from_numpy(rng.integers(900_000, 1_000_000, size=6)),
        )
    ]


def look(rng, heads=4, key_heads=4, mask="some"):
    """Arguments of `attend`."""
    B, T_q, T_k, d = 2, int(rng.integers(3, 7)), int(rng.integers(3, 7)), 8
    allowed = rng.random((B, T_q, T_k)) < (1 if mask == "all" else 0.6)
    allowed[..., 0] = True
    if mask == "nowhere":
        allowed[0, 1] = allowed[1, 2] = False
    k, v = normal(rng, B, key_heads, T_k, d), normal(rng, B, key_heads, T_k, d)
    places = {"places_q": torch.arange(T_q) + 3, "places_k": torch.arange(T_k)}
    return case(
        q=normal(rng, B, heads, T_q, d),
        k=k,
        v=v,
        allowed=torch.from_numpy(allowed),
        **places,
    )


@q2.part(
    5,
    "one key head for each query head",
    "Scores divided by the root of d, minus infinity where nobody may look, softmax over the keys, average of the values.",
    judge=GROSS,
)
def own_keys(rng, ref):
    return [look(rng, mask="all"), look(rng), look(rng, heads=1, key_heads=1)]


@q2.part(
    5,
    "heads that share keys",
    "With four heads and two of keys, query heads 0 and 1 look at key head 0. repeat and "
    "repeat_interleave are not the same.",
    judge=GROSS,
)
def shared_keys(rng, ref):
    return [look(rng, 4, 2), look(rng, 6, 2), look(rng, 3, 1)]


@q2.part(
    4,
    "who is turned",
    "Queries by their places, keys by theirs, values not at all.",
    call="attend_stretched",
    judge=GROSS,
)
def turned(rng, ref):
    return [look(rng), look(rng)]


@q2.part(
    4,
    "a query that may look nowhere",
    "Zeros, and gradients of zero. A NaN that is covered afterwards comes back in the gradient: give the "
    "empty row some scores before the softmax, and take its weights away behind it.",
    call="attend_and_back",
    judge=GROSS,
)
def nowhere(rng, ref):
    return [look(rng, mask="nowhere"), look(rng, mask="nowhere")]


def turned_by(x, places):
    """x (T, d) turned to its places, in float64: what a student's vectors do is computed here, not there."""
    speed = 10_000.0 ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * places[:, None] * speed)
    return np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], -1)


def softmax(scores):
    """Over the last dimension."""
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def vectors(got, n, d):
    """The returned vectors as float64, or a word of complaint."""
    if not isinstance(got, list | tuple) or len(got) != n:
        return f"{n} vectors are asked for"
    found = [np.asarray(v, dtype=float) for v in got]
    if any(v.shape != (d,) or not np.isfinite(v).all() for v in found):
        return "a vector has not the width asked for, or holds no numbers"
    return found


def looks_back(got, one):
    """Whether the query looks n places back from wherever it stands."""
    n, d = one.inputs["n"], one.inputs["d"]
    found = vectors(got, 2, d)
    if isinstance(found, str):
        return found
    query, key = (turned_by(np.tile(v, (60, 1)), np.arange(60)) for v in found)
    weights = softmax(query @ key.T / d**0.5)
    asks = np.arange(n, 60)
    return bool((weights[asks, asks - n] > 0.95).all())


@q3.part(
    7,
    "look n places back",
    "Two equal vectors that are turned alike fit best at the same place. Turn the query back by n "
    "beforehand; and make both long, so that the softmax is sure.",
    judge=looks_back,
    reference=False,
)
def back(rng, ref):
    return [
        case(n=int(n), d=int(d))
        for n, d in zip((0, 1, *rng.integers(2, 9, size=2)), (16, 24, 16, 32))
    ]


def finds(got, one):
    """Whether the query finds the wanted key, wherever the two stand."""
    d = one.inputs["d"]
    found = vectors(got, 3, d)
    if isinstance(found, str):
        return found
    query = turned_by(np.tile(found[0], (60, 1)), np.arange(60))
    wanted, other = (
        turned_by(np.tile(v, (60, 1)), np.arange(60)) for v in found[1:]
    )
    for place in range(60):
        keys = other.copy()
        keys[place] = wanted[place]
        if not (softmax(query @ keys.T / d**0.5)[:, place] > 0.95).all():
            return False
    return True


@q3.part(
    5,
    "look for content",
    "The last pair's hand hardly moves within sixty places: what stands there is compared as if there were no places.",
    call="look_for",
    judge=finds,
    reference=False,
)
def content(rng, ref):
    return [case(d=16), case(d=32)]


def weights(
    rng, layers=(1, 1), heads=2, key_heads=2, d=16, d_ff=20, n_source=11, n_target=9
):
    """A random translator; layers of encoder and decoder."""
    q, k = (heads * D_HEAD, d), (key_heads * D_HEAD, d)
    w = {"source": normal(rng, n_source, d), "target": normal(rng, n_target, d)}
    for stack, n_layers, looks in (
        ("encoder", layers[0], ["self"]),
        ("decoder", layers[1], ["self", "cross"]),
    ):
        w[f"{stack}.norm"] = normal(rng, d)
        for n in range(n_layers):
            for part in looks:
                w |= {
                    f"{stack}.{n}.{part}.{r}": normal(rng, *s) / 3
                    for r, s in zip("qkvo", (q, k, k, q[::-1]))
                }
                w[f"{stack}.{n}.{part}.norm"] = normal(rng, d)
            shapes = {"wide": (d_ff, d), "narrow": (d, d_ff), "norm": (d,)}
            w |= {
                f"{stack}.{n}.feed.{r}": normal(rng, *s) / (1 if r == "norm" else 3)
                for r, s in shapes.items()
            }
    return w


def sentences(rng, B=1, padded=False, **sizes):
    """Arguments of `translator`."""
    source, target = (
        torch.from_numpy(rng.integers(3, n, size=(B, T)))
        for n, T in ((11, 6), (9, 5))
    )
    target[:, 0] = START
    if padded:
        for row in range(1, B):
            source[row, int(rng.integers(1, 6)) :] = PAD
            target[row, int(rng.integers(2, 5)) :] = PAD
    return case(w=weights(rng, **sizes), source=source, target_in=target)


@q4.part(
    8,
    "one layer each",
    "Norm, part, add; the encoder's output is normed once more before the decoder looks at it. Nothing "
    "is added to the words.",
    judge=GROSS,
)
def one_layer(rng, ref):
    return [sentences(rng), sentences(rng, B=3)]


@q4.part(
    6,
    "layers and heads of other numbers",
    "Count layers by their keys, each stack for itself, and heads by the rows of q and of k.",
    judge=GROSS,
)
def deeper(rng, ref):
    return [
        sentences(rng, layers=(2, 3)),
        sentences(rng, layers=(3, 1), heads=4),
        sentences(rng, heads=3, key_heads=1),
    ]


def where_words_are(got, one):
    """Compare at words; what stands behind padding is nobody's business."""
    if not isinstance(got, np.ndarray) or got.shape != one.want.shape:
        return "another shape"
    real = np.asarray(one.inputs["target_in"]) != PAD
    return bool(np.allclose(got[real], np.asarray(one.want)[real], 1e-3, 1e-3))


@q4.part(
    6,
    "padding",
    "Padding of the source is hidden twice: in the encoder and in cross-attention.",
    judge=where_words_are,
)
def padding(rng, ref):
    return [sentences(rng, B=4, padded=True), sentences(rng, B=3, padded=True)]


def begun(rng, B, beginnings=False, bait=-5.0, longest=8):
    """Arguments of `write`, with words 3 to 8."""
    source = torch.from_numpy(rng.integers(3, 9, size=(B, 3)))
    given = [
        rng.integers(3, 9, size=rng.integers(0, 6)).tolist() if beginnings else []
        for _ in range(B)
    ]
    return case(
        table=normal(rng, 9, 9),
        bait=bait,
        source=source,
        beginnings=given,
        longest=longest,
    )


@q5.part(
    3,
    "one phrase",
    "The decoder reads START and all that is written; END is not part of the translation.",
)
def alone(rng, ref):
    return [begun(rng, 1) for _ in range(6)]


@q5.part(
    3,
    "several phrases at once",
    "A row that has ended must not end the others, and must not go on.",
)
def together(rng, ref):
    return [begun(rng, 8) for _ in range(3)]


@q5.part(
    3,
    "beginnings of different lengths",
    "Word t of a row is given if the row has so long a beginning, else chosen; either is read at the next step.",
)
def with_beginnings(rng, ref):
    return [begun(rng, 8, beginnings=True) for _ in range(3)]


@q5.part(
    3,
    "PAD and START are never written",
    "Take their scores out before you look for the best.",
)
def baited(rng, ref):
    return [begun(rng, 8, bait=5.0), begun(rng, 8, beginnings=True, bait=5.0)]


LOOK, FEED = ("norm", "q", "k", "v", "o"), ("norm", "wide", "narrow")
LEVELS = {0.4: 5, 0.6: 9, 0.8: 14}


def layers_of(w, stack):
    """How many layers a stack has."""
    return sum(key.startswith(f"{stack}.") and key.endswith(".self.q") for key in w)


def faults(w, n_source, n_target):
    """What is wrong with a returned dict of weights, or ""."""
    if not isinstance(w, dict) or not all(
        isinstance(v, np.ndarray) and v.dtype.kind == "f" for v in w.values()
    ):
        return "the weights are no dict of tensors of numbers"
    d = w["source"].shape[1]
    wanted = {
        "source": (n_source, d),
        "target": (n_target, d),
        "encoder.norm": (d,),
        "decoder.norm": (d,),
    }
    for stack, looks in (("encoder", ["self"]), ("decoder", ["self", "cross"])):
        for n in range(layers_of(w, stack)):
            for name in (f"{stack}.{n}.{part}" for part in looks):
                q, k = len(w[f"{name}.q"]), len(w[f"{name}.k"])
                wanted |= zip(
                    (f"{name}.{r}" for r in LOOK),
                    ((d,), (q, d), (k, d), (k, d), (d, q)),
                )
                if q % D_HEAD or k % D_HEAD or q % k:
                    return "heads are 16 numbers wide, and the number of key heads divides that of query heads"
            d_ff = len(w[f"{stack}.{n}.feed.wide"])
            wanted |= zip(
                (f"{stack}.{n}.feed.{r}" for r in FEED),
                ((d,), (d_ff, d), (d, d_ff)),
            )
    if {key: value.shape for key, value in w.items()} != wanted:
        return "the dict has not the keys and shapes of the table in question 4"
    if (
        d > 128
        or max(v.shape[0] for v in w.values()) > 1024
        or max(layers_of(w, s) for s in ("encoder", "decoder")) > 4
    ):
        return "the translator is larger than allowed"
    return ""


def translated(w, source, longest):
    """What the weights write for source (N, T_s), greedily: ids (N, longest), written anew in NumPy."""
    w = {key: value.astype(np.float64) for key, value in w.items()}

    def norm(x, name):
        return (
            x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.norm"]
        )

    def split(x):
        return x.reshape(*x.shape[:2], -1, D_HEAD).transpose(0, 2, 1, 3)

    def attention(x, name, allowed, memory=None):
        y = norm(x, name)
        memory = y if memory is None else memory
        q, k, v = (
            split(z @ w[f"{name}.{r}"].T)
            for r, z in (("q", y), ("k", memory), ("v", memory))
        )
        q, k = (
            turned_by(q, np.arange(q.shape[2])),
            turned_by(k, np.arange(k.shape[2])),
        )
        k, v = (np.repeat(z, q.shape[1] // z.shape[1], 1) for z in (k, v))
        scores = np.where(
            allowed[:, None], q @ k.swapaxes(-1, -2) / D_HEAD**0.5, -1e30
        )
        z = softmax(scores) @ v
        return (
            x + z.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1) @ w[f"{name}.o"].T
        )

    def feed(x, name):
        return (
            x
            + np.maximum(norm(x, name) @ w[f"{name}.wide"].T, 0)
            @ w[f"{name}.narrow"].T
        )

    real, x = (source != PAD)[:, None], w["source"][source]
    for n in range(layers_of(w, "encoder")):
        x = feed(attention(x, f"encoder.{n}.self", real), f"encoder.{n}.feed")
    memory = norm(x, "encoder")
    written = np.full((len(source), longest + 1), PAD)
    written[:, 0] = START
    going = np.ones(len(source), dtype=bool)
    for t in range(longest):
        x = w["target"][written[:, : t + 1]]
        past = np.tril(np.ones((1, t + 1, t + 1), dtype=bool))
        for n in range(layers_of(w, "decoder")):
            x = attention(x, f"decoder.{n}.self", past)
            x = attention(x, f"decoder.{n}.cross", real, memory)
            x = feed(x, f"decoder.{n}.feed")
        scores = norm(x[:, -1:], "decoder")[:, 0] @ w["target"].T
        scores[:, [PAD, START]] = -np.inf
        best = scores.argmax(-1)
        written[:, t + 1] = np.where(going, best, PAD)
        going &= best != END
    return written[:, 1:]


def phrases_right(got, one):
    """The share of points for the share of hidden phrases that come out exactly."""
    source, target = (np.asarray(ids) for ids in one.secret)
    if problem := faults(got, one.inputs["n_source"], one.inputs["n_target"]):
        return problem
    right = (translated(got, source, target.shape[1]) == target).all(1).mean()
    return (
        max(
            [points for level, points in LEVELS.items() if right >= level],
            default=0,
        )
        / 14
    )


@q6.part(
    14,
    "phrases exactly right: 40 % give 5 points, 60 % give 9, 80 % give 14",
    "The decoder reads START and the translation without its last word, and has to say the translation. "
    "Is the loss on fifty pairs nearly nothing? Then steps, rate, warm-up.",
    judge=phrases_right,
    reference=False,
)
def unseen(rng, ref):
    (source, english), (target, slovene) = ref.as_ids(ref.amounts(3200, rng))
    known = {"source": source[:3000], "target": target[:3000]}
    sizes = {
        "n_source": len(english),
        "n_target": len(slovene),
        "seed": int(rng.integers(1000)),
    }
    return [
        case(
            secret=[source[3000:].numpy(), target[3000:].numpy()], **known, **sizes
        )
    ]
