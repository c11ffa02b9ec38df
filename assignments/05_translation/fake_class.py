"""Typical wrong answers of assignment 5, and the marks that the rubric gives them."""

from course.fakes import Fake

# What a wrong layer learns is not known beforehand, so these students did not get to question 6.
NO_TRAINING = {"q6": 0}
UNANSWERED = {"q6": ""}

FAKES = [
    Fake(
        "halves-for-pairs",
        {"q1": 0, "q3": 0, **NO_TRAINING},
        "Pairs number i with number i + d/2. Many programs do it so, with weights that were trained so; here "
        "the text says neighbours.",
        answers={**UNANSWERED, "q3": ""},
        edits={
            "q1": (
                "a, b = x[..., 0::2], x[..., 1::2]\n"
                "    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)",
                "a, b = x.chunk(2, -1)\n    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)",
            )
        },
    ),
    Fake(
        "angles-in-float32",
        {"q1": 10, **NO_TRAINING},
        "Computes angles in float32. Near the start nobody notices; around place 1,000,000 the angle is "
        "wrong by several hundredths.",
        answers=UNANSWERED,
        edits={
            "q1": (
                "places[..., None].double() * speed",
                "places[..., None].float() * speed.float()",
            )
        },
    ),
    Fake(
        "turns-values-too",
        {"q2": 14, **NO_TRAINING},
        "Turns the values along with the keys. Then what is fetched depends on where it stood.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "q, k = turn(q, places_q), turn(k, places_k)",
                "q, k, v = turn(q, places_q), turn(k, places_k), turn(v, places_k)",
            )
        },
    ),
    Fake(
        "deals-heads-like-cards",
        {"q2": 13, **NO_TRAINING},
        "Repeats the key heads as 0, 1, 0, 1 where 0, 0, 1, 1 is asked for. The shapes fit, and training would not mind.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)",
                "k.repeat(1, shared, 1, 1), v.repeat(1, shared, 1, 1)",
            )
        },
    ),
    Fake(
        "adds-infinity",
        {"q2": 14, **NO_TRAINING},
        "Adds minus infinity to the scores, lets the empty row become NaN and covers it afterwards. The "
        "output is right; the gradient is NaN all the same.",
        answers=UNANSWERED,
        edits={
            "q2": (
                "scores.masked_fill(~(allowed | nowhere), -torch.inf)",
                "scores + torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)",
            )
        },
    ),
    Fake(
        "looks-forward",
        {"q3": 5, **NO_TRAINING},
        "Turns the query by +n: it looks n places ahead. (At n = 0 nothing is wrong.)",
        answers=UNANSWERED,
        edits={
            "q3": (
                "turn(key, torch.tensor(-n)), key",
                "turn(key, torch.tensor(n)), key",
            )
        },
    ),
    Fake(
        "content-in-the-fast-hand",
        {"q3": 7, **NO_TRAINING},
        "Puts the content where the hand turns by one radian per place: it is found at some distances and missed at others.",
        answers=UNANSWERED,
        edits={"q3": ("query[-1] = 20.0", "query[0] = 20.0")},
    ),
    Fake(
        "bridge-over-padding",
        {"q4": 14, **NO_TRAINING},
        "Hides the source's padding in the encoder and forgets it in cross-attention.",
        answers=UNANSWERED,
        edits={
            "q4": (
                'f"decoder.{n}.cross", real, memory)',
                'f"decoder.{n}.cross", torch.ones_like(real), memory)',
            )
        },
    ),
    Fake(
        "one-layer-for-all",
        {"q4": 14, **NO_TRAINING},
        "Takes as many decoder layers as it counted in the encoder's first: one.",
        answers=UNANSWERED,
        edits={"q4": ('while f"decoder.{n}.self.q" in w:', "while n < 1:")},
    ),
    Fake(
        "first-end-ends-all",
        {"q5": 3, **NO_TRAINING},
        "Stops as soon as any row has ended. One phrase at a time it is right; in a batch the others are cut off.",
        answers=UNANSWERED,
        edits={
            "q5": (
                "        going &= best != END\n",
                "        going &= best != END\n        if not going.all():\n            break\n",
            )
        },
    ),
    Fake(
        "reads-the-answer",
        {"q6": 0},
        "Hands the decoder the translation itself, not shifted by one: the loss falls to nothing, for the "
        "answer stands in the input, and nothing is translated.",
        edits={
            "q6": (
                "t_in = torch.cat([torch.full((B, 1), START), t[:, :-1]], 1)",
                "t_in = t",
            )
        },
    ),
]
