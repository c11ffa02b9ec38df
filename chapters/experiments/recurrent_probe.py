"""Ask trained language models how far back they hear.

    python chapters/experiments/recurrent_probe.py rnn-1m-carried-0 …

Takes the weights that recurrent_lm.py left in the cache folder (and, always, the
shipped NNLM), and writes or replaces their entries in results/recurrent_probe.json.
About a minute of one core per model.

"influence": how much the prediction after 25 words changes (Kullback-Leibler
divergence in nats, mean over test sentences) when the word d places back is
replaced by another, drawn by frequency; the same sentences and draws for all.

"hobby": My father took me to see people play FOOTBALL when I was small. (0 to 8
other sentences.) Today I am going to play ___. How much likelier is "football" than
if the first sentence had named another hobby? Log ratio, mean over the six hobbies
and the five others. The state is carried through the sentences; "near" is the same
ratio within one sentence, as in "I love FOOTBALL and I want to play ___".
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plm.data import language_model_text
from plm.files import cache_dir, read_json, write_atomically
from plm.nnlm import NNLM, NNLMConfig
from plm.recurrent import RecurrentLM, RecurrentLMConfig, text_stream
from plm.train import load_checkpoint
from plm.vocab import LANGUAGE_MODEL_SPECIALS, Vocab

CHAPTERS = Path(__file__).parent.parent
DISTANCES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
BEFORE, N_SENTENCES = 25, 400
HOBBIES = ("football", "baseball", "basketball", "chess", "piano", "guitar")
OPENING = "my father took me to see people play {} when i was small ."
FILLERS = (
    "we were very happy in those days .",
    "he worked in an office and came home late .",
    "my mother did not like the noise at all .",
    "then we moved to another town .",
    "i went to school there and made some friends .",
    "the years went by .",
    "he is an old man now .",
    "but one thing has not changed .",
)
QUESTION = "today i am going to play"
NEAR = (
    "i play {} and i play",
    "i love {} and i want to play",
    "i love to watch {} and today i am going to play",
)


def next_word(model, sentences: list[list[int]]) -> Tensor:
    """log P(next word | the text so far) after several sentences, the last of which
    is unfinished: (V,) float64."""
    if isinstance(model, NNLM):  # its window ends at the start of the sentence
        return torch.from_numpy(model.distribution(sentences[-1])).log()
    inputs, _ = text_stream(sentences)
    with torch.no_grad():
        h, _ = model.hidden(inputs[None])
        return model.output(h[0, -1]).double().log_softmax(-1)


def influence(model, test: list, draw: Tensor) -> list[float]:
    rows = [s[: BEFORE + 1] for s in test if len(s) > BEFORE][:N_SENTENCES]
    found = np.zeros((len(rows), len(DISTANCES)))
    for i, row in enumerate(rows):
        p = next_word(model, [row[:BEFORE]])
        for j, d in enumerate(DISTANCES):
            other = list(row[:BEFORE])
            other[BEFORE - d] = int(draw[i, j])
            q = next_word(model, [other])
            found[i, j] = float((p.exp() * (p - q)).sum())
    return [round(float(v), 7) for v in found.mean(0)]


def hobby(model, vocab: Vocab) -> dict:
    def ask(template: str, n_fillers: int | None) -> tuple[float, int]:
        logs = np.zeros((len(HOBBIES), len(HOBBIES)))  # named, then asked for
        for i, named in enumerate(HOBBIES):
            text = [template.format(named)]
            if n_fillers is not None:
                text += [*FILLERS[:n_fillers], QUESTION]
            sentences = [vocab.encode(s.split()) for s in text]
            logs[i] = next_word(model, sentences)[vocab.encode(HOBBIES)].numpy()
        others = (logs.sum(0) - logs.diagonal()) / (len(HOBBIES) - 1)
        n_words = sum(len(s.split()) for s in text)
        at = text[0].split().index(HOBBIES[-1])
        return float((logs.diagonal() - others).mean()), n_words - at

    near = [ask(template, None) for template in NEAR]
    result = {
        "near_words": [distance for _, distance in near],
        "near_log_ratio": [round(ratio, 4) for ratio, _ in near],
        "words": [],
        "log_ratio": [],
    }
    for n in range(len(FILLERS) + 1):
        ratio, distance = ask(OPENING, n)
        result["words"].append(distance)
        result["log_ratio"].append(round(ratio, 4))
    return result


def main() -> None:
    torch.set_num_threads(1)
    text = language_model_text(1_000_000)
    words = (w for s in text.train for w in s)
    vocab = Vocab.build(words, 10_000, specials=LANGUAGE_MODEL_SPECIALS)
    assert all(hobby in vocab for hobby in HOBBIES)
    counts = np.bincount([i for s in text.train for i in vocab.encode(s)])
    draw = torch.multinomial(
        torch.from_numpy(counts).double(),
        N_SENTENCES * len(DISTANCES),
        replacement=True,
        generator=torch.Generator().manual_seed(0),
    ).view(N_SENTENCES, -1)
    test = [vocab.encode(s) for s in text.test]
    path = CHAPTERS / "results" / "recurrent_probe.json"
    result = {
        "command": "python chapters/experiments/recurrent_probe.py NAMES",
        "distances": DISTANCES,
        "hobbies": HOBBIES,
        "models": read_json(path)["models"] if path.exists() else {},
    }
    for name in ["nnlm", *sys.argv[1:]]:
        if name == "nnlm":
            state, config = load_checkpoint(
                CHAPTERS / "checkpoints/nnlm.safetensors"
            )
            model = NNLM(NNLMConfig(**config))
        else:
            file = cache_dir() / "runs" / f"{name}.safetensors"
            state, config = load_checkpoint(file)
            model = RecurrentLM(RecurrentLMConfig(**config))
        model.load_state_dict(state)
        model.eval()
        result["models"][name] = {
            "influence": influence(model, test, draw),
            "hobby": hobby(model, vocab),
        }
        print(name, json.dumps(result["models"][name]), flush=True)
        write_atomically(path, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
