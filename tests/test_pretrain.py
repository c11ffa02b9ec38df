"""plm.pretrain: killed at any moment it goes on bit for bit; two processes and accumulation equal one big batch."""

import copy as copy_module
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from tiny_task import TinyLM, TinyTask, to_the_end
from torch import nn
from torch.testing import assert_close

from plm import pretrain as engine
from plm import run_files, run_log
from plm.pretrain import Settings, pretrain, seed_of
from plm.run_log import Log, read_log
from plm.run_settings import decay_groups
from plm.train import load_checkpoint

SETTINGS = Settings(steps=24, lr=0.02, warmup=3, accumulate=2, log_every=1, evaluate_every=7, save_minutes=0.0)
TIMES = {"seconds", "cpu_seconds", "tokens_per_second"}
fork = multiprocessing.get_context("fork")


def what_a_run_leaves(folder):
    """Everything that must be the same however often the run was killed: tensors of all files, logs without times."""
    files = {name: load_file(folder / f"{name}.safetensors") for name in ("last", "best", "model")}
    rows = {name: read_log(folder / f"{name}.csv") for name in ("train", "eval")}
    return files, {name: [{k: v for k, v in r.items() if k not in TIMES} for r in log] for name, log in rows.items()}


def assert_same_run(folder, other):
    (files, logs), (other_files, other_logs) = what_a_run_leaves(folder), what_a_run_leaves(other)
    assert logs == other_logs
    for name in files:
        assert files[name].keys() == other_files[name].keys()
        assert all(torch.equal(t, other_files[name][key]) for key, t in files[name].items()), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    to_the_end(TinyTask(), folder, SETTINGS)
    return folder


def in_a_child(do, *args):
    """Run `do` in a forked process and return its exit code: -9 if it was killed."""
    child = fork.Process(target=do, args=args)
    child.start()
    child.join(600)  # on a machine with much else to do
    return child.exitcode


def kill_at(event):
    """Kill this process, with no chance to tidy up, when its `event`-th disk or task operation is about to happen."""
    left = event

    def dying(do):
        def counted(*args, **kwargs):
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return do(*args, **kwargs)

        return counted

    for name in ("batch", "losses", "evaluate", "save"):
        setattr(TinyTask, name, dying(getattr(TinyTask, name)))
    for name in ("replace", "fsync"):
        setattr(os, name, dying(getattr(os, name)))
    run_files.save_file = dying(half_a_file)


def half_a_file(tensors, path, metadata, whole_file=run_files.save_file):
    """What a process that dies while it writes leaves behind, most of the time."""
    whole_file(tensors, path, metadata)
    if random.SystemRandom().random() < 0.2:
        path.write_bytes(path.read_bytes()[:1000])
        os.kill(os.getpid(), signal.SIGKILL)


def doomed(folder, event, settings):
    kill_at(event)
    to_the_end(TinyTask(), folder, settings)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_operation_it_goes_on_bit_for_bit(whole, tmp_path, seed):
    rng, kills = random.Random(seed), 0
    while (code := in_a_child(doomed, tmp_path, rng.randrange(5, 90), SETTINGS)) != 0:
        assert code == -signal.SIGKILL
        kills += 1
        assert kills < 60
    assert kills >= 5
    assert_same_run(tmp_path, whole)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def test_killed_from_outside_with_states_that_lie_several_steps_back(whole, tmp_path):
    rng, settings, kills = random.Random(2), replace(SETTINGS, save_minutes=0.0005), 0
    slow = TinyTask()
    slow.batch = lambda k, batch=slow.batch: (
        time.sleep(0.02) or batch(k)
    )  # so that nobody is done before the third kill
    for _ in range(6):
        child = fork.Process(target=pretrain, args=(slow, tmp_path, settings))
        child.start()
        time.sleep(rng.uniform(0.02, 0.3))
        child.kill()
        child.join()
        kills += child.exitcode == -signal.SIGKILL
    to_the_end(TinyTask(), tmp_path, settings)
    assert kills >= 2
    assert_same_run(tmp_path, whole)


