"""How the answers of assignment 8 are called. Student code may read this file: it holds no expected value."""


def load(path):
    """An encoder of the book and its tokenizer."""
    import torch

    from plm.model_files import load_bert

    torch.set_num_threads(1)
    model, tokenizer, _ = load_bert(path)
    return model.bert, tokenizer


def arrays(scores):
    """Scores as plain arrays, whatever kind they came in."""
    import torch

    if isinstance(scores, list | tuple):
        return [torch.as_tensor(s).detach().numpy() for s in scores]
    return torch.as_tensor(scores).detach().numpy()


def solve_chosen(answers, tasks, seed):
    """The scores of the task that was chosen, for the texts without labels."""
    task = str(answers.TASK)
    if task not in tasks:
        raise ValueError(f"TASK is {task!r}; it is one of {', '.join(tasks)}")
    given = tasks[task]
    bert, tokenizer = load(given["path"])
    train = list(zip(given["texts"], given["targets"]))
    found = answers.solve(
        "pretrained", bert, tokenizer, train, given["asked"], seed
    )
    return {"task": task, "scores": arrays(found)}


def other_encoders(answers, tasks, start, seed):
    """The scores that a start leads to with the encoder and with two others."""
    given = tasks[str(answers.TASK)]
    bert, tokenizer = load(given["path"])
    train = list(zip(given["texts"], given["targets"]))
    encoders = {
        "itself": bert,
        "same vectors": answers.another_encoder(bert, True, seed),
        "all other": answers.another_encoder(bert, False, seed),
    }
    wanted = {"scratch": ("itself", "all other"), "vectors": tuple(encoders)}
    names = wanted.get(start, ("itself", "same vectors"))
    found = {}
    for name in names:
        scores = answers.solve(
            start, encoders[name], tokenizer, train, given["asked"], seed
        )
        found[name] = arrays(scores)
    return found


def encoder_afterwards(answers, tasks, seed):
    """Some of the encoder's weights after `solve`, by task."""
    task = str(answers.TASK)
    given = tasks[task]
    bert, tokenizer = load(given["path"])
    train = list(zip(given["texts"], given["targets"]))
    answers.solve("pretrained", bert, tokenizer, train, given["asked"], seed)
    state = {name: t for name, t in bert.state_dict().items() if t.ndim > 1}
    return {
        "task": task,
        "sums": {name: float(t.sum()) for name, t in state.items()},
    }


def recorded_curve(answers, n_rows, sizes, seeds):
    """The curve of a `run` that keeps what it was asked, and its calls."""
    calls = []

    def run(rows, seed):
        rows = [int(row) for row in rows]
        calls.append((rows, int(seed)))
        return sum(row * row for row in rows) + seed / 7

    return answers.learning_curve(run, n_rows, sizes, seeds), calls
