"""Hidden tests of assignment 2. Never released, never in the file system that student code sees."""

import numpy as np

from course.questions import Question, Written, case

TITLE = "Words in pieces"
NUMPY = ("torch", "transformers", "gensim", "plm")

q1 = Question("q1", "Pieces and their rows", "row_numbers", cpu=4, without=NUMPY)
q2 = Question(
    "q2", "One pair, and every gradient", "loss_and_gradients", cpu=4, without=NUMPY
)
q3 = Question(
    "q3", "Noise from two small tables", "alias_table", cpu=6, without=NUMPY
)
q4 = Question("q4", "Thin the text, then pair it", "examples", cpu=4, without=NUMPY)
q5 = Question("q5", "Analogies by a product", "cos_mul", cpu=8, without=NUMPY)
q6 = Question("q6", "Train", "train", cpu=60, memory=2 << 30, without=NUMPY)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "How far a word of n pieces moves",
        {
            "Each row gets g / n, so the mean moves by η g / n": 2,
            "That is n times less than a word with a row of its own": 1,
            "With a sum it is n η g": 1,
            "Words that share a piece, or a row, move too": 1,
        },
    ),
    Written(
        "w2",
        "Where pieces help, and where they harm",
        {
            "A measurement of both tables on the same words, with how many words it rests on": 2,
            "At least two kinds of words, and a reason that fits the numbers": 1,
            "The reason could be wrong, and there is a test that would show it": 2,
        },
    ),
]
LETTERS = list("abcdefghijklmnopqrstuvwxyz")


def spelt(rng, n, letters=LETTERS):
    """A word of n letters, by chance."""
    return "".join(rng.choice(letters, size=n))


@q1.part(
    4,
    "pieces",
    "By the place where a piece starts, at one place the shorter first, the whole word once, at the end.",
    call="pieces",
)
def cut(rng, ref):
    lengths = ((7, 3, 5), (9, 2, 4), (12, 4, 4))
    return [case(word=spelt(rng, n), shortest=a, longest=z) for n, a, z in lengths]


@q1.part(
    2,
    "short words, and pieces that occur twice",
    "The whole word with its brackets may be as short as a piece: it is listed once. A piece at two places is listed twice.",
    call="pieces",
)
def short(rng, ref):
    a, b = (spelt(rng, 1) for _ in range(2))
    return [
        case(word=a, shortest=3, longest=6),
        case(word=a + b, shortest=2, longest=4),
        case(word=(a + b) * 3, shortest=2, longest=3),
    ]


@q1.part(
    3,
    "the number of a text",
    "For each byte: exclusive or first, then the product, then the last 32 bits.",
    call="hash_number",
)
def hashed(rng, ref):
    return [case(text=spelt(rng, n)) for n in (1, 4, 11)]


@q1.part(
    2,
    "letters beyond ASCII",
    "UTF-8 makes two bytes and more of some letters; ord gives one number for them.",
    call="hash_number",
)
def accents(rng, ref):
    return [case(text=spelt(rng, 5, list("éüß—奶茶žø"))) for _ in range(3)]


@q1.part(1, "rows", "The remainder of the number of each piece.")
def rows(rng, ref):
    return [
        case(word=spelt(rng, 6), shortest=3, longest=5, n_rows=int(n))
        for n in rng.integers(50, 5000, size=2)
    ]


def pair(rng, rows=(1, 4, 6), negatives=(2, 3, 5), target=0, scale=1.0):
    """Arguments of `loss_and_gradients`: names of rows and words, dealt out anew."""
    d = int(rng.integers(3, 7))
    of_rows, of_words = rng.permutation(9), rng.permutation(7)
    return case(
        Q=scale * rng.normal(size=(9, d)),
        C=rng.normal(size=(7, d)),
        rows=[int(of_rows[r]) for r in rows],
        target=int(of_words[target]),
        negatives=[int(of_words[n]) for n in negatives],
    )


