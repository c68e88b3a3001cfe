"""hack/images/python38.py: what of a Python goes into the image, and what happens without one."""

from pathlib import Path

import pytest
from hack.images import catalog, image, layers, python38


@pytest.fixture
def installed(tmp_path):
    """A Python as `make install` lays it out, with a shared library."""
    for path in (
        "bin/python3.8", "lib/libpython3.8.so.1.0", "lib/python3.8/os.py", "lib/python3.8/json/decoder.py",
        "lib/python3.8/lib-dynload/math.so", "lib/python3.8/__pycache__/os.pyc", "lib/python3.8/json/__pycache__/x.pyc",
        "lib/python3.8/test/test_os.py", "lib/python3.8/site-packages/pip/main.py", "lib/python3.8/config-3.8-x/a.a",
    ):  # fmt: skip
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    shared = tmp_path / "lib/libpython3.8.so.1.0"
    return python38.Python("3.8.0", tmp_path / "bin/python3.8", tmp_path / "lib/python3.8", shared)


def test_the_library_goes_along_without_what_no_verifier_needs(installed):
    entries = python38._entries(installed)
    files = {entry.path: entry.mode for entry in entries if isinstance(entry, layers.File)}
    assert files == {
        "opt/python3.8/bin/python3.8": 0o755,
        "usr/lib/libpython3.8.so.1.0": 0o755,
        "opt/python3.8/lib/python3.8/os.py": 0o644,
        "opt/python3.8/lib/python3.8/json/decoder.py": 0o644,
        "opt/python3.8/lib/python3.8/lib-dynload/math.so": 0o644,
    }


def test_it_is_the_only_python_of_the_image(installed):
    entries = python38._entries(installed)
    links = {entry.path: entry.target for entry in entries if isinstance(entry, layers.Link)}
    gone = {entry.path for entry in entries if isinstance(entry, layers.Removal)}
    assert links == dict.fromkeys(("usr/local/bin/python", "usr/local/bin/python3"), "/opt/python3.8/bin/python3.8")
    assert gone == {"usr/bin/python3", "usr/bin/python3.13", "usr/local/bin/python3.13"}


def test_without_a_python_3_8_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(python38, "find", lambda: None)
    monkeypatch.setattr(catalog, "python", lambda cache: None)
    with pytest.raises(image.ImageError, match=r"pyenv install 3\.8"):
        python38.make(Path("nowhere"))
