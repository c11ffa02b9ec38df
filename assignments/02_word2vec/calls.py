"""How the answers of assignment 2 are called. Student code may read this file: it holds no expected value."""


def gradient_of_C(answers, **arguments):
    """Only the gradient with respect to C."""
    return answers.loss_and_gradients(**arguments)[2]


def gradient_of_Q(answers, **arguments):
    """Only the gradient with respect to Q."""
    return answers.loss_and_gradients(**arguments)[1]


def loss_alone(answers, **arguments):
    """Only the loss."""
    return answers.loss_and_gradients(**arguments)[0]


def draw_from(answers, counts, power, u):
    """Words drawn from the student's own tables, and the tables."""
    keep, other = answers.alias_table(counts, power)
    return answers.draw(keep, other, u), keep, other
