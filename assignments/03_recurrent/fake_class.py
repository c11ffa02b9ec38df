"""Typical wrong answers of assignment 3, and the marks that the rubric gives them."""

from course.fakes import Fake

BELT = "c = f * c + i * np.tanh(a_g)\n    "
SHOW = "o = sigmoid(a_o + p_o * c)\n    "

# What a wrong cell learns is not known beforehand, so these students did not get to question 6.
NO_TRAINING = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "old-belt-for-o",
        {"q1": 11, **NO_TRAINING},
        "Lets the output gate look at the belt before it moves, as the other two do. The equation has c_t there, not c_{t-1}.",
        answers=UNANSWERED,
        edits={"q1": (BELT + SHOW, SHOW + BELT)},
    ),
    Fake(
        "gates-in-article-order",
        {"q1": 0, **NO_TRAINING},
        "Splits the stack as f, i, g, o, the order in which the gates are usually explained. The shapes fit, and nothing fails.",
        answers=UNANSWERED,
        edits={"q1": ("a_i, a_f, a_g, a_o =", "a_f, a_i, a_g, a_o =")},
    ),
    Fake(
        "belt-in-place",
        {"q1": 13, **NO_TRAINING},
        "Updates c in place. The numbers are right, and the caller's own c has changed behind its back.",
        answers=UNANSWERED,
        edits={"q1": (BELT, "c *= f\n    c += i * np.tanh(a_g)\n    ")},
    ),
    Fake(
        "mask-by-product",
        {"q2": 11, **NO_TRAINING},
        "Multiplies with a mask of zeros and ones in place of choosing. Right for every number, but 0 · NaN is NaN.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "valid = (t < lengths)[:, None]\n        new_h, new_c = step(np.where(valid, x[:, t], 0), h, c, w)\n"
                "        h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)\n"
                "        outputs[:, t] = np.where(valid, new_h, 0)",
                "m = (t < lengths)[:, None].astype(float)\n        new_h, new_c = step(x[:, t], h, c, w)\n"
                "        h, c = m * new_h + (1 - m) * h, m * new_c + (1 - m) * c\n"
                "        outputs[:, t] = m * new_h",
            )
        },
    ),
    Fake(
        "reads-through-padding",
        {"q2": 5, **NO_TRAINING},
        "Goes on through the padding and hides only the outputs: the states are those of a sentence with noise behind it.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "h, c = np.where(valid, new_h, h), np.where(valid, new_c, c)",
                "h, c = new_h, new_c",
            )
        },
    ),
    Fake(
        "timid-weights",
        {"q3": 8, **NO_TRAINING},
        "Sets weights of 6 where 60 are needed. A gate of 0.95 keeps a few steps and loses hundreds.",
        answers={
            **UNANSWERED,
            "q3": "def parity():\n"
            "    x = np.array([[12.0, 0], [-14, 0], [0, 0], [0, 12]])\n"
            "    b = np.array([-6.0, 7, 6, -6])\n"
            "    return {'x': x, 'h': np.zeros((4, 1)), 'b': b, 'peep': np.array([[-12.0], [0], [0]])}",
        },
    ),
    Fake(
        "forgets-the-road-through-o",
        {"q4": 5, **NO_TRAINING},
        "Hands the belt what comes through tanh(c) and forgets that the output gate looked at the new c as well.",
        answers=UNANSWERED,
        edits={"q4": (" + p_o * da_o  # o looked at the new c", "")},
    ),
    Fake(
        "walks-back-from-the-end",
        {"q5": 6, **NO_TRAINING},
        "Lets the gradient walk back through the padding, as if every sentence were as long as the longest.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "dh = np.where(valid, dh + d_outputs[:, t], 0)",
                "dh = dh + d_outputs[:, t]",
            )
        },
    ),
    Fake(
        "climbs",
        {"q6": 0},
        "Adds the gradient in place of taking it away: the loss grows.",
        edits={
            "q6": (
                "model[k] = model[k] - step_size",
                "model[k] = model[k] + step_size",
            )
        },
    ),
]
