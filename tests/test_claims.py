"""The page "Claims checked": each value is what its cell printed, each link leads to that cell, and no claim is forgotten."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, writes

from book import claims, site_fixes
from book.cells import chapters, code_cells, read
from book.claims import Claim, claim_faults, pending_faults, printed
from book.prose import load as load_page

CHECKED, PENDING = claims.load()

# What the book promised to check, with the chapter that can.
MINIMUM = {
    "cosine-of-the-worked-example": 2,
    "softmax-numbers": 3,
    "eight-dimensional-list-of-seven": 3,
    "word2vec-is-a-language-model": 4,
    "elmo-sees-both-sides": 7,
    "pseudo-bidirectional": 7,
    "mask-with-zero": 8,
    "permutation-same-values": 8,
    "two-masked-attentions": 9,
    "random-embedding-at-test-time": 9,
    "bert-two-layers": 11,
    "bert-single-sentence-opens-with-sep": 11,
    "bert-nsp-accuracy": 11,
    "bert-cls-argument": 11,
    "bert-parameters": 11,
}


@pytest.mark.parametrize("claim", CHECKED, ids=lambda claim: claim.id)
def test_the_cell_printed_the_value(claim):
    assert claim_faults(claim) == []


def test_the_file_as_a_whole_is_sound_and_the_page_is_what_it_says():
    assert claims.faults() == []
    assert claims.PAGE.read_text(encoding="utf-8") == claims.page(), "run python -m book.claims"
    assert len(CHECKED) >= 40
    assert {claim.verdict for claim in CHECKED} == set(claims.BADGES)
    assert {claim.chapter for claim in CHECKED} == set(range(1, 14))


def test_what_was_promised_is_there():
    chapter = {claim.id: claim.chapter for claim in CHECKED}
    assert {name: chapter.get(name) for name in MINIMUM} == MINIMUM


def test_claims_that_wait_have_no_verdict_no_notebook_and_are_not_on_the_page():
    text = claims.PAGE.read_text(encoding="utf-8")
    assert [fault for claim in PENDING for fault in pending_faults(claim)] == []
    assert not any(f"(claim-{claim.id})=" in text for claim in PENDING)
    assert [claim.id for claim in PENDING if claims.notebooks_of(claim.chapter)] == []


def test_every_link_leads_to_a_cell_and_every_claim_has_its_anchor():
    text = claims.PAGE.read_text(encoding="utf-8")
    known = {label for path in chapters() for label in load_page(path).cells}
    for claim in CHECKED:
        assert text.count(f"(claim-{claim.id})=") == 1
        if claim.cell:
            (place,) = claims.places(claim, claims.notebooks_of(claim.chapter))
            assert place.label in known
            assert f"<{place.label}>`" in text


@pytest.mark.parametrize("claim", [claim for claim in CHECKED if claim.value], ids=lambda claim: claim.id)
def test_a_changed_value_is_noticed(claim):
    """Another last digit, or another last letter, and the claim no longer stands."""
    for i, value in enumerate(claim.value):
        at = max((k for k, c in enumerate(value) if c.isdigit()), default=len(value.rstrip(").")) - 1)
        other = str((int(value[at]) + 1) % 10) if value[at].isdigit() else "x"
        changed = [*claim.value[:i], value[:at] + other + value[at + 1 :], *claim.value[i + 1 :]]
        assert any("did not print" in fault for fault in claim_faults(replace(claim, value=changed))), changed[i]


def test_a_piece_ends_where_a_number_ends():
    lines = ["by formula 0.942", "loss 1,024.5", "gain -0.25", "share 50%", "a b: 3, 4"]
    for piece in ("0.942", "by formula   0.942", "1,024.5", "-0.25", "50%", "b: 3", "3, 4"):
        assert printed(piece, lines), piece
    for piece in ("0.94", "942", "024.5", "1,024", "0.25", "50", "formula 0.943", "4 0.942"):
        assert not printed(piece, lines), piece


def test_faults_are_named(tmp_path):
    cell = new_code_cell("x = 1\nprint(x)", id="cell-001", execution_count=1)
    cell.outputs = [new_output("stream", name="stdout", text="one 1.50\n")]
    again = new_code_cell("# x = 1 too", id="cell-002", execution_count=2)
    folded = new_code_cell("y = 2", id="cell-003", execution_count=3, metadata={"tags": ["solution"]})
    nb = new_notebook(cells=[new_markdown_cell("# T\n## S `s`"), cell, again, folded])
    (tmp_path / "01_t.ipynb").write_text(writes(nb), encoding="utf-8")
    good = Claim("a", {"someone": "there"}, "It is so.", 1, "print(x)", ["one 1.50"], "holds", "We saw it.")
    (place,) = claims.places(good, [tmp_path / "01_t.ipynb"])
    assert (place.label, place.section) == ("01_t-cell-001", "S `s`")
    assert claim_faults(good, tmp_path) == []
    bad = {
        "did not print 'one 1.5'": {"value": ["one 1.5"]},
        "2 cells of 01_t.ipynb contain 'x = 1'": {"cell": "x = 1"},
        "0 cells of 01_t.ipynb contain 'z'": {"cell": "z"},
        "in a solution": {"cell": "y = 2"},
        "name the cell": {"cell": ""},
        "no verdict 'perhaps'": {"verdict": "perhaps"},
        "in a sentence": {"reason": ""},
        "chapter 3 has no notebook": {"chapter": 3},
        "was not tested, but names": {"verdict": "could not be tested"},
    }
    for fault, change in bad.items():
        found = claim_faults(replace(good, **change), tmp_path)
        assert any(fault in line for line in found), (fault, found)
    assert pending_faults(good) != []


def test_a_chapter_of_several_notebooks_is_searched_in_all_of_them(tmp_path):
    for name, code in (("12a_t", "x = 1"), ("12b_t", "y = 2"), ("01_t", "y = 2"), ("122_t", "y = 2")):
        cell = new_code_cell(code, id="cell-001", execution_count=1)
        cell.outputs = [new_output("stream", name="stdout", text="two 2\n")]
        nb = new_notebook(cells=[new_markdown_cell(f"# {name}\n## S"), cell])
        (tmp_path / f"{name}.ipynb").write_text(writes(nb), encoding="utf-8")
    assert [path.stem for path in claims.notebooks_of(12, tmp_path)] == ["12a_t", "12b_t"]
    claim = Claim("a", {"someone": "there"}, "It is so.", 12, "y = 2", ["two 2"], "holds", "We saw it.")
    (place,) = claims.places(claim, claims.notebooks_of(12, tmp_path))
    assert place.label == "12b_t-cell-001"
    assert claim_faults(claim, tmp_path) == []
    assert any("0 cells of 12a_t.ipynb, 12b_t.ipynb" in f for f in claim_faults(replace(claim, cell="z"), tmp_path))


def test_a_claim_that_is_there_twice_or_out_of_order_is_noticed(tmp_path):
    rows = yaml.safe_load(claims.DATA.read_text(encoding="utf-8"))
    rows["claims"] = [rows["claims"][-1], *rows["claims"]]
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(rows, allow_unicode=True), encoding="utf-8")
    found = "\n".join(claims.faults(tmp_path / "claims.yaml"))
    assert "is there 2 times" in found
    assert "not in the order" in found


def test_cells_of_a_chapter_are_numbered_as_the_built_page_numbers_them():
    """`book.site_fixes` counts the cells of a page from 0; the ids in the notebooks must say the same."""
    for path in chapters():
        nb = read(path)
        assert [cell.id for cell in nb.cells] == [f"cell-{i:03d}" for i in range(len(nb.cells))]
        assert load_page(path).cells == [f"{path.stem}-{cell.id}" for _, cell in code_cells(nb)]


def test_the_extension_labels_code_cells():
    from docutils.nodes import container, document

    doc = document(None, None)
    cell = container(nb_element="cell_code", cell_index=7)
    doc += [container(), cell]
    labels: dict[str, tuple[str, str]] = {}

    domain = SimpleNamespace(anonlabels=labels)
    app = SimpleNamespace(env=SimpleNamespace(docname="chapters/02_x", get_domain=lambda name: domain))
    site_fixes.label_cells(app, doc)
    assert cell["ids"] == ["cell-007"]
    assert labels == {"02_x-cell-007": ("chapters/02_x", "cell-007")}
