import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfold.contract import toml_text

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
DATA = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(TEXT, DATA, max_size=4), TEXT)
def test_what_is_written_is_read_back(table, name):
    text = toml_text.document({("gym", name): table})
    assert tomllib.loads(text) == {"gym": {name: table}}


def test_what_toml_has_no_word_for_is_refused():
    with pytest.raises(TypeError):
        toml_text.value(None)
