"""plm.bert_data: texts as they are written, held-out reviews held out, and copies that may be broken."""

import numpy as np
import pytest

from plm import bert_data
from plm.bert_data import cached_documents, corpus, encode_documents, english, id_sentences, piece_counts, untokenise
from plm.masking import Documents
from plm.wordpiece import SPECIALS, WordPiece

TOKENIZER = WordPiece([*SPECIALS, "the", "film", "is", "good", ".", "##s"])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("it 's bad , do n't go", "it's bad , don't go"), ("they 're", "they're"), ("' s", "' s"), ("the '90s", "the '90s"),
     ("she 'd say 'so what '", "she'd say 'so what '")],
)  # fmt: skip
def test_contractions_are_joined(text, wanted):
    assert untokenise(text) == wanted


def test_documents_in_ids():
    found = encode_documents([["the film.", "films is good"], ["good."]], TOKENIZER)
    assert TOKENIZER.decode(found.ids.tolist()) == "the film . films is good good ."
    assert found.sentences.tolist() == [0, 3, 7, 9]
    assert found.documents.tolist() == [0, 7, 9]
    assert id_sentences(found)[0] == [5, 6, 9]
    assert id_sentences(found)[-1] == [8, 9]
    assert piece_counts(found, len(TOKENIZER)).tolist() == [0, 0, 0, 0, 0, 1, 2, 1, 2, 2, 1]


def test_a_broken_copy_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("PLM_CACHE", str(tmp_path))
    made = []

    def make():
        made.append(1)
        return Documents.build([[[5, 6], [7]]])

    first = cached_documents("text", "key", make)
    again = cached_documents("text", "key", make)
    assert len(made) == 1
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    (path,) = tmp_path.iterdir()
    for raw in (b"", path.read_bytes()[:40], b"PK\x03\x04 nothing"):
        path.write_bytes(raw)
        assert cached_documents("text", "key", make).ids.tolist() == [5, 6, 7]
    assert len(made) == 4
    cached_documents("text", "another key", make)
    assert len(made) == 5


def test_held_out_reviews_are_not_read():
    train = {" ".join(document) for document in english("train")}
    for part in ("dev", "test"):
        assert not train & {" ".join(document) for document in english(part)}
    assert len(train) == 18_832


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="'all'"):
        english("all")
    with pytest.raises(ValueError, match='"en" or "zh"'):
        corpus("fr")
    assert bert_data.N_WORDS == 5_000_000