@q2.part(
    4,
    "the loss",
    "The sum of 1 + K terms: the true word's score counts with a plus, those of the noise with a minus.",
    call="loss_alone",
)
def loss(rng, ref):
    return [pair(rng), pair(rng, (3,), ()), pair(rng, negatives=(2, 2, 5))]


@q2.part(
    5,
    "the gradient of C",
    "Each chosen row of C gets its error times h: what was said minus what should have been said.",
    call="gradient_of_C",
)
def of_C(rng, ref):
    return [pair(rng) for _ in range(3)]


@q2.part(
    5,
    "the gradient of Q",
    "h gets the sum of error times row of C; each of the n rows has an equal share in h.",
    call="gradient_of_Q",
)
def of_Q(rng, ref):
    return [pair(rng), pair(rng, rows=(2, 3, 5, 7, 8)), pair(rng, rows=(3,))]


@q2.part(
    4,
    "rows and noise that come twice",
    "A[[3, 3]] += x adds x once. np.add.at adds as often as a row is named.",
)
def twice(rng, ref):
    return [
        pair(rng, rows=(1, 1, 4)),
        pair(rng, negatives=(2, 2, 2, 5)),
        pair(rng, rows=(1, 1, 6, 6, 6), negatives=(5, 3, 5)),
    ]


@q2.part(
    2,
    "noise that is the target",
    "It is left out: it has neither a loss nor a gradient.",
)
def lucky(rng, ref):
    return [pair(rng, negatives=(2, 0, 5)), pair(rng, negatives=(0, 0))]


@q2.part(
    2,
    "large scores",
    "log(1 + exp(1000)) is about 1000 and need not overflow: np.logaddexp.",
)
def large(rng, ref):
    return [pair(rng, scale=3000.0) for _ in range(3)]


def chances(keep, other):
    """What the two tables say of each word."""
    found = np.array(keep, dtype=float)
    np.add.at(found, other, 1 - np.asarray(keep, dtype=float))
    return found / len(found)


def tables_fit(keep, other, one):
    """Whether these are tables of the right form that give each word its probability."""
    counts = np.asarray(one.inputs["counts"], dtype=float)
    keep, other = np.asarray(keep), np.asarray(other)
    if keep.shape != counts.shape or other.shape != counts.shape:
        return "the tables have not one entry for each word"
    if (
        other.dtype.kind not in "iu"
        or other.min() < 0
        or other.max() >= len(counts)
    ):
        return "other holds something that is no word's id"
    if not (np.isfinite(keep).all() and keep.min() >= 0 and keep.max() <= 1 + 1e-9):
        return "keep holds a share below 0 or above 1"
    wanted = np.zeros(len(counts))
    wanted[counts > 0] = counts[counts > 0] ** one.inputs["power"]
    wanted /= wanted.sum()
    found = chances(keep, other)
    if (found[counts == 0] > 1e-12).any():
        return "a word with count 0 is drawn"
    return (
        bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-12)) or "other chances"
    )


def judge_tables(got, one):
    """For `alias_table`."""
    if not isinstance(got, tuple | list) or len(got) != 2:
        return "expected are two tables"
    return tables_fit(*got, one)


def judge_draws(got, one):
    """For drawing from the student's own tables: right tables, and right words from them."""
    drawn, keep, other = got
    right = tables_fit(keep, other, one)
    if right is not True:
        return right
    drawn, u = np.asarray(drawn), np.asarray(one.inputs["u"])
    if drawn.shape != u.shape:
        return "not in the shape of u"
    share = np.bincount(drawn.ravel(), minlength=len(keep)) / drawn.size
    # u is a grid over the whole bar, so that words come as often as they should, but for the edges of cells.
    if np.abs(share - chances(keep, other)).max() > 4 * len(keep) / drawn.size:
        return "words come more often, or more seldom, than the tables say"
    cell = np.minimum((u * len(keep)).astype(int), len(keep) - 1)
    strange = (drawn != cell) & (drawn != np.asarray(other)[cell])
    return not strange.any() or "a word that does not live in that cell"


