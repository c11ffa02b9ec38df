"""plm.corpus: text of any size as rows and documents of ids, made once, in little memory, and never overlapping."""

import gzip
import json
import pickle
import random
import re

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from plm import corpus, corpus_source
from plm.corpus import Packing, documents, pack, split_sentences
from plm.corpus_source import LONGEST, Source, batches
from plm.masking import Pairs
from plm.pretrain_tasks import Shuffled

WORDS = ["<unk>", "<s>", "</s>", "a", "b", "c", "d", "e", "."]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLM_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer():
    """A word, a number; full stops stand apart."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return Source(str(path))


def texts(source):
    """Whole documents."""
    found, held = [], ""
    for piece in source.pieces():
        held += piece.text
        if piece.ends:
            found.append(held)
            held = ""
    assert held == ""
    return found


def test_documents_of_plain_text_end_at_empty_lines_at_each_line_or_at_the_end(tmp_path):
    text = "a\nb\n\nc\n\n\nd"
    path = tmp_path / "x.txt"
    write(path, text)
    assert texts(Source(str(path))) == ["a\nb", "c", "d"]
    assert texts(Source(str(path), boundary="line")) == ["a", "b", "c", "d"]
    assert texts(Source(str(path), boundary="file")) == [text]
    assert texts(Source(str(path), documents=2)) == ["a\nb", "c"]


def test_other_formats_folders_patterns_and_compression(tmp_path):
    rows = [{"text": "a b\n\nc", "n": 1}, {"text": "d", "n": 2}]
    (tmp_path / "1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["e", None, "a"]}), tmp_path / "2.parquet")
    with gzip.open(tmp_path / "3.txt.gz", "wt") as file:
        file.write("b\n\nc\n")
    (tmp_path / "note.md").write_text("not text of ours")
    assert texts(Source(str(tmp_path / "1.jsonl"))) == ["a b\n\nc", "d"]
    assert texts(Source(str(tmp_path))) == ["a b\n\nc", "d", "e", "a", "b", "c"]
    assert texts(Source(str(tmp_path / "*.parquet"))) == ["e", "a"]
    (tmp_path / "4.csv").write_text("title,body\nx,a b\n")
    assert texts(Source(str(tmp_path / "4.csv"), column="body")) == ["a b"]


def test_a_data_set_as_the_hub_has_it(tmp_path, tokenizer):
    """A folder takes the place of a name, so that no network is needed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for part, words in (("train", ["a b c", "d e"]), ("test", ["e e e e"])):
        pq.write_table(pa.table({"body": words}), tmp_path / f"{part}-00000-of-00001.parquet")
    source = Source(f"hub:{tmp_path}", column="body")
    assert texts(source) == ["a b c", "d e"]
    assert texts(Source(f"hub:{tmp_path}", column="body", split="test", documents=1)) == ["e e e e"]
    assert pack(source, tokenizer, Packing(5))[[0]].tolist() == [[3, 4, 5, 6, 7]]
    with pytest.raises(ValueError, match="no column 'text'; it has body"):
        texts(Source(f"hub:{tmp_path}"))
    for bad in (Source(f"hub:{tmp_path}/absent"), Source(f"hub:{tmp_path}", split="dev", column="body")):
        with pytest.raises(ValueError, match=r"hub:.* cannot be opened"):
            texts(bad)


