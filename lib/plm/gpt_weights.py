"""Weights of OpenAI's GPT-1 and GPT-2, as transformers names them, into our GPT and back to its names.

Both store the four matrices of attention as one `c_attn` (query, key and value side by side) and `c_proj`, and all matrices
transposed: (in, out), where nn.Linear has (out, in).
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from plm.gpt import GPT, GPTConfig

# Names of the layer's parts: ours, GPT-1's and GPT-2's. In GPT-1 (post-norm) ln_1 stands behind the attention.
LAYER = {
    "attention.w_o": "attn.c_proj",
    "feed_forward.widen": "mlp.c_fc",
    "feed_forward.narrow": "mlp.c_proj",
    "around_attention.norm": "ln_1",
    "around_feed_forward.norm": "ln_2",
}
TABLES = {
    "gpt1": {"tokens.weight": "tokens_embed.weight", "positions.weight": "positions_embed.weight"},
    "gpt2": {
        "tokens.weight": "wte.weight",
        "positions.weight": "wpe.weight",
        "blocks.norm.weight": "ln_f.weight",
        "blocks.norm.bias": "ln_f.bias",
    },
}


def from_transformers(theirs: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Their parameters (or gradients) under our names and in our shapes. kind: "gpt1" or "gpt2".

    A prefix `transformer.` and the heads on top are dropped; a missing or a foreign name is an error.
    """
    if kind not in TABLES:
        raise ValueError(f"kind is one of {', '.join(TABLES)}, not {kind!r}")
    state = {name.removeprefix("transformer."): t for name, t in theirs.items()}
    # attn.bias and attn.masked_bias are the causal mask, stored by old files; the head is the table of tokens.
    skip = (".attn.bias", ".attn.masked_bias", "position_ids")
    state = {n: t for n, t in state.items() if not n.endswith(skip) and n.split(".")[0] not in ("lm_head", "mc_head")}
    layers = sorted({int(name.split(".")[1]) for name in state if name.startswith("h.")})
    ours: dict[str, Tensor] = {}
    try:
        for name, other in TABLES[kind].items():
            ours[name] = state.pop(other)
        for i in layers:
            for end in ("weight", "bias"):
                packed = state.pop(f"h.{i}.attn.c_attn.{end}")
                for letter, part in zip("qkv", packed.chunk(3, dim=-1)):
                    ours[f"blocks.layers.{i}.attention.w_{letter}.{end}"] = _turn(part)
                for name, other in LAYER.items():
                    tensor = state.pop(f"h.{i}.{other}.{end}")
                    ours[f"blocks.layers.{i}.{name}.{end}"] = _turn(tensor)
    except KeyError as missing:
        raise ValueError(f"this is no state dict of {kind}: it has no {missing}; it has {_some(theirs)}") from None
    if state or not layers:
        raise ValueError(f"this is no state dict of {kind}: {_some(state) or 'no layers'} has no place in it")
    return {name: tensor.contiguous() for name, tensor in ours.items()}


def to_transformers(model: GPT) -> dict[str, Tensor]:
    """The weights of `model` under the names of transformers' GPT2LMHeadModel (pre-norm) or OpenAIGPTLMHeadModel."""
    state, kind = model.state_dict(), "gpt2" if model.config.norm == "pre" else "gpt1"
    theirs = {f"transformer.{other}": state[name] for name, other in TABLES[kind].items()}
    for i in range(model.config.n_layers):
        prefix = f"blocks.layers.{i}"
        for end in ("weight", "bias"):
            parts = [state[f"{prefix}.attention.w_{letter}.{end}"] for letter in "qkv"]
            theirs[f"transformer.h.{i}.attn.c_attn.{end}"] = _turn(torch.cat(parts)).contiguous()
            for name, other in LAYER.items():
                theirs[f"transformer.h.{i}.{other}.{end}"] = _turn(state[f"{prefix}.{name}.{end}"]).contiguous()
    return theirs | {"lm_head.weight": state["tokens.weight"]}


def _load(theirs: Mapping[str, Tensor], kind: str, n_heads: int, norm: str) -> GPT:
    state = from_transformers(theirs, kind)
    tokens, positions = state["tokens.weight"], state["positions.weight"]
    config = GPTConfig(
        vocab_size=tokens.shape[0],
        d_model=tokens.shape[1],
        n_positions=positions.shape[0],
        n_heads=n_heads,
        n_layers=sum(name.endswith("w_q.bias") for name in state),
        d_ff=state["blocks.layers.0.feed_forward.widen.bias"].shape[0],
        norm=norm,
        activation="gelu_tanh",
    )
    model = GPT(config)
    model.load_state_dict(state)
    return model.eval()


def load_gpt1(theirs: Mapping[str, Tensor], n_heads: int = 12) -> GPT:
    """A GPT in evaluation mode from a state dict of transformers' OpenAIGPTModel or OpenAIGPTLMHeadModel.

    All sizes are read from the shapes, except the number of heads, which leaves no trace in them.
    """
    return _load(theirs, "gpt1", n_heads, "post")


def load_gpt2(theirs: Mapping[str, Tensor], n_heads: int = 12) -> GPT:
    """A GPT in evaluation mode from a state dict of transformers' GPT2Model or GPT2LMHeadModel. See `load_gpt1`."""
    return _load(theirs, "gpt2", n_heads, "pre")


def _turn(tensor: Tensor) -> Tensor:
    """Matrices turned; biases have nothing to turn."""
    return tensor.T if tensor.ndim == 2 else tensor


def _some(state: Mapping[str, Tensor]) -> str:
    return ", ".join(list(state)[:4])