def word_counts(rng, V, zeros=0):
    """Counts as in a text: few are large, many small."""
    counts = np.ceil(1000 / (1 + rng.permutation(V)) * rng.uniform(1, 2, size=V))
    counts[rng.permutation(V)[:zeros]] = 0
    return counts.astype(int)


@q3.part(
    5,
    "the tables",
    "Add up what each word has in all cells: its own share and what it lent to others. A large word that has lent much may "
    "be small itself.",
    judge=judge_tables,
    reference=False,
)
def tables(rng, ref):
    cases = [(V, power) for V in (7, 40) for power in (1.0, 0.75, 0.3)]
    return [case(counts=word_counts(rng, V), power=power) for V, power in cases]


@q3.part(
    2,
    "words that never occur",
    "0 to the power of 0 is 1 in NumPy, and a word that never occurs is no noise.",
    judge=judge_tables,
    reference=False,
)
def unheard(rng, ref):
    return [case(counts=word_counts(rng, 30, 5), power=p) for p in (0.75, 0.0)]


@q3.part(
    5,
    "drawing",
    "u times V: the whole part is the cell, the rest a place in it.",
    call="draw_from",
    judge=judge_draws,
    reference=False,
)
def drawing(rng, ref):
    u = (np.arange(60_000) + 0.5) / 60_000
    return [
        case(
            counts=word_counts(rng, 12),
            power=0.75,
            u=rng.permutation(u).reshape(shape),
        )
        for shape in ((60_000,), (200, 300), (60, 10, 100))
    ]


@q3.part(
    2,
    "200,000 words in time",
    "Two piles, the small and the large; each step takes one from a pile, and no step searches.",
    judge=judge_tables,
    reference=False,
)
def many(rng, ref):
    return [case(counts=word_counts(rng, 200_000), power=0.75)]


def drops_share(got, one):
    """Whether t drops the share that was asked for."""
    if not isinstance(got, float | int) or not np.isfinite(got) or got <= 0:
        return "t is one number above 0"
    counts = np.asarray(one.inputs["counts"], dtype=float)
    f = counts[counts > 0] / counts.sum()
    dropped = f @ (1 - np.minimum(1, np.sqrt(got / f)))
    return abs(dropped - one.inputs["share"]) < 1e-4 or "another share is dropped"


@q4.part(
    5,
    "the threshold",
    "The share that is dropped falls when t grows. A word that makes up f of the text counts f in it, and no word stays "
    "with more than 1.",
    call="threshold_for",
    judge=drops_share,
    reference=False,
)
def threshold(rng, ref):
    return [
        case(
            counts=word_counts(rng, 60, zeros), share=float(rng.uniform(low, high))
        )
        for zeros, low, high in ((0, 0.2, 0.4), (5, 0.4, 0.8), (0, 0.01, 0.05))
    ]


def thinned(rng, n, dropping, longest):
    """Arguments of `examples`."""
    keep = rng.uniform(0.3, 0.8, size=20) if dropping else np.ones(20)
    return case(
        sentence=rng.integers(0, 20, size=n),
        keep=keep,
        u=rng.random(n),
        reach=rng.integers(0, longest + 1, size=n),
    )


@q4.part(
    4,
    "pairs",
    "The word in the middle says how far is looked; the window ends where the sentence does, and no place is its own "
    "neighbour.",
)
def pairs(rng, ref):
    return [thinned(rng, n, False, 4) for n in (1, 2, 6, 12)]


@q4.part(
    5,
    "pairs of a thinned text",
    "First drop, then count places: the window closes over a gap. u and reach belong to places of the sentence, keep to "
    "words.",
)
def closed(rng, ref):
    return [thinned(rng, n, True, 3) for n in (8, 15, 30)]


def asked(rng, V, N, d=6, scale=True):
    """Arguments of `cos_mul`."""
    vectors = rng.normal(size=(V, d))
    if scale:
        vectors *= rng.uniform(0.1, 10, size=(V, 1))
    questions = np.stack([rng.permutation(V)[:3] for _ in range(N)])
    return case(vectors=vectors, questions=questions)