def stopped_politely(folder):
    task, losses = TinyTask(), TinyTask.losses

    def losses_with_signal(model, batch):
        task.calls = getattr(task, "calls", 0) + 1
        if task.calls == 9:
            os.kill(os.getpid(), signal.SIGTERM)
        return losses(task, model, batch)

    task.losses = losses_with_signal
    progress = pretrain(task, folder, replace(SETTINGS, save_minutes=60))
    os._exit(progress.step)


def test_a_polite_signal_ends_the_step_and_saves(whole, tmp_path):
    assert in_a_child(stopped_politely, tmp_path) == 6  # the signal came in step 5, and was seen before the next
    to_the_end(TinyTask(), tmp_path, SETTINGS)
    assert_same_run(tmp_path, whole)


def test_a_run_that_was_asked_to_stop_is_not_taken_for_a_finished_one(whole, tmp_path):
    """It returns as a finished one does, and every number in its state is another one: a test would see a fault of the engine."""
    task, calls, losses = TinyTask(), [], TinyTask.losses

    def losses_with_signal(model, batch):
        calls.append(batch)
        if len(calls) == 9:
            os.kill(os.getpid(), signal.SIGTERM)
        return losses(task, model, batch)

    task.losses = losses_with_signal
    with pytest.raises(pytest.exit.Exception, match="asked to stop after step 6 of 24"):
        to_the_end(task, tmp_path, SETTINGS)
    stopped, finished = (load_file(folder / "last.safetensors") for folder in (tmp_path, whole))
    assert not any(torch.equal(stopped[name], tensor) for name, tensor in finished.items() if "/step" not in name)
    to_the_end(TinyTask(), tmp_path, SETTINGS)
    assert_same_run(tmp_path, whole)


