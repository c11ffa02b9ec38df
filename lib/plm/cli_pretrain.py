"""`plm pretrain`: from a text and a few settings to a task for `plm.pretrain`."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from plm import corpus
from plm.bert import BertConfig, BertForPretraining
from plm.cli_options import CommandError, make_folder, options
from plm.corpus import Packing, pack
from plm.corpus_source import Source
from plm.elmo import BiLM, BiLMConfig, save_bilm
from plm.fast_tokenizers import ByteBPE, fast_words, train_wordpiece, train_words
from plm.gpt import GPT, GPTConfig
from plm.masking import LEAST, Documents, MaskingConfig, PretrainingBatches
from plm.model_files import save_bert, save_gpt
from plm.pretrain import Settings, Task, pretrain
from plm.pretrain_tasks import ElmoTask, GPTTask, ShardedBertTask
from plm.run_files import only_one_run
from plm.run_folder import tokenizer_of, write_config
from plm.run_log import read_log
from plm.train import seed_everything
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.wordpiece import SPECIALS, WordPiece

Echo = Callable[[str], None]
TOKENIZER_CHARACTERS = 50_000_000  # a tokenizer is learnt from the beginning of the text


@dataclass(frozen=True)
class DataOptions:
    """What is read, and how it is cut."""

    text: str | None = None  # what to learn from: a file, a folder, a pattern such as 'data/*.txt', or hub:owner/name
    out: str | None = None  # the folder of the run; the same command with the same folder goes on
    column: str = "text"  # where the text stands in JSON lines, CSV and Parquet files
    boundary: str = "blank"  # what parts documents in plain text: a "blank" line, every "line", or only the "file"
    hub_config: str | None = None  # the configuration of a data set of the hub
    split: str = "train"  # the split of a data set of the hub
    documents: int | None = None  # read only so many documents
    hold_out: float = 0.01  # share of the text that is kept for evaluation: its end
    vocab_size: int = 8000  # tokens in the vocabulary, which is learnt from the text
    length: int = 128  # tokens in a row
    batch_size: int = 16  # rows that go through the model at one time: a micro-batch


@dataclass(frozen=True)
class BertOptions:
    """What only BERT wants to know."""

    lowercase: bool = True  # lower case and no accents
    characters: bool = False  # every character is a token, as for Chinese
    mask_rate: float = 0.15  # share of the tokens that are to be guessed
    vectors: bool = True  # start from word vectors learnt on the same text: else it learns only frequencies for long
    shard_tokens: int = 1_000_000  # tokens of text that are open at one time


@dataclass(frozen=True)
class ElmoOptions:
    """What only ELMo wants to know."""

    sampled: int = 1000  # words over which the softmax is estimated while training; 0: all


CONFIGS: dict[str, tuple[type, tuple[str, ...]]] = {  # and the fields that the text decides
    "elmo": (BiLMConfig, ("vocab_size", "characters", "start_id", "end_id")),
    "gpt": (GPTConfig, ("vocab_size", "n_positions", "n_ids")),
    "bert": (BertConfig, ("vocab_size", "n_positions", "n_segments", "pad_id", "causal")),
}
EXTRA: dict[str, list[type]] = {"elmo": [ElmoOptions], "gpt": [], "bert": [BertOptions]}
# The smallest values that make sense: 256 bytes and an end mark, the special tokens and a word, two passages in a row.
SMALLEST = {
    "gpt": {"vocab_size": 257, "length": 1, "batch_size": 1},
    "elmo": {"vocab_size": len(LANGUAGE_MODEL_SPECIALS) + 1, "length": 2, "batch_size": 1, "sampled": 0},
    "bert": {"vocab_size": len(SPECIALS) + 1, "length": 2 * LEAST + 3, "batch_size": 1, "shard_tokens": 1},
}


def groups(kind: str) -> dict[str, dict[str, tuple[type, Any, str]]]:
    """The options of `plm pretrain KIND` by group."""
    data = options(DataOptions)
    for extra in EXTRA[kind]:
        data |= options(extra)
    training = options(Settings)
    training["steps"] = (int, 5000, training["steps"][2])
    return {"the text": data, "the model": options(*CONFIGS[kind]), "the training": training}


def run(kind: str, values: dict[str, Any], echo: Echo) -> None:
    """Prepare everything and train. `values`: every option of `groups`."""
    for name, what in (("text", "a text to learn from"), ("out", "a folder for the run")):
        if not values[name]:
            raise CommandError(f"pretrain {kind} needs {what}: --{name}")
    settings, folder = check(kind, values), Path(values["out"]).expanduser()
    make_folder(folder)
    main = os.environ.get("RANK", "0") == "0"
    say: Echo = echo if main else lambda line: None
    card = {"text": values["text"], "licence": "that of the text, as far as it has one"}
    with only_one_run(folder, main):
        task = BUILDERS[kind](values, folder, card, say)
        n = sum(p.numel() for p in task.model.parameters())
        say(f"{kind}: {n:,} parameters, {settings.steps:,} steps, in {folder}")
        progress = pretrain(task, folder, settings, say, held=True)
        if main:
            write_config(folder, kind, values)
        if progress.step < settings.steps:
            say(f"stopped after step {progress.step}; the same command goes on from there")
            return
        if main:
            minutes, log = round(progress.cpu_seconds / 60, 1), folder / "eval.csv"
            rows = read_log(log) if log.exists() else []
            card |= {"steps": progress.step, "tokens": progress.tokens, "cpu_minutes": minutes}
            card["metrics"] = {k: round(v, 4) for row in rows[-1:] for k, v in row.items() if "seconds" not in k}
            task.save(folder / "model.safetensors")
    then = {"gpt": f"plm generate {folder}", "bert": f"plm fill-mask {folder} 'a text with [MASK]'"}
    say(f"finished; next: {then.get(kind, f'plm info {folder}')}")


def check(kind: str, values: dict[str, Any]) -> Settings:
    """What can be known to be wrong before the text is read, which may take long, is said now."""
    settings = Settings(**{name: values[name] for name in options(Settings)})
    for name, least in SMALLEST[kind].items():
        if values[name] < least:
            raise CommandError(f"{name} must be at least {least} for {kind}, not {values[name]}")
    if not 0 < values["hold_out"] < 1:
        raise CommandError(f"hold_out is a share of the text, above 0 and below 1, not {values['hold_out']}")
    if kind == "bert":
        MaskingConfig(values["mask_rate"])
    CONFIGS[kind][0](vocab_size=values["vocab_size"], **_model_values(kind, values))
    source = source_of(values)
    if source.hub is None:
        source.files()
        text, out = (Path(values[name]).expanduser().resolve() for name in ("text", "out"))
        if text == out:
            raise CommandError(f"{values['out']} is the text: give the run a folder of its own")
    if Path(values["out"]).expanduser().is_file():
        raise CommandError(f"{values['out']} is a file: --out names the folder of the run")
    return settings


def source_of(values: dict[str, Any]) -> Source:
    """Where the text is."""
    names = {"column": "column", "boundary": "boundary", "hub_config": "config", "split": "split"}
    chosen = {field: values[name] for name, field in names.items()}
    return Source(values["text"], documents=values["documents"], **chosen)


def _texts(source: Source) -> Iterator[str]:
    left, found = TOKENIZER_CHARACTERS, False
    for piece in source.pieces():
        if left <= 0:
            return
        left, found = left - len(piece.text), found or not piece.text.isspace()
        yield piece.text
    if not found:
        raise CommandError(f"{source.path} holds no text: it is empty, or nothing but white space")


def _model_values(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in options(*CONFIGS[kind]) if values[name] is not None}


def gpt_task(values: dict[str, Any], folder: Path, card: dict[str, Any], say: Echo) -> Task:
    """Bytes, packed rows of length + 1, GPT."""
    source, length = source_of(values), values["length"]

    def learn() -> str:
        return ByteBPE.train(_texts(source), values["vocab_size"]).config["json_text"]

    tokenizer = tokenizer_of(folder, "gpt", values, learn, lambda path: ByteBPE(path.read_text(encoding="utf-8")), say)
    blocks = pack(source, tokenizer.fast, Packing(length + 1, end_id=tokenizer.end_id), say)
    train, dev = blocks.split(values["hold_out"])
    seed_everything(values["seed"])
    model = GPT(GPTConfig(vocab_size=len(tokenizer), n_positions=length, **_model_values("gpt", values)))
    save = partial(save_gpt, model=model, tokenizer=tokenizer, card=card)
    return GPTTask(
        model,
        train,
        dev,
        values["batch_size"],
        save,
        values["seed"],
        blocks.facts["key"],
        dev_characters=dev.characters,
    )


def elmo_task(values: dict[str, Any], folder: Path, card: dict[str, Any], say: Echo) -> Task:
    """Words, packed rows of sentences, biLM. Its file holds the words and no card."""
    source = source_of(values)

    def learn() -> str:
        return _json(train_words(_texts(source), values["vocab_size"]))

    vocab = tokenizer_of(folder, "elmo", values, learn, Vocab.load, say)
    config = BiLMConfig(vocab_size=len(vocab), **_model_values("elmo", values))
    packing = Packing(values["length"], "sentence", config.start_id, config.end_id)
    blocks = pack(source, fast_words(vocab), packing, say)
    train, dev = blocks.split(values["hold_out"])
    some = train[list(range(min(len(train), 10_000)))]
    counts = torch.bincount(some.flatten(), minlength=len(vocab))
    seed_everything(values["seed"])
    model = BiLM(config).start_from_counts(counts)
    return ElmoTask(
        model, train, dev, values["batch_size"], partial(save_bilm, model=model, vocab=vocab), values["seed"],
        blocks.facts["key"], word_counts=counts, sampled=min(values["sampled"], len(vocab)),
    )  # fmt: skip


def bert_task(values: dict[str, Any], folder: Path, card: dict[str, Any], say: Echo) -> Task:
    """Pieces, documents of sentences in shards, BERT."""
    source, length = source_of(values), values["length"]
    shape = (values["vocab_size"], values["lowercase"], values["characters"])

    def learn() -> str:
        return _json(train_wordpiece(_texts(source), *shape))

    tokenizer = tokenizer_of(folder, "bert", values, learn, WordPiece.load, say)
    shards = corpus.documents(source, tokenizer.fast(), values["shard_tokens"], say)
    train, dev = shards.split(values["hold_out"])
    masking = MaskingConfig(values["mask_rate"])
    some = np.bincount(train[0].ids, minlength=len(tokenizer))
    seed_everything(values["seed"])
    config = BertConfig(vocab_size=len(tokenizer), n_positions=length, **_model_values("bert", values))
    model = BertForPretraining(config).start_from_counts(torch.from_numpy(some))
    if values["vectors"] and not (folder / "last.safetensors").exists():
        say("learning word vectors to start from")
        model.start_from_vectors(_vectors(train[0], len(tokenizer), config.d_model))
    make = partial(
        PretrainingBatches,
        vocabulary=tokenizer,
        masking=masking,
        tokens=values["batch_size"] * length,
        lengths=(length,),
    )
    held_out = make(dev, seed=values["seed"])
    save = partial(save_bert, model=model, tokenizer=tokenizer, card=card)
    return ShardedBertTask(
        model, make, train, [held_out.next() for _ in range(8)], save, values["seed"], shards.facts["key"]
    )


def _vectors(text: Documents, n: int, d: int) -> torch.Tensor:
    """word2vec vectors (n, d) of the tokens of a shard, by id."""
    from plm.word2vec import Word2VecConfig, train_word2vec

    sentences = [part.tolist() for part in np.split(text.ids, text.sentences[1:-1])]
    sentences.append(list(range(n)))  # every token once
    return train_word2vec(sentences, Word2VecConfig(d_emb=d, epochs=2, min_count=1)).vectors


def _json(tokenizer: Vocab | WordPiece) -> str:
    """What `save` would write."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return tokenizer.save(Path(folder) / "tokenizer.json").read_text(encoding="utf-8")


BUILDERS: dict[str, Callable[[dict[str, Any], Path, dict[str, Any], Echo], Any]] = {
    "elmo": elmo_task,
    "gpt": gpt_task,
    "bert": bert_task,
}
