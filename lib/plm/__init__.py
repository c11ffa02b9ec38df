"""Pretrained language models, from one-hot vectors to BERT, built by hand."""

__version__ = "0.1.0"
