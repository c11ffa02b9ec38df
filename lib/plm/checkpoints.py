"""Any model by its path: a checkpoint of ours, the folder of a run, or a model of the Hugging Face hub (`plm.hub`)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from plm.bert import BertConfig, BertForPretraining
from plm.bpe import BPE
from plm.elmo import BiLM, BiLMConfig, load_bilm
from plm.fast_tokenizers import ByteBPE
from plm.gpt import GPT, GPTConfig
from plm.model_files import belonging_together, check_ids, gpt_tokenizer, load_bert, load_gpt
from plm.tokenize import words
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab
from plm.wordpiece import WordPiece

NAMES = {"gpt": "GPT", "bert": "BERT", "elmo": "biLM (ELMo)", "classifier": "classifier", "unknown": "model"}


@dataclass(frozen=True)
class Loaded:
    """A pretrained model ready for use. tokenizer: BPE or ByteBPE (gpt), WordPiece (bert), Vocab (elmo)."""

    kind: str
    model: nn.Module
    tokenizer: Any
    card: dict[str, Any]


def find(path: str | Path) -> Path:
    """The model's file: `path` itself, or in the folder of a run the finished model, or else the best so far."""
    path = Path(path)
    if path.is_dir():
        for name in ("model.safetensors", "best.safetensors"):
            if (path / name).exists():
                return path / name
        raise FileNotFoundError(f"there is no model in {path} yet: a run writes one at its first evaluation")
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    return path


def kind_of(stored: dict[str, Any]) -> str:
    """Which model a config of `load_checkpoint` is of."""
    for key, kind in (("classifier", "classifier"), ("gpt", "gpt"), ("bert", "bert"), ("words", "elmo")):
        if key in stored:
            return kind
    return "unknown"


def load(path: str | Path) -> Loaded:
    """Read a pretrained model, in evaluation mode.

    path: a file of ours; the folder of a run; a folder as the hub keeps it, with config.json; hub:owner/name, which is fetched;
    or "minilm", the real weights that come with the package of chapter 11.
    """
    if str(path) == "minilm" or str(path).startswith("hub:") or (Path(path) / "config.json").exists():
        return _from_hub(str(path))
    path = find(path)
    kind = kind_of(load_checkpoint(path)[1])
    if kind == "gpt":
        return Loaded(kind, *load_gpt(path))
    if kind == "bert":
        return Loaded(kind, *load_bert(path))
    if kind == "elmo":
        with belonging_together(path):
            return Loaded(kind, *load_bilm(path), {})
    raise ValueError(f"{path} holds a {NAMES[kind]}, and what is wanted is a pretrained GPT, BERT or biLM")


def _from_hub(path: str) -> Loaded:
    from plm import hub

    if path == "minilm":
        return Loaded("bert", *hub.minilm(), {"weights": hub.MINILM})
    folder = hub.find_folder(path.removeprefix("hub:"), download=path.startswith("hub:"))
    if hub.read_config(folder)["model_type"] == "bert":
        model, tokenizer = hub.load_hub_bert(folder)
        if tokenizer is None:
            raise ValueError(f"{folder} has no vocab.txt, so nothing can be read with it")
        return Loaded("bert", model, tokenizer, {"weights": path})
    gpt, bytes_ = hub.load_hub_gpt(folder), ByteBPE.from_folder(folder)
    with belonging_together(folder):
        check_ids(bytes_, gpt.config.vocab_size)
    gpt.config = replace(gpt.config, n_ids=len(bytes_))  # what the table has beyond is never written
    return Loaded("gpt", gpt, bytes_, {"weights": path})


def rebuild(kind: str, config: dict[str, Any], tokenizer: dict[str, Any]) -> Loaded:
    """An untrained model with its tokenizer, from what a checkpoint says of them."""
    if kind == "bert":
        pieces, sizes = WordPiece(**tokenizer), BertConfig(**config)
        check_ids(pieces, sizes.vocab_size)
        return Loaded(kind, BertForPretraining(sizes), pieces, {})
    if kind == "gpt":
        tokens, shape = gpt_tokenizer(tokenizer), GPTConfig(**config)
        check_ids(tokens, shape.n_ids)
        return Loaded(kind, GPT(shape), tokens, {})
    if kind != "elmo":
        raise ValueError(f"there is no model of kind {kind!r}")
    if config.get("characters") is not None:
        raise ValueError("a biLM that reads characters cannot be rebuilt here: use one with a table of words")
    vocab = Vocab(tokenizer["words"][len(LANGUAGE_MODEL_SPECIALS) :], LANGUAGE_MODEL_SPECIALS)
    check_ids(vocab, config["vocab_size"])
    return Loaded(kind, BiLM(BiLMConfig(**config)), vocab, {})


def encode(kind: str, tokenizer: Any, text: str, longest: int) -> list[int]:
    """The ids of one text with the special tokens that the model saw while it learnt, at most `longest`."""
    if kind == "bert":
        return list(tokenizer.encode(text, max_len=longest).ids)
    if kind == "elmo":
        config = tokenizer.ids
        return [config["<s>"], *tokenizer.encode(words(text))[: longest - 2], config["</s>"]]
    if isinstance(tokenizer, BPE):  # learnt from words in lower case with a space behind each
        text = "".join(word + " " for word in words(text))
    return [tokenizer.start_id, *tokenizer.encode(text)[: longest - 2], tokenizer.end_id]
