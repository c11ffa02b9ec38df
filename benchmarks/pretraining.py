"""The pretraining engine: what it costs beside a bare loop, what a second process brings, what memory a large text takes.

    python benchmarks/pretraining.py
    python benchmarks/pretraining.py --only processes           # needs two cores that nobody else uses
    python benchmarks/pretraining.py --megabytes 1000 --only memory     # a gigabyte: about ten minutes of CPU time

1. Tokens per second of `plm.pretrain` beside the same model in ten lines of PyTorch, median of alternating rounds.
2. Two gloo processes of one thread each beside one: the share of a doubled speed that is reached.
3. Highest anonymous memory (what no file stands behind) while a text is cut into tokens and trained on, for two sizes. The
   pages of the mapped file are the system's to take back at any time, and are not counted.
"""

import argparse
import multiprocessing
import os
import random
import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from plm.gpt import GPT, GPTConfig
from plm.pretrain import Settings, pretrain
from plm.pretrain_tasks import GPTTask
from plm.run_log import read_log
from plm.run_settings import decay_groups
from plm.train import seed_everything

B, T, V = 16, 64, 2000
STEPS, ROUNDS = 30, 5
fork = multiprocessing.get_context("fork")


def task() -> GPTTask:
    seed_everything(0)
    model = GPT(GPTConfig(vocab_size=V, n_positions=T, d_model=128, n_heads=4, n_layers=4, dropout=0.0))
    rows = torch.randint(V, (400, T + 1))
    task = GPTTask(model, rows, rows[:1], B, lambda path: None)
    task.evaluate = lambda model: {"loss": 0.0}  # type: ignore[method-assign]
    return task


def bare() -> float:
    """Tokens per second of a loop without an engine."""
    model = task().model
    rows = torch.randint(V, (400, T + 1))
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-3, fused=True)
    start = time.perf_counter()
    for _ in range(STEPS):
        total, n = model.loss({"ids": rows[torch.randint(400, (B,))]})
        optimizer.zero_grad()
        (total / n).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return STEPS * B * T / (time.perf_counter() - start)


def engine() -> float:
    """Tokens per second of `plm.pretrain`, with a state on the disk at the end."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(STEPS, save_minutes=60)
        start = time.perf_counter()
        pretrain(task(), folder, settings)
        return STEPS * B * T / (time.perf_counter() - start)


def one_of(world: int, rank: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    pretrain(task(), folder, Settings(3 * STEPS, save_minutes=60, log_every=STEPS, cpu=True))


def processes(world: int) -> float:
    """Tokens per second of so many processes together; the first steps, in which they find each other, are left out."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as folder:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        children = [fork.Process(target=one_of, args=(world, rank, port, folder)) for rank in range(world)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        rows = read_log(Path(folder) / "train.csv")
        return (rows[-1]["tokens"] - rows[0]["tokens"]) / (rows[-1]["seconds"] - rows[0]["seconds"])


def alternate(*measures: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """Median of each over rounds in which the order turns around."""
    found: list[list[float]] = [[] for _ in measures]
    for r in range(rounds):
        for i in range(len(measures))[:: -1 if r % 2 else 1]:
            found[i].append(measures[i]())
    return [statistics.median(values) for values in found]


def write_text(path: Path, megabytes: float) -> None:
    """Words of a made-up language with Zipf's frequencies, an empty line every ten lines."""
    rng = random.Random(0)
    letters = "etaoinshrdlu"
    language = ["".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(20_000)]
    weights = [1 / (i + 1) for i in range(len(language))]
    with open(path, "w", encoding="utf-8") as file:
        for i in range(int(megabytes)):
            words = rng.choices(language, weights, k=50_000)
            lines = [" ".join(words[j : j + 12]) for j in range(0, len(words), 12)]
            text = "\n".join(line + "\n" * (j % 10 == 0) for j, line in enumerate(lines))
            file.write((f"{i}\n" + text * 6)[:1_000_000])


def anonymous() -> float:
    """Megabytes of memory that belong to this process alone."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


def large_text(path: Path, cache: str, results: Any) -> None:
    """Cut a text into tokens and train on it, watching the memory."""
    from plm import corpus
    from plm.corpus_source import Source
    from plm.fast_tokenizers import ByteBPE

    os.environ["PLM_CACHE"] = cache
    most = 0.0
    encode, batch = corpus._encode, GPTTask.batch

    def watched(do: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*args: Any) -> Any:
            nonlocal most
            found = do(*args)
            most = max(most, anonymous())
            return found

        return watching

    corpus._encode, GPTTask.batch = watched(encode), watched(batch)  # type: ignore[method-assign]
    tokenizer = ByteBPE.train((p.text for p, _ in zip(Source(str(path)).pieces(), range(500))), V)
    start = time.perf_counter()
    rows = corpus.pack(Source(str(path)), tokenizer.fast, corpus.Packing(T + 1, end_id=tokenizer.end_id))
    seconds = time.perf_counter() - start
    packed = most
    train, dev = rows.split(0.01, most=8)
    model = task().model
    pretrain(GPTTask(model, train, dev, B, lambda path: None), Path(cache) / "run", Settings(20))
    results.put((rows.facts["tokens"], path.stat().st_size / 1e6 / seconds, packed, most))


def memory(megabytes: float) -> None:
    print("text MB     tokens   MB/s cut   highest MB, cutting   and training")
    for size in (max(1, megabytes / 8), megabytes):
        with tempfile.TemporaryDirectory() as folder:
            write_text(Path(folder) / "text.txt", size)
            results = fork.Queue()
            child = fork.Process(target=large_text, args=(Path(folder) / "text.txt", folder, results))
            child.start()
            tokens, speed, packed, most = results.get()
            child.join()
            print(f"{size:7.0f} {tokens:10,} {speed:10.2f} {packed:21.0f} {most:14.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=48)
    parser.add_argument("--only", choices=("speed", "processes", "memory"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}; GPT of d_model 128, 4 layers, {B} rows of {T} tokens, {os.cpu_count()} CPUs")
    if args.only in (None, "memory") and Path("/proc/self/status").exists():
        memory(args.megabytes)
    if args.only in (None, "speed"):
        ours, theirs = alternate(engine, bare)
        print(f"tokens/s: engine {ours:,.0f}, bare loop {theirs:,.0f}, ratio {ours / theirs:.2f}", flush=True)
    if args.only in (None, "processes"):
        two, one = alternate(lambda: processes(2), lambda: processes(1), rounds=3)
        print(
            f"processes   tokens/s   efficiency\n        1 {one:10,.0f} {1:12.2f}\n        2 {two:10,.0f} {two / one / 2:12.2f}"
        )


if __name__ == "__main__":
    main()