@q5.part(
    4,
    "the product",
    "Both s above the line, the one of a below it, and cosines moved to 0 … 1 before they are multiplied.",
)
def product(rng, ref):
    found = []
    for _ in range(2):
        one = asked(rng, 60, 60, scale=False)
        one.inputs["vectors"] /= np.linalg.norm(
            one.inputs["vectors"], axis=1, keepdims=True
        )
        found.append(one)
    return found


@q5.part(
    2,
    "vectors of any length",
    "A cosine knows no lengths: divide by them first.",
)
def lengths(rng, ref):
    return [asked(rng, 60, 60)]


@q5.part(
    2,
    "the words of the question",
    "a, b and c are no answers. Which of them would win otherwise?",
)
def no_answers(rng, ref):
    found = []
    for _ in range(3):
        one = asked(rng, 40, 12, d=3)
        near = one.inputs["vectors"]
        near[12:] = near[:1] + 0.3 * rng.normal(size=(28, 3))
        one.inputs["questions"] = np.stack(
            [rng.permutation(12)[:3] for _ in range(12)]
        )
        found.append(one)
    return found


@q5.part(
    2,
    "a vector of zeros, and many words",
    "0 divided by 0 is NaN, and NaN wins every argmax. Products of matrices do a thousand questions at once.",
)
def zeros(rng, ref):
    one = asked(rng, 4000, 300, d=20)
    one.inputs["vectors"][rng.permutation(4000)[:5]] = 0
    return [one]


def shares_right(got, one):
    """The shares of gaps filled rightly with known and with new words, or what is wrong with the tables."""
    rows, d_emb = one.inputs["rows"], one.inputs["d_emb"]
    if not isinstance(got, tuple | list) or len(got) != 2:
        return "expected are Q and C"
    for table, n in zip(got, (one.inputs["n_rows"], len(rows))):
        if not isinstance(table, np.ndarray) or table.shape != (n, d_emb):
            return "Q or C has not the shape that was asked for"
        if table.dtype.kind != "f" or not np.isfinite(table).all():
            return "Q or C holds something that is no finite number"
    (Q, C), (new, words, others, neighbours) = got, one.secret
    real = rows >= 0
    H = np.where(real[..., None], Q[rows], 0).sum(1) / real.sum(1)[:, None]
    near = np.where((neighbours >= 0)[..., None], C[neighbours], 0).sum(1)
    right = ((H[words] - H[others]) * near).sum(1) > 0
    usable = words != others
    return [
        float(right[usable & (new[words] == kind)].mean()) for kind in (False, True)
    ]


KNOWN = {0.52: 4, 0.61: 8, 0.64: 12}
NEW = {0.52: 6}


def filled(got, one):
    """12 points for known words, 6 for new ones."""
    shares = shares_right(got, one)
    if isinstance(shares, str):
        return shares
    points = 0
    for share, levels in zip(shares, (KNOWN, NEW)):
        points += max(
            [p for level, p in levels.items() if share >= level], default=0
        )
    return points / 18


@q6.part(
    18,
    "gaps filled rightly: with known words 52 % give 4 points, 61 % give 8, 64 % give 12; with new words 52 % give 6",
    "Does the loss fall? Do rows of pieces move, or only those of whole words? Then: the rate of each row, passes, thinning.",
    judge=filled,
    reference=False,
)
def later_text(rng, ref):
    known = ref.some_words_and_text(rng)
    gaps = ref.gaps(known["later"], known["new"], known["text"], rng)
    sizes = {
        "n_rows": ref.N_ROWS,
        "d_emb": ref.D_EMB,
        "seed": int(rng.integers(1000)),
    }
    return [
        case(
            secret=[known["new"], *gaps],
            text=known["text"],
            rows=known["rows"],
            **sizes,
        )
    ]
