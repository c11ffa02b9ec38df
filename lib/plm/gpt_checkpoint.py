"""A pretrained GPT of ours as one file: weights, config, tokenizer and model card."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from plm.bpe import BPE
from plm.gpt import GPT, GPTConfig
from plm.train import load_checkpoint, save_checkpoint


def save_gpt(path: str | Path, model: GPT, tokenizer: BPE, card: dict[str, Any], half: bool = True) -> Path:
    """Write model, tokenizer and model card as one safetensors file; `half` stores float16."""
    if len(tokenizer) != model.config.n_ids:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the model {model.config.n_ids}")
    return save_checkpoint(
        path, model, {"gpt": asdict(model.config), "tokenizer": tokenizer.config, "card": card}, half
    )


def load_gpt(path: str | Path) -> tuple[GPT, BPE, dict[str, Any]]:
    """Read (model in evaluation mode, tokenizer, model card) from a file of `save_gpt`."""
    state, stored = load_checkpoint(path)
    if "gpt" not in stored or "tokenizer" not in stored:
        raise ValueError(f"{path} was not written by plm.gpt_checkpoint.save_gpt; plm.hub reads the folders of the hub")
    model = GPT(GPTConfig(**stored["gpt"]))
    model.load_state_dict(state)
    return model.eval(), BPE(**stored["tokenizer"]), stored.get("card", {})
