"""An XLNet as one file of ours, and the released weights' names turned into ours."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from plm.train import load_checkpoint, save_checkpoint
from plm.wordpiece import WordPiece
from plm.xlnet import XLNet, XLNetConfig


def save_xlnet(path: str | Path, model: XLNet, tokenizer: WordPiece, card: dict[str, Any], half: bool = True) -> Path:
    """Write model, tokenizer and model card as one safetensors file; `half` stores float16."""
    if len(tokenizer) != model.config.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} pieces, the model {model.config.vocab_size}")
    config = {"xlnet": asdict(model.config), "tokenizer": tokenizer.config, "card": card}
    return save_checkpoint(path, model, config, half)


def load_xlnet(path: str | Path) -> tuple[XLNet, WordPiece, dict[str, Any]]:
    """Read (model in evaluation mode, tokenizer, model card) from a file of `save_xlnet`."""
    state, stored = load_checkpoint(path)
    if "xlnet" not in stored or "tokenizer" not in stored:
        raise ValueError(f"{path} was not written by plm.xlnet_files.save_xlnet")
    model = XLNet(XLNetConfig(**stored["xlnet"]))
    model.load_state_dict(state)
    return model.eval(), WordPiece(**stored["tokenizer"]), stored.get("card", {})


@torch.no_grad()
def from_transformers(theirs: nn.Module) -> XLNet:
    """Our model with the weights of an `XLNetLMHeadModel` of transformers, in evaluation mode; its memory is left out."""
    c: Any = theirs.config
    if c.attn_type != "bi" or c.bi_data or c.clamp_len > 0 or c.ff_activation != "gelu":
        raise ValueError("only attn_type='bi', bi_data=False, clamp_len <= 0 and ff_activation='gelu' are ours")
    config = XLNetConfig(
        vocab_size=c.vocab_size,
        d_model=c.d_model,
        n_heads=c.n_head,
        n_layers=c.n_layer,
        d_ff=c.d_inner,
        dropout=c.dropout,
        norm_eps=c.layer_norm_eps,
        pad_id=c.pad_token_id or 0,
    )
    model = XLNet(config)
    model.load_state_dict(our_state(dict(theirs.state_dict())))
    return model.eval()


PARTS = {
    "ff.layer_1": "feed_forward.widen",
    "ff.layer_2": "feed_forward.narrow",
    "ff.layer_norm": "around_feed_forward.norm",
    "rel_attn.layer_norm": "around_attention.norm",
    "rel_attn.r_w_bias": "attention.ask_content",
    "rel_attn.r_r_bias": "attention.ask_distance",
    "rel_attn.r_s_bias": "attention.ask_segment",
    "rel_attn.seg_embed": "attention.segments.weight",
}


def our_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of `XLNetLMHeadModel` in our names and shapes: no einsum, so each projection is one matrix."""
    top = "transformer."
    found = {
        "embedding.weight": state[top + "word_embedding.weight"],
        "start": state[top + "mask_emb"][0, 0],
        "bias": state["lm_loss.bias"],
    }
    for name, tensor in state.items():
        if not name.startswith(top + "layer."):
            continue
        number, part = name.removeprefix(top + "layer.").split(".", 1)
        if part.startswith("rel_attn.") and part[-2:] in (".q", ".k", ".v", ".r", ".o"):
            matrix = tensor.flatten(1)  # (d_model, n_heads * d_head)
            part = f"attention.w_{part[-1]}.weight"
            tensor = matrix if part == "attention.w_o.weight" else matrix.T
        elif part.endswith("_bias"):
            tensor = tensor.flatten()
        elif part.endswith("seg_embed"):
            tensor = tensor.flatten(1)  # (2, d_model)
        for old, new in PARTS.items():
            part = part.replace(old, new)
        found[f"layers.{number}.{part}"] = tensor.contiguous()
    return found
