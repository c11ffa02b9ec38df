"""A pretrained GPT or BERT of ours as one safetensors file: weights, config, tokenizer and model card."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plm.bert import BertConfig, BertForPretraining
from plm.bpe import BPE
from plm.fast_tokenizers import ByteBPE
from plm.gpt import GPT, GPTConfig
from plm.train import load_checkpoint, save_checkpoint
from plm.wordpiece import WordPiece


def save_gpt(path: str | Path, model: GPT, tokenizer: BPE | ByteBPE, card: dict[str, Any], half: bool = True) -> Path:
    """Write model, tokenizer and model card; `half` stores float16."""
    return _save(path, "gpt", model, model.config.n_ids, tokenizer, card, half)


def load_gpt(path: str | Path) -> tuple[GPT, Any, dict[str, Any]]:
    """Read (model in evaluation mode, tokenizer, model card) from a file of `save_gpt`; the tokenizer is a BPE or a ByteBPE."""
    state, stored = _load(path, "gpt")
    with belonging_together(path):
        model = GPT(GPTConfig(**stored["gpt"]))
        model.load_state_dict(state)
        tokenizer = gpt_tokenizer(stored["tokenizer"])
        check_ids(tokenizer, model.config.n_ids)
        return model.eval(), tokenizer, stored.get("card", {})


def gpt_tokenizer(config: dict[str, Any]) -> BPE | ByteBPE:
    """The tokenizer that a checkpoint describes."""
    return ByteBPE(**config) if "json_text" in config else BPE(**config)


def save_bert(
    path: str | Path, model: BertForPretraining, tokenizer: WordPiece, card: dict[str, Any], half: bool = True
) -> Path:
    """Write model, tokenizer and model card; `half` stores float16."""
    return _save(path, "bert", model, model.config.vocab_size, tokenizer, card, half)


def load_bert(path: str | Path) -> tuple[BertForPretraining, WordPiece, dict[str, Any]]:
    """Read (model in evaluation mode, tokenizer, model card) from a file of `save_bert`."""
    state, stored = _load(path, "bert")
    with belonging_together(path):
        model = BertForPretraining(BertConfig(**stored["bert"]))
        model.load_state_dict(state)
        tokenizer = WordPiece(**stored["tokenizer"])
        check_ids(tokenizer, model.config.vocab_size)
        return model.eval(), tokenizer, stored.get("card", {})


def check_ids(tokenizer: Any, n_ids: int) -> None:
    """ValueError if the tokenizer makes ids that the model does not have. A table may be rounded up: it may have more."""
    if len(tokenizer) > n_ids:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model only {n_ids}")


@contextmanager
def belonging_together(path: str | Path) -> Iterator[None]:
    """Whatever fails while a model is built from its file is one kind: ValueError with the file and the reason."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} is damaged or of another version: its sizes, weights and tokenizer make no model ({reason})"
        ) from error


def _save(
    path: str | Path, kind: str, model: Any, n_ids: int, tokenizer: Any, card: dict[str, Any], half: bool
) -> Path:
    if len(tokenizer) != n_ids:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model {n_ids}")
    stored = {kind: asdict(model.config), "tokenizer": tokenizer.config, "card": card}
    return save_checkpoint(path, model, stored, half)


def _load(path: str | Path, kind: str) -> tuple[dict, dict[str, Any]]:
    state, stored = load_checkpoint(path)
    if kind not in stored or "tokenizer" not in stored:
        raise ValueError(f"{path} was not written by plm.model_files.save_{kind}; plm.hub reads the folders of the hub")
    return state, stored
