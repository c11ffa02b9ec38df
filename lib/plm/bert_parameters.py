"""Where the parameters of a BERT are: 110 million, term by term."""

from plm.bert import NSP_NAMES, BertConfig


def count_parameters(config: BertConfig, heads: bool = False) -> dict[str, int]:
    """The parameters of Bert, or of BertForPretraining, term by term."""
    c = config
    terms = {
        "word table": c.vocab_size * c.d_model,
        "positions": c.n_positions * c.d_model,
        "segments": c.n_segments * c.d_model,
        "norm of the embedding": 2 * c.d_model,
        "attention matrices": c.n_layers * 4 * c.d_model**2,
        "attention biases": c.n_layers * 4 * c.d_model,
        "feed-forward matrices": c.n_layers * 2 * c.d_model * c.d_ff,
        "feed-forward biases": c.n_layers * (c.d_ff + c.d_model),
        "norms of the layers": c.n_layers * 4 * c.d_model + (2 * c.d_model if c.norm == "pre" else 0),
        "pooler": c.d_model**2 + c.d_model,
    }
    if heads:
        terms["MLM transform and norm"] = c.d_model**2 + 3 * c.d_model
        terms["MLM bias"] = c.vocab_size
        terms["NSP head"] = len(NSP_NAMES) * (c.d_model + 1)
    return terms
