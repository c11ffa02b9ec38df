"""Chapter 12: one Chinese encoder that does five tasks at once, for the panel, the
articles' examples and the attention of [CLS].

Command: python chapters/experiments/downstream_panel.py
Budget: about 15 minutes on one core. `--smoke` does a few steps and stores nothing
in the book.

Needs chapters/checkpoints/bert_zh.safetensors. Writes
chapters/checkpoints/tasks_zh.safetensors (the encoder and its five heads) and
chapters/results/downstream_panel.json, with what each head reaches on the test
part: beside the runs of downstream.py it says what it costs to share one encoder.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from downstream import HELD_OUT, N_TEST
from downstream_tasks import CHAPTERS, CHECKPOINTS, TASKS, encoder

from plm.downstream import Recipe, start, tune_together
from plm.files import write_atomically
from plm.panel import build_head, save_panel

COMMAND = "python chapters/experiments/downstream_panel.py"
LABELS = {"pairs": 3000, "order": 10_000, "reviews": 3000, "questions": 2000}
LABELS |= {"names": 3000}
PASSES, RATE = 4, 5e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--smoke", action="store_true")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp()) if smoke else CHECKPOINTS
    result = (folder if smoke else CHAPTERS / "results") / "downstream_panel.json"
    pretrained, tokenizer = encoder("zh")
    torch.manual_seed(0)
    bert = start(pretrained, "fine-tuned")
    tasks = {name: TASKS[f"Chinese {name}"] for name in LABELS}
    heads = {name: build_head(bert, task.kind) for name, task in tasks.items()}
    examples = {}
    for name, task in tasks.items():
        data = task.data("train", 32 if smoke else LABELS[name], 0)
        examples[name] = task.examples(tokenizer, data, task.longest)
    recipe = Recipe(
        "fine-tuned", 1 if smoke else PASSES, RATE, pad_id=tokenizer.pad_id
    )
    started = time.process_time()
    history = tune_together(heads, examples, recipe)
    minutes = (time.process_time() - started) / 60
    print(f"{len(history.losses)} steps, {minutes:.1f} CPU minutes", flush=True)
    scores = {}
    for name, task in tasks.items():
        for part in ("test", "test, new words")[: 1 + task.new_words]:
            data = task.data(part, 20 if smoke else N_TEST, HELD_OUT)
            found = task.measure(heads[name], tokenizer, data, task.longest)
            found.pop("errors")
            scores.setdefault(name, {})[part] = found
        print(name, json.dumps(scores[name])[:200], flush=True)
    card = {"command": COMMAND, "labels": LABELS, "passes": PASSES, "lr": RATE}
    card |= {"cpu_minutes": round(minutes, 1)}
    kinds = {name: task.kind for name, task in tasks.items()}
    save_panel(folder / "tasks_zh.safetensors", heads, kinds, tokenizer, card)
    stored = {**card, "scores": scores}
    write_atomically(result, json.dumps(stored, indent=1) + "\n")
    print(f"wrote {result.name}")


if __name__ == "__main__":
    main()
