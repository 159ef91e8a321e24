"""The Python example of the README runs, where the project's files are at hand."""

import pathlib
import re

import numpy
import pytest

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_example():
    if not README.exists():
        pytest.skip("absent: README.md")
    (code,) = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    names = {}
    exec(code, names)
    x, back = names["x"].astype(numpy.float32), names["back"].astype(numpy.float32)
    assert back.shape == x.shape
    # e4m3 keeps four significant bits.
    numpy.testing.assert_allclose(back, x, rtol=1 / 16, atol=numpy.abs(x).max() / 448 / 2)
