"""Hidden tests of assignment 7. Never released, never in the file system that student code sees."""

import numpy as np

from course.questions import Question, Written, case

TITLE = "Whole words, best cuts"
NUMPY = ("torch", "transformers", "tokenizers", "plm")

q1 = Question("q1", "Hide whole words", "hide_words", cpu=4, without=NUMPY)
q2 = Question("q2", "Which came first?", "order_row", cpu=4, without=NUMPY)
q3 = Question("q3", "The best cut", "best_cut", cpu=6, without=NUMPY)
q4 = Question("q4", "Every cut, a little", "expected_counts", cpu=6, without=NUMPY)
q5 = Question("q5", "Which tokens are false?", "corrupt", cpu=4, without=NUMPY)
q6 = Question(
    "q6", "How likely is a sentence?", "score_with_some_fill", cpu=4, without=NUMPY
)
QUESTIONS = [q1, q2, q3, q4, q5, q6]
WRITTEN = [
    Written(
        "w1",
        "Why whole words",
        {
            "The pieces of a word that stay give the hidden one away, whatever the sentence says": 2,
            "So the gradient teaches spelling more than the use of words": 1,
            "Whole words are harder: their loss is higher, and the two losses are about different questions": 2,
        },
    ),
    Written(
        "w2",
        "Where the score is deceived",
        {
            "The share of pairs judged rightly, over enough pairs, and some pairs that are not": 2,
            "A reason that fits these pairs": 1,
            "The reason could be wrong, and there is a test that would show it": 2,
        },
    ),
]
CLS, SEP, MASK = 2, 3, 4


def text(rng, lengths):
    """A row of two passages with words of these lengths in pieces: ids, inside and special."""
    half = len(lengths) // 2
    inside, special = [False], [True]
    for k, n in enumerate(lengths):
        if k == half:
            inside, special = [*inside, False], [*special, True]
        inside, special = (
            [*inside, False, *[True] * (n - 1)],
            [*special, *[False] * n],
        )
    inside, special = np.array([*inside, False]), np.array([*special, True])
    ids = rng.integers(5, 30, size=len(inside))
    ids[special], ids[0] = SEP, CLS
    return {"ids": ids, "inside": inside, "special": special}


def hiding(rng, lengths, budget=0, n_words=3, fates=False):
    """Arguments of `hide_words`; without a budget there is room for the first words of the order and not for one token more."""
    order = rng.permutation(len(lengths))
    fate = (
        rng.uniform(0, 1, size=len(lengths))
        if fates
        else rng.uniform(0, 0.79, size=len(lengths))
    )
    if fates:  # the three fates all occur
        fate[order[:3]] = [
            rng.uniform(0, 0.79),
            rng.uniform(0.81, 0.89),
            rng.uniform(0.91, 1),
        ]
    row = text(rng, lengths)
    others = rng.integers(5, 30, size=len(row["ids"]))
    budget = budget or int(sum(lengths[w] for w in order[:n_words]))
    return case(
        **row, budget=budget, order=order, fate=fate, others=others, mask_id=MASK
    )


