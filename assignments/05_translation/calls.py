"""How the answers of assignment 5 are called. Student code may read this file: it holds no expected value."""

import torch


def as_it_is(x, places):
    """Turns nothing."""
    return x


def stretch(x, places):
    """In place of a turn: something else that depends on the place."""
    return x * (1 + 0.3 * places[..., None])


def attend_unturned(answers, **arguments):
    """`attend` where places do not matter."""
    return answers.attend(as_it_is, **arguments)


def attend_stretched(answers, **arguments):
    """`attend` with the stretch above."""
    return answers.attend(stretch, **arguments)


def attend_and_back(answers, q, **arguments):
    """What `attend` returns, and the gradient of its sum of squares with respect to the queries."""
    q.requires_grad_()
    found = answers.attend(as_it_is, q=q, **arguments)
    found.square().sum().backward()
    return found.detach(), q.grad


def some_attention(q, k, v, allowed, places_q, places_k):
    """An attention for questions that take any: near places weigh more. Every query may look somewhere."""
    shared = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
    far = (places_q[:, None] - places_k).abs()
    scores = (q @ k.transpose(-2, -1) / 4 - 0.3 * far).masked_fill(
        ~allowed[:, None], -torch.inf
    )
    return scores.softmax(-1) @ v


def translate(answers, **arguments):
    """`translator` with the attention above."""
    return answers.translator(some_attention, **arguments)


def write_by_table(answers, table, bait, **arguments):
    """`write` with scores that depend on the source, on all that is written, and on how much it is."""

    def scores(source, target_in):
        mixed = table[target_in].cumsum(1) + table[source].sum(1, keepdim=True)
        found = torch.sin(3 * mixed + torch.arange(target_in.shape[1])[:, None])
        found[..., :2] += bait  # padding and the start sign look good, or bad
        return found

    return answers.write(scores, **arguments)
