"""Typical wrong answers of assignment 7, and the marks that the rubric gives them."""

from course.fakes import Fake

GREEDY = '''
def best_cut(word, log_probs):
    """The longest match, from the left."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in log_probs:
                break
        else:
            return None
        pieces.append(piece)
        start = end
    return pieces
'''

FAKES = [
    Fake(
        "first-piece-only",
        {"q1": 8},
        "Hides the first piece of a word and leaves the others, which give it away.",
        edits={
            "q1": (
                "places = np.flatnonzero(word == w)",
                "places = np.flatnonzero(word == w)[:1]",
            )
        },
    ),
    Fake(
        "stops-when-full",
        {"q1": 13},
        "Ends at the first word that does not fit, though a shorter one behind it would. Rows of long words get fewer gaps.",
        edits={"q1": ("continue", "break")},
    ),
    Fake(
        "cuts-at-the-joint",
        {"q2": 4},
        "Takes tokens off the end of a, where the two passages meet. What would tell the order is thrown away first.",
        edits={"q2": ("a.pop(0)", "a.pop()")},
    ),
    Fake(
        "segments-of-the-text",
        {"q2": 4},
        "Numbers the passages as they stand in the text. The exchange can then be read off the segments, and nothing is learnt.",
        edits={
            "q2": (
                "segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)",
                "segments = [int(swapped)] * (len(first) + 2) + [1 - int(swapped)] * (len(second) + 1)",
            )
        },
    ),
    Fake(
        "longest-match",
        {"q3": 0},
        "Takes the longest piece from the left, as BERT does. It is not the most probable cut, and it gets stuck where "
        "another would not.",
        answers={"q3": GREEDY},
    ),
    Fake(
        "fewest-pieces",
        {"q3": 7},
        "Counts pieces in place of adding their log probabilities: each piece costs the same.",
        edits={
            "q3": (
                "total = best[start] + log_probs[piece]",
                "total = best[start] - 1",
            )
        },
    ),
    Fake(
        "last-place-counts",
        {"q4": 6},
        "Overwrites the count of a piece that occurs at two places in place of adding to it.",
        edits={
            "q4": (
                "counts[piece] = counts.get(piece, 0.0) + share",
                "counts[piece] = share",
            )
        },
    ),
    Fake(
        "joint-not-conditional",
        {"q4": 0},
        "Does not divide by the probability of the word: rare words then hardly count, however often they occur.",
        edits={"q4": ("* behind[end] / behind[0]", "* behind[end]")},
    ),
    Fake(
        "all-guesses-are-false",
        {"q5": 12},
        "Calls every chosen place false, also where the guess is the true token. Nobody could tell these from true ones.",
        edits={
            "q5": (
                "return corrupted, corrupted != ids",
                "false = np.zeros(len(ids), dtype=bool)\n    false[places] = True\n    return corrupted, false",
            )
        },
    ),
    Fake(
        "mean-with-padding",
        {"q5": 11},
        "Divides by all places, padding too. A batch with much padding then counts less.",
        edits={"q5": ("n = real.sum()", "n = real.size")},
    ),
    Fake(
        "piece-by-piece",
        {"q6": 8},
        "Hides one piece at a time, so that a long rare word seems likely: its other pieces give each away.",
        edits={"q6": ("while end < len(ids) and inside[end]:", "while False:")},
    ),
    Fake(
        "row-by-row",
        {"q6": 14},
        "Calls the network once for each token. The numbers are right, and it takes several times as long.",
        edits={
            "q6": (
                "found = fill(np.stack(rows))",
                "found = np.concatenate([fill(row[None]) for row in rows])",
            )
        },
    ),
]
