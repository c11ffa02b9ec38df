"""What must hold for each language model alike: half precision, dropout, one shared table, weight decay, a single token."""

import copy
import pickle

import pytest
import torch
from torch import nn

from plm.attention import causal_mask
from plm.bert import Bert, BertConfig, BertForPretraining
from plm.elmo import BiLM, BiLMConfig
from plm.encoder_decoder import EncoderDecoder
from plm.gpt import GPT, GPTConfig
from plm.recurrent import RecurrentLM, RecurrentLMConfig
from plm.run_settings import decay_groups
from plm.transformer import Transformer, TransformerConfig
from plm.xlnet import XLNet, XLNetConfig

V = 13
SIZES = {"d_model": 8, "n_heads": 2, "n_layers": 2}
IDS = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])


def bert(dropout=0.0):
    return BertForPretraining(BertConfig(vocab_size=V, n_positions=5, dropout=dropout, **SIZES))


def gpt(dropout=0.0):
    return GPT(GPTConfig(vocab_size=V, n_positions=5, dropout=dropout, **SIZES))


def both_halves(dropout=0.0):
    reader = Bert(BertConfig(vocab_size=V, n_positions=5, dropout=dropout, **SIZES))
    return EncoderDecoder(reader, gpt(dropout), dropout)


def translator(dropout=0.0):
    return Transformer(TransformerConfig(source_vocab=V, target_vocab=V, dropout=dropout, d_ff=16, max_len=5, **SIZES))


MODELS = {
    "gpt": gpt,
    "bert": bert,
    "xlnet": lambda dropout=0.0: XLNet(XLNetConfig(vocab_size=V, dropout=dropout, **SIZES)),
    "elmo": lambda dropout=0.0: BiLM(BiLMConfig(V, 8, 16, dropout=dropout, tied=True)),
    "lstm": lambda dropout=0.0: RecurrentLM(RecurrentLMConfig(V, "lstm", 8, 8, dropout=dropout)),
    "transformer": translator,
    "both halves": both_halves,
}
LENGTHS = torch.tensor([5, 3])


def scores(model, ids=IDS):
    """Logits of a model for padded rows, flat; only those of true tokens."""
    real, lengths = ids != 0, LENGTHS.clamp(max=ids.shape[1])[: len(ids)]
    if isinstance(model, GPT):
        return model(ids, real)[real].flatten()
    if isinstance(model, BertForPretraining):
        return model(ids, mask=real).mlm.view(*ids.shape, V)[real].flatten()
    if isinstance(model, XLNet):
        return model.score(model(ids).content[-1])[real].flatten()
    if isinstance(model, BiLM):
        return torch.cat([logits[real].flatten() for logits in model(ids, lengths)])
    if isinstance(model, RecurrentLM):
        return model(ids, lengths=lengths)[0][real].flatten()
    return model(ids, ids)[real].flatten()


@pytest.fixture(params=MODELS)
def make(request):
    torch.manual_seed(0)
    return MODELS[request.param]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a21_half_precision_with_padding_and_large_numbers(make, dtype):
    model = make().eval()
    wanted = scores(model)
    half = copy.deepcopy(model).to(dtype)
    assert scores(half).dtype == dtype
    torch.testing.assert_close(scores(half).float(), wanted, atol=0.1, rtol=0.1)
    with torch.no_grad():
        for name, p in half.named_parameters():
            if p.ndim > 1 and "norm" not in name:
                p.mul_(20)
    assert bool(torch.isfinite(scores(half)).all())


def test_a22_there_is_one_table_through_copies_files_and_updates(make):
    model = make()
    twins = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), make().to("cpu"))
    twins[2].load_state_dict(copy.deepcopy(model.state_dict()))
    for twin in (model, *twins):
        groups = decay_groups(twin, 0.1)
        optimizer = torch.optim.SGD(groups, lr=0.1)
        n = sum(p.numel() for p in twin.parameters())
        assert n == sum(p.numel() for group in optimizer.param_groups for p in group["params"])
        tables = [p for p in twin.parameters() if p.shape == (V, 8)]
        source = isinstance(twin, Transformer | EncoderDecoder)  # it has a table of its own
        assert len(tables) == 1 + source
        before = tables[-1].detach().clone()
        scores(twin).square().sum().backward()
        optimizer.step()
        assert not torch.equal(before, tables[-1])
        with (
            torch.no_grad()
        ):  # the table of the output is that of the input: a word without a vector has its bias for a score
            tables[-1][4] = 0
        bias = [p[4] for p in twin.parameters() if p.shape == (V,)] or [torch.tensor(0.0)]
        twin.eval()
        assert set(scores(twin).view(-1, V)[:, 4].tolist()) == {float(bias[-1])}


def test_a24_dropout_acts_in_training_and_only_there(make):
    model = make(dropout=0.5).train()
    assert not torch.equal(scores(model), scores(model))
    model.eval()
    assert torch.equal(scores(model), scores(model))
    calm = make(dropout=0.0).train()
    assert torch.equal(scores(calm), scores(calm))


def test_k05_a_single_token_is_enough(make):
    model = make().eval()
    assert bool(torch.isfinite(scores(model, torch.tensor([[5]]))).all())


def test_d08_matrices_decay_and_each_parameter_stands_in_one_group(make):
    model = make()
    matrices, rest = (group["params"] for group in decay_groups(model, 0.1))
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    assert sorted(map(id, [*matrices, *rest])) == sorted(map(id, model.parameters()))
    assert all(p.ndim > 1 and id(p) not in tables for p in matrices)
    assert all(p.ndim == 1 or id(p) in tables for p in rest)


def test_a21_no_fill_value_is_left_where_two_masks_meet():
    """Padding in front of a text: its first row may look nowhere, in either mask or in both."""
    from plm.attention import MultiHeadAttention, padding_mask

    ids = torch.tensor([[0, 0, 5, 6]])
    for dtype in (torch.float16, torch.bfloat16):
        layer = MultiHeadAttention(8, 2).to(dtype)
        for kept in (True, False):
            layer.keep_weights = kept
            x = torch.randn(1, 4, 8).to(dtype).requires_grad_()
            out = layer(x, mask=padding_mask(ids) & causal_mask(4))[0]
            out.sum().backward()
            assert bool(torch.isfinite(out).all())
            assert bool(torch.isfinite(x.grad).all())
