"""Fixtures for what runs in sandboxes."""

import pytest

from tests.sandbox.place import Place


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)
