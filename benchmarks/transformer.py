"""Our Transformer beside torch's, decoding with and without a cache, and attention beside an LSTM, in CPU seconds.

    python benchmarks/transformer.py

One thread. Each line is a ratio of medians over alternating rounds of both, after one round that does not count.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from plm.attention import MultiHeadAttention, causal_mask
from plm.decode import greedy
from plm.layers import EncoderLayer, LayerConfig
from plm.transformer import Transformer, TransformerConfig

ROUNDS = 9


def medians(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Median CPU seconds of the two, run by turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for r in range(ROUNDS + 1):
        for which in (0, 1) if r % 2 else (1, 0):
            start = time.process_time()
            (first, second)[which]()
            seconds[which].append(time.process_time() - start)
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])


def training_step(layer: nn.Module, x: torch.Tensor, *args: object, **more: object) -> Callable[[], None]:
    def step() -> None:
        out = layer(x, *args, **more)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    return step


def encoder_layers() -> None:
    print("training step of an encoder layer, ours / nn.TransformerEncoderLayer (below 1: ours is faster)")
    for B, T, d in ((32, 32, 128), (8, 128, 128), (16, 64, 256)):
        for norm in ("pre", "post"):
            config = LayerConfig(d_model=d, n_heads=4, d_ff=4 * d, dropout=0.1, norm=norm)
            theirs = nn.TransformerEncoderLayer(d, 4, 4 * d, 0.1, batch_first=True, norm_first=norm == "pre")
            x = torch.randn(B, T, d, requires_grad=True)
            mask = causal_mask(T)
            ours = training_step(EncoderLayer(config), x, mask)
            a, b = medians(ours, training_step(theirs, x, src_mask=~mask))
            print(
                f"  B={B:3} T={T:4} d_model={d:4} {norm + '-norm':9}: {1e3 * a:7.2f} ms / {1e3 * b:7.2f} ms = {a / b:.2f}"
            )


def decoding() -> None:
    print("writing T words, one pass over the whole for each word / with a cache")
    torch.manual_seed(0)
    config = TransformerConfig(source_vocab=300, target_vocab=300, d_model=96, d_ff=384, max_len=256, dropout=0.0)
    model = Transformer(config).eval()
    with torch.no_grad():
        model.generator.bias[3] = -1e4  # no row ever ends
    source = torch.randint(4, 300, (16, 20))
    for T in (16, 64, 128):

        @torch.no_grad()
        def afresh(T: int = T) -> None:
            memory, mask, _ = model.encode(source)
            ids = torch.full((16, 1), 2)
            for _ in range(T):
                ids = torch.cat([ids, model.decode(ids, memory, mask).logits[:, -1:].argmax(-1)], 1)

        cached = lambda T=T: greedy(model, source, start_id=2, end_id=3, max_len=T)  # noqa: E731
        a, b = medians(afresh, cached)
        print(f"  T={T:4}: {1e3 * a:8.1f} ms / {1e3 * b:8.1f} ms = {a / b:.1f}")


def against_lstm() -> None:
    print("forward and backward over T words, nn.LSTM / multi-head attention (above 1: attention is faster)")
    for B, d in ((1, 512), (8, 128)):
        lstm, attention = nn.LSTM(d, d, batch_first=True), MultiHeadAttention(d, 4)
        for T in (16, 64, 256, 512):
            x = torch.randn(B, T, d, requires_grad=True)
            a, b = medians(training_step(lstm, x), training_step(attention, x))
            print(f"  B={B} d={d} T={T:4}: {1e3 * a:7.2f} ms / {1e3 * b:7.2f} ms = {a / b:.2f}")


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    encoder_layers()
    decoding()
    against_lstm()


if __name__ == "__main__":
    main()
