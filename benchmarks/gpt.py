"""Our GPT's training step beside nanoGPT's design, and its writing beside transformers' GPT-2, in CPU seconds.

    python benchmarks/gpt.py

One thread. Each line is a ratio of medians over alternating rounds of both, after one round that does not count. The
reference is written from nanoGPT's published design (github.com/karpathy/nanoGPT: one matrix for query, key and value, torch's
fused attention, GELU, pre-norm, tied head, F.cross_entropy on all logits); both get the same weights, and the losses must agree.
"""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from plm.gpt import GPT, GPTConfig
from plm.gpt_weights import to_transformers
from plm.sampling import generate

ROUNDS = 7


def medians(first: Callable[[], object], second: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float]:
    """Median CPU seconds of the two, run by turns."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for r in range(rounds + 1):
        for which in (0, 1) if r % 2 else (1, 0):
            start = time.process_time()
            (first, second)[which]()
            seconds[which].append(time.process_time() - start)
    return statistics.median(seconds[0][1:]), statistics.median(seconds[1][1:])


class NanoBlock(nn.Module):
    """Pre-norm attention and feed-forward, as in nanoGPT."""

    def __init__(self, d: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.attn_proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.c_fc, self.mlp_proj = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        B, T, d = x.shape
        q, k, v = (
            part.view(B, T, self.n_heads, d // self.n_heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(d, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).contiguous().view(B, T, d))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class NanoGPT(nn.Module):
    """The reference. `load` copies the weights of ours."""

    def __init__(self, config: GPTConfig):
        super().__init__()
        d = config.d_model
        self.wte, self.wpe = nn.Embedding(config.vocab_size, d), nn.Embedding(config.n_positions, d)
        self.h = nn.ModuleList(NanoBlock(d, config.n_heads) for _ in range(config.n_layers))
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, config.vocab_size, bias=False)
        self.lm_head.weight = self.wte.weight

    def loss(self, ids: Tensor) -> Tensor:
        x = self.wte(ids[:, :-1]) + self.wpe(torch.arange(ids.shape[1] - 1))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))

    def load(self, ours: GPT) -> "NanoGPT":
        state = {}
        for name, tensor in to_transformers(ours).items():
            name = (
                name.removeprefix("transformer.").replace("attn.c_attn", "c_attn").replace("attn.c_proj", "attn_proj")
            )
            name = name.replace("mlp.c_fc", "c_fc").replace("mlp.c_proj", "mlp_proj")
            matrix = tensor.ndim == 2 and name.startswith("h.")
            state[name] = tensor.T.contiguous() if matrix else tensor
        self.load_state_dict(state)
        return self


def stepper(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def training() -> None:
    print("training step, nanoGPT's design / ours (above 1: ours is faster)")
    for d, n_layers, n_heads, B, T in ((128, 4, 4, 16, 128), (192, 4, 4, 16, 128), (256, 4, 8, 8, 256)):
        torch.manual_seed(0)
        config = GPTConfig(vocab_size=6000, n_positions=T, d_model=d, n_heads=n_heads, n_layers=n_layers, dropout=0.0)
        ours = GPT(config)
        theirs = NanoGPT(config).load(ours)
        ids = torch.randint(6000, (B, T + 1))

        def our_loss(ours: GPT = ours, ids: Tensor = ids) -> Tensor:
            total, n = ours.loss({"ids": ids})
            return total / n

        torch.testing.assert_close(our_loss(), theirs.loss(ids))
        a, b = medians(stepper(theirs, lambda: theirs.loss(ids)), stepper(ours, our_loss))  # noqa: B023
        print(f"  d_model={d} B={B} T={T}: {1e3 * a:6.0f} ms / {1e3 * b:6.0f} ms = {a / b:.2f}", flush=True)


def writing() -> None:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=6000, n_positions=256, d_model=192, n_heads=4, n_layers=4, dropout=0.0, init_std=0.1)
    ours = GPT(config).eval()
    theirs = GPT2LMHeadModel(
        GPT2Config(vocab_size=6000, n_positions=256, n_embd=192, n_head=4, n_layer=4, bos_token_id=0, eos_token_id=0)
    ).eval()
    theirs.load_state_dict(to_transformers(ours))
    for B in (1, 8):
        write_beside(ours, theirs, torch.randint(6000, (B, 16)))


def write_beside(ours: GPT, theirs: GPT2LMHeadModel, prompt: Tensor, n_new: int = 100) -> None:
    def write(cached: bool = True) -> list[list[int]]:
        return generate(ours, prompt.tolist(), n_new, temperature=0, cached=cached)

    def they_write() -> Tensor:
        mask, more = torch.ones_like(prompt), {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        return theirs.generate(prompt, attention_mask=mask, max_new_tokens=n_new, **more)

    assert write() == they_write().tolist()
    what = f"writing {n_new} tokens, B={len(prompt)},"
    a, b = medians(lambda: write(cached=False), write, 3)
    print(f"{what} without / with a cache: {1e3 * a:6.0f} ms / {1e3 * b:6.0f} ms = {a / b:.1f}", flush=True)
    a, b = medians(they_write, write, 5)
    print(f"{what} transformers / ours:    {1e3 * a:6.0f} ms / {1e3 * b:6.0f} ms = {a / b:.2f}", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    training()
    writing()


if __name__ == "__main__":
    main()