def test_a_long_line_comes_in_pieces_and_nothing_is_lost(tmp_path):
    line = "word " * (LONGEST // 2)
    for boundary in ("blank", "line", "file"):
        path = tmp_path / "x.txt"
        write(path, f"{line}\nend")
        pieces = list(Source(str(path), boundary=boundary).pieces())
        assert max(len(p.text) for p in pieces) <= LONGEST
        whole = "".join(p.text + ("\n" if p.ends else "") for p in pieces)
        assert whole.rstrip("\n") == f"{line}\nend"
    assert [len(part) for part in batches(pieces, 150_000)] == [2, 1]


@pytest.mark.parametrize("boundary", corpus_source.BOUNDARIES)
def test_a_file_that_is_one_line_is_read_part_by_part(tmp_path, monkeypatch, boundary):
    """However long a line is, nobody holds more than a part of it, and no letter is lost or moved."""
    monkeypatch.setattr(corpus_source, "LONGEST", 50)
    rng = random.Random(0)
    for _ in range(60):
        words = ["x" * rng.choice([1, 3, 49, 50, 51, 120]) for _ in range(rng.randrange(30))]
        lines = ["".join(w + rng.choice([" ", "  ", "\n", ""]) for w in words) or "y", "end", ""]
        source = write(tmp_path / "x.txt", "\n\n".join(lines))
        parts = list(corpus_source._lines(tmp_path / "x.txt"))
        assert "".join(parts) == "\n\n".join(lines)
        assert max(map(len, parts)) <= 50
        pieces = list(Source(source.path, boundary=boundary).pieces())
        assert max(len(piece.text) for piece in pieces) <= 51
        assert re.sub(r"\s+", "", "".join(p.text for p in pieces)) == re.sub(r"\s+", "", "".join(lines))
        assert sum(p.ends for p in pieces) == len(texts(Source(source.path, boundary=boundary)))
        letters = [re.sub(r"[ \n]+", " ", text).strip() for text in texts(Source(source.path, boundary="file"))]
        assert letters == [re.sub(r"[ \n]+", " ", " ".join(lines)).strip()]


def test_a_long_text_of_a_table_is_cut_in_one_walk(monkeypatch):
    monkeypatch.setattr(corpus_source, "LONGEST", 10)
    text = "ab cde fghijklmnopqrs t " * 3
    pieces = list(corpus_source._documents([text, "", "end"]))
    assert "".join(piece.text for piece in pieces) == text + "end"
    assert max(len(piece.text) for piece in pieces) <= 10
    assert [piece.text for piece in pieces if piece.ends] == [pieces[-2].text, "end"]


def test_line_ends_of_windows_and_marks_of_unicode(tmp_path):
    """A byte order mark is no letter; only line breaks part lines, and not every separator of Unicode."""
    for newline in ("\n", "\r\n", "\r"):
        lines = ["\ufeffa\u2028b", "c\x85\x0c\x1cd", "", " \t", "\0e", ""]
        (tmp_path / "x.txt").write_bytes(newline.join(lines).encode())
        assert texts(Source(str(tmp_path / "x.txt"))) == ["a\u2028b\nc\x85\x0c\x1cd", "\0e"]
    (tmp_path / "x.txt").write_bytes(b"\xef\xbb\xbf")
    assert texts(Source(str(tmp_path / "x.txt"))) == []


def test_words_such_as_na_and_numbers_are_text(tmp_path):
    (tmp_path / "x.csv").write_text('text,n\nNA,1\n1984,2\nnull,3\n"",4\n', encoding="utf-8-sig")
    assert texts(Source(str(tmp_path / "x.csv"))) == ["NA", "1984", "null"]
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert texts(Source(str(tmp_path / "empty.jsonl"))) == []


def test_which_files_are_meant(tmp_path):
    """Hidden ones and what a run has written are no text, brackets in a name are brackets, ** goes into folders."""
    for name in ("a.txt", "b[1].txt", "in/c.txt", "in/deep/d.txt", ".git/e.txt", "in/.f.txt", "runs/mine/g.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "runs" / "mine" / corpus_source.RUN_MARK).touch()
    names = ["a.txt", "b[1].txt", "in/c.txt", "in/deep/d.txt"]
    assert texts(Source(str(tmp_path))) == names
    assert texts(Source(str(tmp_path / "b[1].txt"))) == ["b[1].txt"]
    assert texts(Source(str(tmp_path / "in" / "**" / "*.txt"))) == names[2:]
    assert texts(Source(str(tmp_path / "runs" / "mine"))) == ["runs/mine/g.txt"]  # asked for by name


@pytest.mark.parametrize(
    ("name", "content", "change", "words"),
    [
        ("x.jsonl", b'{"body": "a"}', {}, "no column 'text'; it has body"),
        ("x.jsonl", b'{"text": 5}', {}, "holds int, not text"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\\ud800"}', {}, "cannot be read.*row 1"),
        ("x.txt", "caf\xe9".encode("latin-1"), {}, "x.txt is not UTF-8"),
        ("x.pdf", b"%PDF", {}, "x.pdf is none of .txt"),
        ("x.txt", b"a\nb\n" * 9 + b"caf\xe9", {}, "x.txt is not UTF-8 .byte 0xe9 a little below line 18.: convert it"),
        ("x.txt", "a".encode("utf-16"), {}, "x.txt is not UTF-8"),
        (
            "x.txt.gz",
            gzip.compress(b"some text" * 99, mtime=0)[:-9],
            {},
            "x.txt.gz cannot be read: Compressed file ended",
        ),
        ("x.txt.gz", b"no gzip", {}, "x.txt.gz cannot be read: Not a gzipped file"),
        ("x.txt.bz2", b"nonsense", {}, "x.txt.bz2 cannot be read"),
        ("x.txt.xz", b"nonsense", {}, "x.txt.xz cannot be read"),
        ("x.jsonl", b'{"text": "a"}\n{"text": \n', {}, "x.jsonl cannot be read: JSON parse error"),
        ("x.jsonl", b"5\n6\n", {}, "x.jsonl cannot be read"),
        ("x.csv", b"text\na\nb,c,d\n", {}, "x.csv cannot be read: Error tokenizing"),
        ("x.csv", b"text\ncaf\xe9\n", {}, "x.csv is not UTF-8"),
        ("x.parquet", b"PAR1 nonsense", {}, "x.parquet cannot be read: Parquet magic"),
        ("x.txt", b"a", {"boundary": "page"}, "boundary is one of"),
        ("x.txt", b"a", {"documents": 0}, "documents must be at least 1"),
    ],
)
def test_bad_sources_are_named(tmp_path, name, content, change, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        list(Source(str(tmp_path / name), **change).pieces())


def test_no_text_is_named(tmp_path):
    for path in (tmp_path / "absent.txt", tmp_path, tmp_path / "*.txt"):
        with pytest.raises(FileNotFoundError, match="there is no text at"):
            list(Source(str(path)).pieces())


# --- rows -----------------------------------------------------------------------------------------------------------


def test_rows_are_the_text_end_to_end(tmp_path, tokenizer):
    source = write(tmp_path / "x.txt", "a b c\nd\n\ne a b\n\nc d e a")
    blocks = pack(source, tokenizer, Packing(4, end_id=2))
    assert len(blocks) == 3  # 11 words and 3 ends; 2 ids are left over
    assert blocks[[0, 1, 2]].flatten().tolist() == [3, 4, 5, 6, 2, 7, 3, 4, 2, 5, 6, 7]
    assert blocks[[2, 0]].dtype == torch.int64
    known = {"rows": 3, "tokens": 14, "documents": 3, "characters": 19}
    assert {name: blocks.facts[name] for name in known} == known
    assert blocks.characters == round(19 * 12 / 14)
    with pytest.raises(IndexError, match="rows must lie in 0 … 2"):
        blocks[[3]]


def test_sentences_are_opened_and_closed(tmp_path, tokenizer):
    source = write(tmp_path / "x.txt", "a b. c\n\nd e")
    blocks = pack(source, tokenizer, Packing(3, "sentence", 1, 2))
    assert blocks[list(range(4))].flatten().tolist() == [1, 3, 4, 8, 2, 1, 5, 2, 1, 6, 7, 2]
    chinese = ["他来了。", "她说：“好。”", "走了！"]
    assert split_sentences("".join(chinese) + "\nIt is 3.5. Yes.") == [*chinese, "It is 3.5.", "Yes."]


@pytest.mark.parametrize(("n", "fits"), [(10, 2), (5, 1), (4, 0), (0, 0)])
def test_d10_a_short_corpus_is_named_with_both_numbers(tmp_path, tokenizer, n, fits):
    source = write(tmp_path / "x.txt", "a " * n)
    if fits:
        assert len(pack(source, tokenizer, Packing(5))) == fits
    else:
        with pytest.raises(ValueError, match=f"holds {n} tokens, and one row needs 5"):
            pack(source, tokenizer, Packing(5))
        assert not [path for path in (tmp_path / "cache" / "corpora").iterdir() if path.is_dir()]
    if fits == 1:
        with pytest.raises(ValueError, match="fills 1 row of 5 tokens"):
            pack(source, tokenizer, Packing(5)).split()


def test_the_last_rows_are_held_out(tmp_path, tokenizer):
    blocks = pack(write(tmp_path / "x.txt", "a b c d e " * 100), tokenizer, Packing(5))
    train, dev = blocks.split(0.1)
    assert (len(train), len(dev)) == (90, 10)
    assert torch.equal(dev[[0, 9]], blocks[[90, 99]])
    assert len(blocks.split(0.5, most=7)[1]) == 7
    assert len(blocks.split(0.0001)[1]) == 1
    with pytest.raises(IndexError):
        train[[90]]
    with pytest.raises(ValueError, match="between 0 and 1"):
        blocks.split(1.0)


def test_rows_survive_pickling_and_are_read_by_datasets(tmp_path, tokenizer):
    from datasets import Dataset

    text = " ".join(np.random.default_rng(0).choice(WORDS[3:8], 9000))
    blocks = pack(write(tmp_path / "x.txt", text), tokenizer, Packing(3)).split(0.5)[1]
    again = pickle.loads(pickle.dumps(blocks))
    rows = list(range(len(blocks)))
    assert torch.equal(again[rows], blocks[rows])
    theirs = Dataset.from_file(str(blocks.path)).with_format("numpy")["ids"][:]
    assert len(theirs) == 3000  # more than one record batch
    assert np.array_equal(theirs[blocks.start :], blocks[rows].numpy())


def test_no_row_goes_to_two_processes(tmp_path, tokenizer):
    """Micro-batch k belongs to process k % world; over a pass each row comes once."""
    blocks = pack(write(tmp_path / "x.txt", "a b c d " * 60), tokenizer, Packing(4))
    order, world, size = Shuffled(len(blocks), 0), 3, 4
    seen = [[row for k in range(rank, 15, world) for row in order(k * size, (k + 1) * size)] for rank in range(world)]
    assert sorted(row for rows in seen for row in rows) == list(range(60))
    assert all(not set(a) & set(b) for i, a in enumerate(seen) for b in seen[:i])


# --- the cache ------------------------------------------------------------------------------------------------------


def test_the_same_text_is_cut_once_and_a_changed_one_anew(tmp_path, tokenizer, monkeypatch):
    source, cuts = write(tmp_path / "x.txt", "a b c d e"), []
    make = corpus._make_blocks
    monkeypatch.setattr(corpus, "_make_blocks", lambda *args: cuts.append(1) or make(*args))
    first = pack(source, tokenizer, Packing(4))
    assert torch.equal(pack(source, tokenizer, Packing(4))[[0]], first[[0]])
    (tmp_path / "moved.txt").write_bytes((tmp_path / "x.txt").read_bytes())
    pack(Source(str(tmp_path / "moved.txt")), tokenizer, Packing(4))
    assert len(cuts) == 1  # the name of a file is not its content
    pack(source, tokenizer, Packing(3))
    write(tmp_path / "x.txt", "a b c d d")
    pack(source, tokenizer, Packing(4))
    other = Tokenizer.from_str(tokenizer.to_str().replace('"e"', '"f"'))
    pack(source, other, Packing(4))
    assert len(cuts) == 4


def test_a_truncated_cache_is_made_anew_and_a_killed_one_leaves_nothing(tmp_path, tokenizer):
    source = write(tmp_path / "x.txt", "a b c d e")
    blocks = pack(source, tokenizer, Packing(4))
    rows = blocks[[0]].tolist()
    blocks.path.write_bytes(blocks.path.read_bytes()[:-9])
    leftover = blocks.path.parent.with_name(f".{blocks.path.parent.name}.killed")
    leftover.mkdir()
    (leftover / "rows.arrow").write_bytes(b"half")
    assert pack(source, tokenizer, Packing(4))[[0]].tolist() == rows
    assert not leftover.exists()
    (blocks.path.parent / "corpus.json").write_text("{")
    assert pack(source, tokenizer, Packing(4))[[0]].tolist() == rows


def test_b06_a_lone_surrogate_becomes_a_replacement_character(tokenizer):
    assert corpus._encode(tokenizer, ["a b", "a \ud800 b", "c"]) == [[3, 4], [3, 0, 4], [5]]


def test_ids_beyond_two_bytes(tmp_path):
    big = Tokenizer(models.WordLevel({f"w{i}": i for i in range(70_000)} | {"<unk>": 70_000}, unk_token="<unk>"))
    big.pre_tokenizer = pre_tokenizers.Whitespace()
    blocks = pack(write(tmp_path / "x.txt", "w69999 w1"), big, Packing(2))
    assert blocks[[0]].tolist() == [[69_999, 1]]


# --- documents ------------------------------------------------------------------------------------------------------


def test_documents_of_sentences_in_shards(tmp_path, tokenizer):
    text = "\n\n".join(["a b. c d e.\na b c."] * 5 + ["d. e."])
    found = documents(write(tmp_path / "x.txt", text), tokenizer, shard_tokens=80)
    assert len(found) == 1
    [shard] = found
    assert shard.ids[:11].tolist() == [3, 4, 8, 5, 6, 7, 8, 3, 4, 5, 8]
    assert shard.sentences[:5].tolist() == [0, 3, 7, 11, 14]
    assert shard.documents.tolist() == [0, 11, 22, 33, 44, 55, 59]
    pieces = documents(write(tmp_path / "x.txt", text), tokenizer, shard_tokens=20)
    # Shards are small and documents long here, so documents are cut where a piece of text ends.
    assert sum(len(shard.ids) for shard in pieces) == 59
    assert np.array_equal(np.concatenate([shard.ids for shard in pieces]), shard.ids)
    assert [len(s.documents) - 1 for s in pieces] == [2, 2, 2]
    again = pickle.loads(pickle.dumps(pieces))
    assert all(np.array_equal(a.sentences, b.sentences) for a, b in zip(again, pieces))
    rng = np.random.default_rng(0)
    longer = documents(write(tmp_path / "x.txt", "\n\n".join(["a b c d e a b. c d e a b c d e."] * 9)), tokenizer)
    rows = Pairs(longer[0], 1, 2).draw(8, 19, rng)
    assert rows["ids"].shape == (8, 19)
    with pytest.raises(ValueError, match="shard_tokens must be at least 1"):
        documents(write(tmp_path / "x.txt", text), tokenizer, shard_tokens=0)
    with pytest.raises(ValueError, match="not a single sentence"):
        documents(write(tmp_path / "x.txt", "\n\n"), tokenizer)


def test_the_last_documents_are_held_out(tmp_path, tokenizer):
    text = "\n\n".join(f"{'a b c d e ' * n}." for n in range(1, 9))
    whole = documents(write(tmp_path / "x.txt", text), tokenizer, shard_tokens=10_000)
    train, dev = whole.split(0.01)
    assert len(train) == 1
    assert len(dev.documents) - 1 == 2  # the fewest from which a random neighbour can be drawn
    assert np.array_equal(np.concatenate([train[0].ids, dev.ids]), whole[0].ids)
    assert np.array_equal(pickle.loads(pickle.dumps(train))[0].ids, train[0].ids)
    assert len(whole.split(0.5)[1].documents) - 1 == 3
    shards = documents(write(tmp_path / "x.txt", text), tokenizer, shard_tokens=320)
    assert [len(shard.ids) for shard in shards] == [188]  # documents are counted whole
    shards = documents(write(tmp_path / "x.txt", text * 4), tokenizer, shard_tokens=330)
    train, dev = shards.split(0.01)
    everything = [shard.ids for shard in (*train, dev)]
    assert np.array_equal(np.concatenate(everything), np.concatenate([shard.ids for shard in shards]))
    with pytest.raises(ValueError, match="the text has 3 documents, and training and held-out text need two each"):
        documents(write(tmp_path / "x.txt", "a b.\n\nc.\n\nd."), tokenizer).split()
    with pytest.raises(ValueError, match="between 0 and 1"):
        whole.split(0)


# --- memory ---------------------------------------------------------------------------------------------------------


def test_text_is_read_only_as_fast_as_it_is_cut(tmp_path, tokenizer, monkeypatch):
    """Memory is measured by benchmarks/pretraining.py; here: nobody is ever more than a batch of text ahead."""
    line = "a b c d e . a b c d e a b c d e a b c d e a b c d e a b c d e a b c d e\n"
    (tmp_path / "x.txt").write_text(line * 50_000)
    read, ahead = 0, []
    lines, encode = corpus_source._lines, corpus._encode

    def counted(*args):
        nonlocal read
        for text in lines(*args):
            read += len(text)
            yield text

    def watched(tokenizer, texts):
        nonlocal read
        ahead.append(read)
        read = 0
        return encode(tokenizer, texts)

    monkeypatch.setattr(corpus_source, "_lines", counted)
    monkeypatch.setattr(corpus, "_encode", watched)
    blocks = pack(Source(str(tmp_path / "x.txt"), boundary="file"), tokenizer, Packing(64))
    assert blocks.facts["tokens"] == 36 * 50_000
    assert len(ahead) == 4
    assert min(ahead) > 100_000
    assert max(ahead) < 1_200_000
    assert len(blocks.parts) == 28  # and what is written does not pile up either: a record batch has 1024 rows
