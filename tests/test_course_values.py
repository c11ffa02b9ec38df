"""Plain data as bytes: what goes through, what is refused, and bytes of strangers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course.questions import Case
from course.submission import pack_cases, unpack_cases
from course.values import NotPlainError, decode, encode

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    LEAVES, lambda t: st.lists(t) | st.tuples(t, t) | st.dictionaries(st.text() | st.integers(0, 9), t), max_leaves=20
)


@given(TREES)
def test_a_tree_comes_back_as_it_was(tree):
    back = decode(encode(tree))
    assert back == tree
    assert repr(back) == repr(tree)  # tuples stay tuples, True stays True


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"])
def test_arrays_keep_dtype_shape_and_order(dtype):
    for array in (np.arange(6).astype(dtype).reshape(2, 3).T, np.array(1).astype(dtype), np.zeros((0, 4), dtype)):
        back = decode(encode([array]))[0]
        np.testing.assert_array_equal(back, array)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        assert back.flags.writeable


def test_tensors_come_back_as_tensors_or_as_arrays():
    layer = torch.nn.Linear(2, 3)
    tree = {"weight": layer.weight, "half": torch.ones(2, dtype=torch.bfloat16)}
    arrays, tensors = decode(encode(tree)), decode(encode(tree), tensors=True)
    np.testing.assert_array_equal(arrays["weight"], layer.weight.detach().numpy())
    assert torch.equal(tensors["weight"], layer.weight)
    assert arrays["half"].dtype == np.float32


def test_inputs_stay_tensors_and_what_judges_compare_is_arrays():
    drawn = {"q1": [[Case({"x": torch.ones(2), "y": np.ones(2)}, torch.zeros(1), [torch.ones(3)])]]}
    for tensors, kind in ((False, np.ndarray), (True, torch.Tensor)):
        (((one,),),) = unpack_cases(pack_cases(drawn), tensors).values()
        assert type(one.inputs["x"]) is kind
        assert {type(v) for v in (one.inputs["y"], one.secret, *one.want)} == {np.ndarray}


def test_nan_and_numpy_numbers():
    back = decode(encode([float("nan"), float("inf"), np.float64(0.5), np.int32(3), np.bool_(True)]))
    assert np.isnan(back[0])
    assert back[1:] == [float("inf"), 0.5, 3, True]


class Yes(int):
    """Equal to everything."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        return True


@pytest.mark.parametrize(
    "value",
    [
        Yes(3),
        type("Text", (str,), {})("a"),
        np.array([1, None]),
        np.array(["a"]),
        np.ma.array([1.0]),
        print,
        {1, 2},
        b"a",
        1j,
    ],
    ids=lambda v: type(v).__name__,
)
def test_f02_anything_else_is_refused_with_its_place(value):
    with pytest.raises(NotPlainError, match=r"the result\[1\]\['a'\] is an?"):
        encode([0, {"a": value}])


def test_what_is_too_deep_or_too_large_is_refused():
    deep = []
    for _ in range(40):
        deep = [deep]
    with pytest.raises(NotPlainError, match="deep"):
        encode(deep)
    with pytest.raises(NotPlainError, match="64 bits"):
        encode(10**40)


@given(st.binary(max_size=200))
def test_bytes_of_a_stranger_raise_value_error_and_nothing_else(data):
    with pytest.raises(ValueError, match="unreadable"):
        decode(data)


@given(st.data())
def test_damaged_bytes_give_plain_data_or_value_error(data):
    good = bytearray(encode({"a": [1, "b", np.arange(3.0)], "c": (None,)}))
    for _ in range(3):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(good))
    except ValueError:
        return
