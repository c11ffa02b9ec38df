"""How the learning rate moves through a run: up over the warm-up, and then in one of four shapes.

A schedule is a function of the step alone, counted from 0, so a run that is stopped and goes on finds its rate again.
`plm.train` has the two of the earlier chapters (`linear_decay`, `inverse_sqrt`).
"""

import math
from collections.abc import Callable

SHAPES = ("cosine", "linear", "cooldown", "constant")


def schedule(shape: str, steps: int, warmup: int = 0, cooldown: int = 0, floor: float = 0.0) -> Callable[[int], float]:
    """Factor on the learning rate at steps 0 … steps - 1.

    All shapes rise in a line over `warmup` updates, from 1 / (warmup + 1): the first update moves the weights. Then
    cosine, linear: fall from 1 to `floor`, which the last update has (with floor 0 it is the last but one that moves);
    cooldown: stay at 1, then fall in a line to `floor` over the last `cooldown` updates: until that has begun, a run may be
    given more steps, and its past is what it would have been; constant: stay at 1.
    """
    if shape not in SHAPES:
        raise ValueError(f"schedule is one of {', '.join(SHAPES)}, not {shape!r}")
    if steps < 1 or warmup < 0 or cooldown < 0:
        raise ValueError(
            f"steps must be at least 1, warmup and cooldown at least 0; got {steps}, {warmup} and {cooldown}"
        )
    if not 0 <= floor <= 1:
        raise ValueError(f"floor is a share of the highest rate, 0 … 1, not {floor}")
    if warmup + cooldown > steps:
        raise ValueError(f"{warmup} updates of warm-up and {cooldown} of cool-down do not fit into {steps} steps")
    if shape == "cooldown" and cooldown < 1:
        raise ValueError("the shape 'cooldown' needs a cooldown of at least 1 step")
    fall = {"cosine": steps - warmup, "linear": steps - warmup, "cooldown": cooldown, "constant": 0}[shape]

    def factor(step: int) -> float:
        if not 0 <= step < steps:
            raise ValueError(f"step {step} lies outside a run of {steps} steps")
        if step < warmup:
            return (step + 1) / (warmup + 1)
        i = step - (steps - fall)  # which update of the fall this is
        share = i / (fall - 1) if i > 0 else 0.0
        bent = (1 - math.cos(math.pi * share)) / 2 if shape == "cosine" else share
        return 1 - (1 - floor) * bent

    return factor