@q1.part(
    4,
    "words of one piece",
    "Words are counted from 0, special tokens are none; what was chosen stands in targets, and -100 elsewhere.",
)
def short_words(rng, ref):
    return [hiding(rng, [1] * n, n_words=n // 2) for n in (6, 9)]


@q1.part(
    5,
    "words of several pieces",
    "A word is a piece without ## and all the pieces with ## behind it: all are hidden, or none.",
)
def long_words(rng, ref):
    return [
        hiding(rng, rng.permutation([1, 1, 2, 2, 3, 4]).tolist()) for _ in range(4)
    ]


@q1.part(
    3,
    "a word that does not fit",
    "A word with more pieces than there is room for is passed over; a later, shorter one may still fit.",
)
def passed_over(rng, ref):
    drawn = []
    for _ in range(3):
        one = hiding(rng, [1, 4, 1, 4, 1, 1], budget=3)
        one.inputs["order"] = np.array([0, 1, 3, 2, 4, 5])
        drawn.append(one)
    return drawn


@q1.part(
    2,
    "three fates",
    "One number per word decides for all its pieces: below 0.8 hidden, below 0.9 others, else as it was.",
)
def fates(rng, ref):
    return [hiding(rng, [1] * 8, n_words=6, fates=True) for _ in range(4)]


@q1.part(
    2,
    "arguments stay as they are",
    "Writing into ids changes the text itself. Copy it first.",
    call="hide_words_and_arguments",
)
def arguments(rng, ref):
    return [hiding(rng, [1] * 8, n_words=6) for _ in range(2)]


def passages(rng, n_a, n_b, swapped, longest):
    """Arguments of `order_row`."""
    a, b = (rng.integers(5, 1000, size=n).tolist() for n in (n_a, n_b))
    return case(a=a, b=b, swapped=swapped, longest=longest, cls_id=CLS, sep_id=SEP)


@q2.part(
    4,
    "pairs that fit",
    "[CLS] first [SEP] second [SEP], segment 0 up to the first [SEP]: what stands first in the row, not in the text.",
)
def fitting(rng, ref):
    return [
        passages(rng, *(int(n) for n in rng.integers(3, 9, size=2)), swapped, 30)
        for swapped in (False, True, True)
    ]


@q2.part(
    4,
    "pairs that are too long",
    "The longer passage loses tokens, b if they are equal; a at its front and b at its back, far from the joint.",
)
def too_long(rng, ref):
    return [
        passages(rng, n_a, n_b, False, 15)
        for n_a, n_b in ((14, 3), (4, 17), (11, 10), (9, 9))
    ]


@q2.part(
    4,
    "too long and exchanged",
    "Cut first, as the passages stand in the text; then exchange them.",
)
def both(rng, ref):
    return [
        passages(rng, n_a, n_b, True, 16)
        for n_a, n_b in ((14, 3), (4, 17), (11, 10), (9, 9))
    ]


def letters(rng, n):
    """n letters, none twice."""
    return [str(c) for c in rng.permutation(list("abcdefghijklmnopqrstuvwxyz"))[:n]]


def vocabulary(rng, alphabet, n_more, longest=4):
    """Pieces with log probabilities: all letters in both forms, rare, and n_more longer ones, by chance."""
    pieces = {form + c: -7.0 for c in alphabet for form in ("", "##")}
    for _ in range(n_more):
        piece = "".join(
            rng.choice(alphabet, size=int(rng.integers(2, longest + 1)))
        )
        pieces[piece if rng.random() < 0.4 else "##" + piece] = -5.0
    return {piece: float(at - rng.uniform(0, 4)) for piece, at in pieces.items()}


def dead_end(rng):
    """A word of which the longest match takes too much: only one cut covers it."""
    a, b, c, d, e = letters(rng, 5)
    pieces = [a, a + b, a + b + c, f"##{c}{d}", f"##{e}", f"##{a}"]
    return case(
        word=a + b + c + d + e,
        log_probs={p: float(-rng.uniform(1, 9)) for p in pieces},
    )


@q3.part(
    6,
    "the most probable cut",
    "The best cut up to a letter is a best cut up to an earlier one, and one piece more. The longest piece need not be in it.",
)
def probable(rng, ref):
    drawn = []
    for _ in range(16):
        alphabet = letters(rng, 3)
        drawn.append(
            case(
                word="".join(rng.choice(alphabet, size=30)),
                log_probs=vocabulary(rng, alphabet, 25),
            )
        )
    return drawn


@q3.part(
    4,
    "where the longest match is stuck",
    "If the longest piece leaves a rest that nothing covers, a shorter one may not.",
)
def stuck(rng, ref):
    return [dead_end(rng) for _ in range(3)]


@q3.part(3, "no cut at all", "None, if no pieces cover the word; and only then.")
def uncovered(rng, ref):
    alphabet = letters(rng, 3)
    strange = case(
        word=alphabet[0] + "§" + alphabet[1],
        log_probs=vocabulary(rng, alphabet, 10),
    )
    only_inside = case(word="ab", log_probs={"##a": -1.0, "##b": -1.0, "b": -1.0})
    return [strange, only_inside, dead_end(rng)]


@q3.part(
    3,
    "a long word in time",
    "A word of n letters has 2^(n-1) cuts. Do you compute the best way to one place again and again?",
)
def long_word(rng, ref):
    drawn = []
    for _ in range(6):
        alphabet = letters(rng, 3)
        word = "".join(rng.choice(alphabet, size=150))
        drawn.append(case(word=word, log_probs=vocabulary(rng, alphabet, 25)))
    return drawn


def shares(log_probs):
    """Probabilities in place of log probabilities."""
    return {piece: float(np.exp(at)) for piece, at in log_probs.items()}


@q4.part(
    6,
    "short words",
    "A piece from i to j is used in the share (ways up to i) · p · (ways from j on) / (all ways).",
)
def short(rng, ref):
    drawn = []
    for _ in range(4):
        alphabet = letters(rng, 5)
        word, probs = "".join(alphabet), shares(vocabulary(rng, alphabet, 4))
        for i, j in ((0, 2), (1, 3), (2, 5), (3, 5)):
            probs[("##" if i else "") + word[i:j]] = float(rng.uniform(0.01, 0.1))
        drawn.append(case(word=word, probs=probs))
    return drawn


@q4.part(
    4,
    "pieces that occur twice",
    "The same piece at two places of the word: both add to its count.",
)
def twice(rng, ref):
    drawn = []
    for _ in range(3):
        alphabet = letters(rng, 2)
        drawn.append(
            case(
                word="".join(alphabet) * 4,
                probs=shares(vocabulary(rng, alphabet, 12)),
            )
        )
    return drawn


@q4.part(
    4,
    "long words, and words that nothing covers",
    "Sums over all cuts grow from letter to letter; and without a cut there is nothing to count.",
)
def long_or_none(rng, ref):
    alphabet = letters(rng, 3)
    probs = shares(vocabulary(rng, alphabet, 25))
    return [
        case(word="".join(rng.choice(alphabet, size=60)), probs=probs),
        case(word=alphabet[0] + "§", probs=probs),
    ]


def generated(rng, lucky):
    """Arguments of `corrupt`: guesses that are never right, or often."""
    T, V, N = 20, 30, 8
    ids, places = rng.integers(5, V, size=T), np.sort(rng.permutation(T)[:N])
    guesses = rng.dirichlet(np.ones(V), size=N)
    guesses[np.arange(N), ids[places]] = 0
    if lucky:
        guesses[np.arange(0, N, 2), ids[places[::2]]] = 50
    guesses /= guesses.sum(1, keepdims=True)
    return case(
        ids=ids, places=places, guesses=guesses, u=rng.uniform(0.1, 0.9, size=N)
    )


@q5.part(
    5,
    "guesses in place of tokens",
    "Draw with u: the first token at which the sum of the probabilities so far exceeds it.",
)
def corrupted(rng, ref):
    return [generated(rng, lucky=False) for _ in range(3)]


@q5.part(
    4, "lucky guesses", "A guess that happens to be the true token is not false."
)
def lucky_guesses(rng, ref):
    return [generated(rng, lucky=True) for _ in range(3)]


def judged(rng, padding, scale=2.0):
    """Arguments of `false_token_loss`."""
    real = np.ones((3, 7), dtype=bool)
    if padding:
        real[0, 4:], real[2, 2:] = False, False
    return case(
        scores=scale * rng.normal(size=(3, 7)),
        false=rng.random((3, 7)) < 0.3,
        real=real,
    )


@q5.part(
    5,
    "loss and gradient",
    "A mean over the true places only, and a gradient of 0 in the padding.",
    call="false_token_loss",
)
def loss(rng, ref):
    return [judged(rng, padding=True) for _ in range(3)]


@q5.part(
    2,
    "large scores",
    "log(1 + exp(1000)) is about 1000, and need not overflow: np.logaddexp.",
    call="false_token_loss",
)
def large(rng, ref):
    return [judged(rng, padding=False, scale=2000.0)]


def sentence(rng, lengths):
    """Arguments of `score`."""
    return case(**text(rng, lengths), mask_id=MASK)


@q6.part(
    6,
    "words of one piece",
    "Each token hidden in turn, and only it; special tokens are neither hidden nor asked. One number per token, in the "
    "order of the text.",
)
def one_piece(rng, ref):
    return [sentence(rng, [1] * n) for n in (4, 7)]


@q6.part(
    8,
    "words of several pieces",
    "Hide with a piece those of the same word behind it. What stands before it is seen, also of its own word.",
)
def several(rng, ref):
    return [
        sentence(rng, rng.permutation([1, 2, 3, 4, 1, 2]).tolist())
        for _ in range(3)
    ]


@q6.part(
    2,
    "in one call",
    "A batch is read faster than its rows one by one: stack all rows, then call fill once.",
    call="calls_of_fill",
)
def at_once(rng, ref):
    return [sentence(rng, [1] * 6)]
