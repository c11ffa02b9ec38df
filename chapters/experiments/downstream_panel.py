"""Chapter 12: one Chinese encoder that does five tasks at once, for the panel, the
articles' examples and the attention of [CLS].

Command: python chapters/experiments/downstream_panel.py
Budget: about 25 minutes on one core; a finished panel is kept in the cache, so an
interrupted run goes on with the next rate. `--smoke` does a few steps and stores
nothing in the book.

Needs chapters/checkpoints/bert_zh.safetensors. Writes
chapters/checkpoints/tasks_zh.safetensors (the encoder and its five heads) and
chapters/results/downstream_panel.json, with what each head reaches on the test
part: beside the runs of downstream.py it says what it costs to share one encoder.

Of two learning rates that one counts which is better on the dev part, the mean over
tasks and over known and new wordings. The panel is for texts that readers type:
a rate that only fits the wordings of training would be of no use to it.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch
from downstream import HELD_OUT, N_DEV, N_TEST
from downstream_tasks import CHAPTERS, CHECKPOINTS, TASKS, encoder

from plm.downstream import Recipe, start, tune_together
from plm.files import cache_dir, write_atomically
from plm.panel import build_head, load_panel, save_panel

COMMAND = "python chapters/experiments/downstream_panel.py"
LABELS = {"pairs": 3000, "order": 10_000, "reviews": 3000, "questions": 2000}
LABELS |= {"names": 3000}
PASSES, RATES = 4, (5e-4, 1e-3)
TASK = {name: TASKS[f"Chinese {name}"] for name in LABELS}


def tuned(lr: float, path: Path, smoke: bool) -> None:
    """Tune an encoder with its heads, and keep it at `path`."""
    pretrained, tokenizer = encoder("zh")
    torch.manual_seed(0)
    bert = start(pretrained, "fine-tuned")
    heads = {name: build_head(bert, task.kind) for name, task in TASK.items()}
    examples = {}
    for name, task in TASK.items():
        data = task.data("train", 32 if smoke else LABELS[name], 0)
        examples[name] = task.examples(tokenizer, data, task.longest)
    passes = 1 if smoke else PASSES
    recipe = Recipe("fine-tuned", passes, lr, pad_id=tokenizer.pad_id)
    started = time.process_time()
    history = tune_together(heads, examples, recipe)
    minutes = round((time.process_time() - started) / 60, 1)
    print(f"{lr}: {len(history.losses)} steps, {minutes} CPU minutes", flush=True)
    card = {"command": COMMAND, "labels": LABELS, "passes": passes, "lr": lr}
    kinds = {name: task.kind for name, task in TASK.items()}
    card |= {"cpu_minutes": minutes}
    save_panel(path, heads, kinds, tokenizer, card)


def scores(path: Path, part: str, n: int) -> dict[str, dict[str, dict]]:
    """What each head of a panel reaches on the wordings of a part."""
    panel, found = load_panel(path), {}
    for name, task in TASK.items():
        for wordings in (part, f"{part}, new words")[: 1 + task.new_words]:
            data = task.data(wordings, n, HELD_OUT)
            here = task.measure(
                panel.heads[name], panel.tokenizer, data, task.longest
            )
            here.pop("errors")
            found.setdefault(name, {})[wordings] = here
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    runs = Path(tempfile.mkdtemp()) if smoke else cache_dir() / "runs"
    paths, dev = {}, {}
    for lr in RATES:
        paths[lr] = runs / f"panel {lr}.safetensors"
        if not paths[lr].exists():
            tuned(lr, paths[lr], smoke)
        found = scores(paths[lr], "dev", 20 if smoke else N_DEV)
        dev[lr] = {
            f"{name}, {wordings}": round(here[TASK[name].key], 4)
            for name, of_task in found.items()
            for wordings, here in of_task.items()
        }
        print(lr, dev[lr], flush=True)
    best = max(RATES, key=lambda lr: sum(dev[lr].values()))
    fixed = {"command": COMMAND, "labels": LABELS, "passes": PASSES, "lr": best}
    of_test = scores(paths[best], "test", 20 if smoke else N_TEST)
    if smoke:
        return
    shutil.copy(paths[best], CHECKPOINTS / "tasks_zh.safetensors")
    stored = {**fixed, "dev": {str(lr): dev[lr] for lr in RATES}, "scores": of_test}
    result = CHAPTERS / "results" / "downstream_panel.json"
    write_atomically(result, json.dumps(stored, indent=1) + "\n")
    print(f"wrote {result.name}, lr {best}")


if __name__ == "__main__":
    main()
