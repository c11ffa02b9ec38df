"""Clauses in disorder: another order of the same characters, none in two parts."""

import numpy as np
import pytest

from plm.chinese import PARTS
from plm.scrambled import LONGEST, N_MOVED, SHORTEST, clauses, judged_clauses, scramble


def test_a_scrambled_text_has_the_same_characters_in_another_order():
    rng = np.random.default_rng(0)
    for text in ("我们去北京开会", "ab", "aab", "一二三四五六七八九十"):
        for _ in range(50):
            other = scramble(text, rng)
            assert other != text
            assert sorted(other) == sorted(text)
    with pytest.raises(ValueError, match="no other order"):
        scramble("aa", rng)


@pytest.mark.parametrize("part", PARTS)
def test_half_of_the_clauses_are_as_printed(part):
    found, pool = judged_clauses(part, 100), set(clauses(part))
    assert [c.label for c in found].count(1) == 50
    assert all((c.text in pool) >= (c.label == 1) for c in found)
    assert all(SHORTEST <= len(c.text) <= LONGEST and len(set(c.text)) > N_MOVED for c in found)
    originals = {"".join(sorted(c.text)) for c in found}
    assert len(originals) > 95  # hardly any clause twice, in whatever order
    assert judged_clauses(part, 10) == judged_clauses(part, 10) != judged_clauses(part, 10, seed=1)


def test_no_clause_is_in_two_parts():
    train, dev, test = (set(clauses(part)) for part in PARTS)
    assert not train & dev
    assert not (train | dev) & test
    assert min(map(len, (train, dev, test))) > 1000


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="no part 'tests'"):
        clauses("tests")
    with pytest.raises(ValueError, match="at least 2"):
        judged_clauses("test", 1)
