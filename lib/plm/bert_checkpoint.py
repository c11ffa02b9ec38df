"""A pretrained BERT of ours as one file: weights, config, tokenizer and model card."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from plm.bert import BertConfig, BertForPretraining
from plm.train import load_checkpoint, save_checkpoint
from plm.wordpiece import WordPiece


def save_bert(
    path: str | Path, model: BertForPretraining, tokenizer: WordPiece, card: dict[str, Any], half: bool = True
) -> Path:
    """Write model, tokenizer and model card as one safetensors file; `half` stores float16."""
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} pieces, the model {model.config.vocab_size}")
    return save_checkpoint(
        path, model, {"bert": asdict(model.config), "tokenizer": tokenizer.config, "card": card}, half
    )


def load_bert(path: str | Path) -> tuple[BertForPretraining, WordPiece, dict[str, Any]]:
    """Read (model in evaluation mode, tokenizer, model card) from a file of `save_bert`."""
    state, stored = load_checkpoint(path)
    if "bert" not in stored or "tokenizer" not in stored:
        raise ValueError(f"{path} was not written by plm.bert.save_bert; plm.hub reads the folders of the hub")
    model = BertForPretraining(BertConfig(**stored["bert"]))
    model.load_state_dict(state)
    return model.eval(), WordPiece(**stored["tokenizer"]), stored.get("card", {})
