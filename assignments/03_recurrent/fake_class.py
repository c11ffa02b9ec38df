"""Typical wrong answers of assignment 3, and the marks that the rubric gives them."""

from course.fakes import Fake

FAKES = [
    Fake(
        "old-belt-for-o",
        {"q1": 11},
        "Lets the output gate look at the belt before it moves, as the other two do. The equation has $c_t$ there, not $c_{t-1}$.",
        edits={
            "q1": (
                'c = f * c + i * np.tanh(a_g)\n    o = sigmoid(a_o + p_o * c)',
                'o = sigmoid(a_o + p_o * c)\n    c = f * c + i * np.tanh(a_g)',
            )
        },
    ),
]
