"""How the answers of assignment 4 are called. Student code may read this file: it holds no expected value."""


def induce_all(answers, gaps, **arguments):
    """`induce` for one word after the other."""
    return [answers.induce(left, right, **arguments) for left, right in gaps]