def full_disk(folder, settings):
    """No file may grow beyond what the small model needs, so the state does not fit."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
    try:
        to_the_end(TinyTask(), folder, settings)
    except OSError as error:
        os._exit(7 if "last.safetensors could not be written" in str(error) else 8)


def test_a_full_disk_ends_the_run_and_the_state_before_is_kept(whole, tmp_path):
    task = TinyTask()
    task.batch = lambda k, batch=task.batch: batch(k) if k < 10 else 1 / 0
    with pytest.raises(ZeroDivisionError):
        to_the_end(task, tmp_path, SETTINGS)
    state = (tmp_path / "last.safetensors").read_bytes()
    assert in_a_child(full_disk, tmp_path, SETTINGS) == 7
    assert (tmp_path / "last.safetensors").read_bytes() == state
    assert not list(tmp_path.glob(".last.safetensors*"))
    to_the_end(TinyTask(), tmp_path, SETTINGS)
    assert_same_run(tmp_path, whole)


def in_a_group_with_workers(folder, number):
    os.setpgid(0, 0)
    task, losses = TinyTask(), TinyTask.losses

    def losses_with_signal(model, batch):
        task.calls = getattr(task, "calls", 0) + 1
        if task.calls == 9:
            os.killpg(0, number)  # as Ctrl-C in a terminal does, and a cluster: the helpers get it, too
            time.sleep(0.2)
        return losses(task, model, batch)

    task.losses = losses_with_signal
    os._exit(pretrain(task, folder, replace(SETTINGS, save_minutes=60, workers=2)).step)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_processes_of_a_run_still_ends_the_step_and_saves(whole, tmp_path, number):
    assert in_a_child(in_a_group_with_workers, tmp_path, number) == 6
    to_the_end(TinyTask(), tmp_path, SETTINGS)
    assert_same_run(tmp_path, whole)


def test_what_a_run_writes_can_be_read_by_whom_the_umask_lets(whole):
    mask = os.umask(0)
    os.umask(mask)
    modes = {path.name: path.stat().st_mode & 0o777 for path in whole.iterdir() if path.name[0] != "."}
    assert set(modes.values()) == {0o666 & ~mask}


def test_batches_prepared_by_other_processes_are_the_same(whole, tmp_path):
    to_the_end(TinyTask(), tmp_path, replace(SETTINGS, workers=1))
    assert_same_run(tmp_path, whole)


def test_k12_the_model_learns_and_the_best_is_no_live_reference(whole):
    rows = read_log(whole / "eval.csv")
    assert [row["step"] for row in rows] == [7, 14, 21, 24]
    assert rows[-1]["loss"] < 0.8 * rows[0]["loss"]
    state, config = load_checkpoint(whole / "best.safetensors")
    model = TinyLM()
    model.load_state_dict(state)
    assert config == {"kind": "tiny"}
    assert TinyTask().evaluate(model.eval())["loss"] == min(row["loss"] for row in rows)


# --- states that are refused ----------------------------------------------------------------------------------------


def refused(folder, words, settings=SETTINGS, **task):
    """`pretrain` gives up with these words, and every file is still what it was."""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=words):
        to_the_end(TinyTask(**task), folder, settings)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.fixture
def copy(whole, tmp_path):
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_truncated_damaged_or_foreign_state_is_refused_and_nothing_is_lost(copy, whole):
    path = copy / "last.safetensors"
    content = path.read_bytes()
    size = 8 + struct.unpack("<Q", content[:8])[0]
    flipped = bytearray(content)
    flipped[size + 7] ^= 1
    for damage, words in (
        (content[:-100], "truncated"),
        (content[:5], "truncated"),
        (b"", "truncated"),
        (bytes(flipped), "checksum"),
        (b"PK\x03\x04 a zip file of torch.save", "no safetensors"),
        (save({"x": torch.zeros(2)}, metadata={"run": "3"}), "not the state of a run"),
        (save({"x": torch.zeros(2)}, metadata={"run": "my experiment"}), "not the state of a run"),
        (save({"x": torch.zeros(2)}), "not the state of a run"),
        ((whole / "model.safetensors").read_bytes(), "not the state of a run"),
    ):
        path.write_bytes(damage)
        refused(copy, words)


def test_the_state_of_another_run_is_refused(copy):
    refused(copy, "another lr: it was 0.02 and is now 0.01", replace(SETTINGS, lr=0.01))
    refused(copy, "another task: batch_size was 4 and is now 5", batch_size=5)
    refused(copy, "another micro_batches: it was 2 and is now 1", replace(SETTINGS, accumulate=1))
    refused(copy, "24 updates of a run planned with steps 24: as it is", replace(SETTINGS, steps=30))
    refused(copy, "planned with schedule cosine, floor 0.1: as", replace(SETTINGS, schedule="linear", floor=0.0))


def test_a_state_of_another_model_is_refused(copy):
    task = TinyTask()
    task.model.extra = nn.Linear(1, 1)
    with pytest.raises(ValueError, match=r"another model.*extra"):
        to_the_end(task, copy, SETTINGS)


def test_a_run_whose_rate_has_not_fallen_may_be_given_more_steps(tmp_path):
    short = replace(SETTINGS, steps=12, schedule="cooldown", cooldown=4, evaluate_every=100)
    longer = replace(short, steps=20)

    class StopError(Exception):
        pass

    def stop(line):
        raise StopError

    to_the_end(TinyTask(), tmp_path / "straight", longer)
    task = TinyTask()
    task.batch = lambda k, batch=task.batch: batch(k) if k < 14 else stop("")
    with pytest.raises(StopError):
        to_the_end(task, tmp_path / "extended", short)
    to_the_end(TinyTask(), tmp_path / "extended", longer)
    assert_same_run(tmp_path / "straight", tmp_path / "extended")
    with pytest.raises(ValueError, match="planned with steps 20"):
        to_the_end(TinyTask(), tmp_path / "extended", short)


def test_a_copy_of_a_run_at_constant_rate_may_cool_down(tmp_path):
    constant = replace(SETTINGS, schedule="constant", steps=10, evaluate_every=100)
    cooled = replace(constant, schedule="cooldown", steps=14, cooldown=4)
    to_the_end(TinyTask(), tmp_path / "whole", cooled)
    to_the_end(TinyTask(), tmp_path / "run", constant)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    (tmp_path / "copy" / "eval.csv").unlink()
    to_the_end(TinyTask(), tmp_path / "copy", cooled)
    states = [load_file(tmp_path / name / "last.safetensors") for name in ("whole", "copy")]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_a_second_run_in_the_same_folder_is_refused(tmp_path):
    with run_files.only_one_run(tmp_path, True), pytest.raises(ValueError, match="another run is writing"):
        to_the_end(TinyTask(), tmp_path, SETTINGS)


def test_d06_the_state_runs_no_code(copy):
    """The header is JSON, the body numbers; a pickle in its place is refused unread."""
    import pickle

    class Marker:
        def __reduce__(self):
            return Path.touch, (copy / "ran",)

    (copy / "last.safetensors").write_bytes(pickle.dumps(Marker()))
    with pytest.raises(ValueError, match="no safetensors"):
        to_the_end(TinyTask(), copy, SETTINGS)
    assert not (copy / "ran").exists()


def test_d05_a_new_process_reads_the_whole_state_as_plain_numbers_and_json(whole):
    """What the generators of Python, NumPy and torch need is in the step: they are seeded with it."""
    code = "import sys; from plm.run_files import load_state; from pathlib import Path; "
    code += "tensors, facts = load_state(Path(sys.argv[1])); print(len(tensors), facts['progress']['step'])"
    command = [sys.executable, "-c", code, str(whole / "last.safetensors")]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out == f"{len(load_file(whole / 'last.safetensors'))} 24\n"


# --- many processes, many micro-batches -----------------------------------------------------------------------------


def one_of_two(rank, port, folder, task, settings):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_PORT=str(port))
    os.environ.update(MASTER_ADDR="127.0.0.1", OMP_NUM_THREADS="1")
    pretrain(task, folder, settings)
    if rank:
        (folder / "rank1.json").write_text(json.dumps({n: t.sum().item() for n, t in task.model.state_dict().items()}))


def on_two_processes(folder, task, settings, do=None):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    do = do or one_of_two
    children = [fork.Process(target=do, args=(rank, port, folder, task, settings)) for rank in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join(600)
    return [child.exitcode for child in children]


def losses_of(folder):
    columns = ("loss", "next", "last", "grad_norm", "tokens")
    return torch.tensor([[row[c] for c in columns] for row in read_log(folder / "train.csv")], dtype=torch.float64)


def test_d01_two_processes_and_two_micro_batches_equal_one_batch_of_double_size(tmp_path):
    """Rows have different lengths: a mean of means would give another curve."""
    calm = {"dropout": 0.0, "noise": 0.0}
    single = replace(SETTINGS, accumulate=1)
    to_the_end(TinyTask(**calm, batch_size=8), tmp_path / "big", single)
    to_the_end(TinyTask(**calm, batch_size=4), tmp_path / "accumulated", replace(single, accumulate=2))
    assert on_two_processes(tmp_path / "two", TinyTask(**calm, batch_size=4), single) == [0, 0]
    big = losses_of(tmp_path / "big")
    for other in ("accumulated", "two"):
        assert_close(losses_of(tmp_path / other), big, rtol=2e-5, atol=2e-6)
        assert_close(
            load_file(tmp_path / other / "model.safetensors"), load_file(tmp_path / "big" / "model.safetensors")
        )
    # Both processes end with the same weights, and the run can go on in one process that accumulates.
    ours, theirs = TinyTask(**calm), json.loads((tmp_path / "two" / "rank1.json").read_text())
    to_the_end(ours, tmp_path / "two", SETTINGS)
    assert {name: t.sum().item() for name, t in ours.model.state_dict().items()} == theirs


def test_two_processes_go_on_bit_for_bit_with_dropout_of_their_own(tmp_path):
    settings = replace(SETTINGS, steps=8, accumulate=1, schedule="constant")
    on_two_processes(tmp_path / "straight", TinyTask(), settings)
    on_two_processes(tmp_path / "halting", TinyTask(), replace(settings, steps=5))
    on_two_processes(tmp_path / "halting", TinyTask(), settings)
    (files, logs), (other_files, other_logs) = (what_a_run_leaves(tmp_path / name) for name in ("straight", "halting"))
    assert logs["train"] == other_logs["train"]
    assert all(torch.equal(t, other_files["last"][name]) for name, t in files["last"].items())


def only_one_is_asked_to_stop(rank, port, folder, task, settings):
    batch = task.batch

    def batch_with_signal(k):
        if k == 7:  # the batch of process 1 in step 3
            os.kill(os.getpid(), signal.SIGTERM)
        return batch(k)

    task.batch = batch_with_signal
    one_of_two(rank, port, folder, task, settings)
    os._exit(run_files.load_state(folder / "last.safetensors")[1]["progress"]["step"] if rank == 0 else 0)


def test_when_one_process_is_asked_to_stop_both_end_after_the_same_step(tmp_path):
    settings = replace(SETTINGS, accumulate=1, save_minutes=60)
    codes = on_two_processes(tmp_path, TinyTask(), settings, only_one_is_asked_to_stop)
    assert codes == [4, 0]
    assert not (tmp_path / "model.safetensors").exists()


def disagreeing(rank, port, folder, task, settings):
    """Exit code 3 if the process says that it was given something else than the other."""
    task.seed = rank if settings.seed == 0 else 0
    here = folder / str(rank) if settings.seed else folder
    try:
        one_of_two(rank, port, here, task, settings)
    except ValueError as error:
        os._exit(3 if "the processes" in str(error) else 4)


def test_processes_that_were_given_different_things_say_so(tmp_path):
    assert on_two_processes(tmp_path / "texts", TinyTask(), SETTINGS, disagreeing) == [3, 3]
    settings = replace(SETTINGS, seed=1, accumulate=1, steps=4, schedule="constant")
    to_the_end(TinyTask(), tmp_path / "folders" / "0", replace(settings, accumulate=2, steps=2, warmup=0))
    settings = replace(settings, warmup=0)
    assert on_two_processes(tmp_path / "folders", TinyTask(), settings, disagreeing) == [3, 3]


def test_d01_numbers_by_hand(tmp_path):
    """Micro-batches with token losses [4] and [0, 0, 0]: the mean is 1, the mean of means 2."""

    class Four(TinyTask):
        def batch(self, k):
            return {"ids": torch.zeros(1, 1), "scale": torch.tensor([4.0] if k % 2 == 0 else [0.0, 0.0, 0.0])}

        def counts(self, batch):
            return {"tokens": 1, "next": len(batch["scale"])}

        def losses(self, model, batch):
            return {"next": (batch["scale"] * (1 + model.head.bias[0])).sum()}

        def evaluate(self, model):
            return {"loss": 0.0}

    task = Four()
    nn.init.zeros_(task.model.head.bias)
    to_the_end(task, tmp_path, replace(SETTINGS, steps=1, warmup=0))
    row = read_log(tmp_path / "train.csv")[0]
    assert (row["loss"], row["grad_norm"]) == (1.0, 1.0)


def test_c07_a_step_without_an_item_for_one_loss_stays_finite(tmp_path):
    class Empty(TinyTask):
        def batch(self, k):
            batch = super().batch(k)
            return batch | {"targets": torch.full_like(batch["targets"], -100)}

        def evaluate(self, model):
            return {"loss": 0.0}

    to_the_end(Empty(), tmp_path, replace(SETTINGS, steps=3, warmup=0))
    rows = read_log(tmp_path / "train.csv")
    assert [row["next"] for row in rows] == [0.0, 0.0, 0.0]
    assert all(0 < row["last"] < 1 for row in rows)


# --- the parts ------------------------------------------------------------------------------------------------------


def test_bfloat16_and_the_same_process_afterwards_in_float32(tmp_path):
    progress = to_the_end(TinyTask(dropout=0.0, noise=0.0), tmp_path / "bf16", replace(SETTINGS, precision="bf16"))
    to_the_end(TinyTask(dropout=0.0, noise=0.0), tmp_path / "fp32", SETTINGS)
    half, full = losses_of(tmp_path / "bf16"), losses_of(tmp_path / "fp32")
    assert progress.step == 24
    assert not torch.equal(half, full)
    assert_close(half[:, 0], full[:, 0], rtol=0.1, atol=0.1)
    with pytest.raises(ValueError, match="another precision: it was 'bf16' and is now 'no'"):
        to_the_end(TinyTask(dropout=0.0, noise=0.0), tmp_path / "bf16", SETTINGS)


def test_a_loss_that_is_not_finite_stops_at_once_and_the_last_good_state_stays(tmp_path):
    task = TinyTask()
    task.losses = lambda model, batch: {
        n: v * (float("nan") if task.steps_done() else 1) for n, v in TinyTask.losses(task, model, batch).items()
    }
    task.steps_done = lambda: (tmp_path / "train.csv").exists() and len(read_log(tmp_path / "train.csv")) >= 4
    with pytest.raises(FloatingPointError, match="at step 4: try a smaller lr"):
        to_the_end(task, tmp_path, SETTINGS)
    assert run_files.load_state(tmp_path / "last.safetensors")[1]["progress"]["step"] == 4
    task = TinyTask()
    task.losses = lambda model, batch: {n: v * float("inf") for n, v in TinyTask.losses(task, model, batch).items()}
    with pytest.raises(FloatingPointError, match=r"a smaller clip$"):  # there is no good state yet
        to_the_end(task, tmp_path / "at once", SETTINGS)
    task = TinyTask()
    task.evaluate = lambda model: {"loss": float("nan")}
    with pytest.raises(FloatingPointError, match="evaluation after step 7 gave NaN"):
        to_the_end(task, tmp_path / "other", SETTINGS)


def test_d08_only_matrices_decay_and_each_parameter_is_in_one_group():
    from plm.elmo import BiLM, BiLMConfig
    from plm.layers import Encoder, LayerConfig
    from plm.recurrent import RecurrentLM, RecurrentLMConfig

    models = [TinyLM(), BiLM(BiLMConfig(20, 8, 16)), BiLM(BiLMConfig(20, 8, 16, tied=True))]
    models += [RecurrentLM(RecurrentLMConfig(20, "lstm", 8, 8)), Encoder(LayerConfig(d_model=8, n_heads=2, d_ff=16))]
    for model in models:
        matrices, rest = decay_groups(model, 0.1)
        assert (matrices["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
        both = [id(p) for group in (matrices, rest) for p in group["params"]]
        assert len(both) == len(set(both))
        assert set(both) == {id(p) for p in model.parameters()}
        tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        assert all(p.ndim >= 2 and id(p) not in tables for p in matrices["params"])
        assert all(p.ndim == 1 or id(p) in tables for p in rest["params"])
        assert matrices["params"]
        assert rest["params"]
    frozen = TinyLM()
    frozen.hidden.requires_grad_(False)
    assert len(decay_groups(frozen, 0.1)) == 1


def test_d03_the_first_update_moves_the_weights(tmp_path):
    task = TinyTask()
    before = copy_module.deepcopy(task.model.state_dict())
    to_the_end(task, tmp_path, replace(SETTINGS, steps=1, warmup=1))
    assert read_log(tmp_path / "train.csv")[0]["lr"] == SETTINGS.lr / 2
    assert not any(torch.equal(tensor, before[name]) for name, tensor in task.model.state_dict().items())


def test_a24_each_part_is_left_in_the_mode_it_was_found_in(tmp_path):
    task = TinyTask()
    task.model.drop.eval()
    to_the_end(task, tmp_path, replace(SETTINGS, steps=1, warmup=0))
    assert [module.training for module in task.model.modules()] == [True, True, True, True, False, True]


def test_frozen_parameters_stay(tmp_path):
    task = TinyTask()
    task.model.hidden.requires_grad_(False)
    before = task.model.hidden.weight.clone()
    to_the_end(task, tmp_path, replace(SETTINGS, steps=3, warmup=0))
    assert torch.equal(task.model.hidden.weight, before)
    assert task.model.training


def test_seeds_are_unrelated():
    seeds = {seed_of(a, b, c) for a in range(4) for b in range(40) for c in range(4)}
    assert len(seeds) == 4 * 40 * 4
    assert all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"accumulate": 0}, "accumulate"),
        ({"lr": 0.0}, "lr and clip"),
        ({"lr": float("nan")}, "lr and clip"),
        ({"clip": -1.0}, "lr and clip"),
        ({"precision": "int8"}, "precision is"),
        ({"schedule": "sine"}, "schedule is one of"),
        ({"warmup": 99}, "do not fit"),
        ({"workers": -1}, "workers"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**32}, "seed must be below"),
        ({"weight_decay": float("nan")}, "weight_decay must be a finite number"),
        ({"save_minutes": float("nan")}, "save_minutes must be a finite number"),
        ({"save_minutes": float("inf")}, "save_minutes must be a finite number"),
        ({"floor": float("nan")}, "floor must be a finite number"),
        ({"beta1": 1.0}, "beta1 and beta2 lie in"),
        ({"eps": 0.0}, "eps above 0"),
    ],
)
def test_bad_settings_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        replace(SETTINGS, **change)


def test_a_log_keeps_every_digit_and_forgets_what_will_be_measured_again(tmp_path):
    path = tmp_path / "train.csv"
    log = Log(path, 0)
    rows = [{"step": i, "loss": 1 / (i + 3), "big": 1e22} for i in range(5)]
    for row in rows:
        log.write(row)
    assert read_log(path) == rows
    with pytest.raises(ValueError, match="columns"):
        log.write({"step": 6})
    with open(path, "a") as file:
        file.write("5,0.1")  # cut short by a kill
    assert read_log(path) == rows
    again = Log(path, 2)
    again.write(rows[3])
    assert read_log(path) == rows[:4]


@pytest.mark.parametrize("content", ["a,b\n1,2\n", "step,loss\n1,two\n", "step,loss\n1\n", "step\n1,2\n"])
def test_a_foreign_log_is_named(tmp_path, content):
    (tmp_path / "train.csv").write_text(content)
    with pytest.raises(ValueError, match=r"train.csv is not the log of a run .* move it away"):
        to_the_end(TinyTask(), tmp_path, SETTINGS)


def test_float16_goes_on_bit_for_bit_too(tmp_path):
    half = replace(SETTINGS, precision="fp16", cpu=True, steps=6, schedule="constant")
    to_the_end(TinyTask(), tmp_path / "whole", half)
    to_the_end(TinyTask(), tmp_path / "halting", replace(half, steps=3))
    to_the_end(TinyTask(), tmp_path / "halting", half)
    states = [run_files.load_state(tmp_path / name / "last.safetensors") for name in ("whole", "halting")]
    assert all(torch.equal(tensor, states[1][0][name]) for name, tensor in states[0][0].items())
    assert states[0][1]["scaler"] == states[1][1]["scaler"]  # of the loss, which only a GPU has


def test_tensorboard_on_request(tmp_path):
    to_the_end(TinyTask(), tmp_path, replace(SETTINGS, steps=3, warmup=0, tensorboard=True))
    assert list((tmp_path / "tensorboard").iterdir())


def test_lines_of_progress_say_speed_and_time_left(tmp_path):
    lines = []
    to_the_end(TinyTask(), tmp_path, replace(SETTINGS, steps=3, warmup=0, cpu=True), echo=lines.append)
    assert lines[0] == "1 process on cpu, precision no"
    assert "tokens/s" in lines[1]
    assert lines[1].endswith("left")
    assert lines[-1].startswith("step 3: loss ")
    assert run_log.hours(3725) == "1:02:05"
    assert engine.Settings is Settings
