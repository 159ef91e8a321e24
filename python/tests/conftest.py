"""Golden vectors and small helpers for every test."""

from __future__ import annotations

import json
import os
import pathlib

# Its arrays are to lie on the CPU, also where there is a GPU; read at the first import of jax.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Kernels that tests compile are not kept among the user's, unless the variable says where; read at
# the import of tilekernels.
os.environ.setdefault("TILEKERNELS_CACHE_DIR", str(ROOT / "build" / "kernel_cache"))

import ml_dtypes
import numpy
import pytest

import tilekernels

GOLDEN = pathlib.Path(os.environ.get("TILEKERNELS_GOLDEN", ROOT / "tests" / "golden"))

DTYPES = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "bool": numpy.bool_,
}


def dtype_of(name: str) -> numpy.dtype:
    return numpy.dtype(DTYPES.get(name, name))


class Golden:
    """One recorded case: arguments and arrays, inputs rebuilt with the strides they had."""

    def __init__(self, case: dict, header: dict, body: memoryview) -> None:
        self.name = case["name"]
        self.args = case["args"]
        self._header, self._body = header, body
        self.inputs = {name: self._array(entry) for name, entry in case["inputs"].items()}
        self.outputs = {name: self._array(entry) for name, entry in case["outputs"].items()}
        self.strides = {name: entry["stride"] for name, entry in case["outputs"].items()}
        self._entries = case["outputs"]

    def _stored(self, key: str, dtype: numpy.dtype) -> numpy.ndarray:
        begin, end = self._header[key]["data_offsets"]
        return numpy.frombuffer(self._body[begin:end], dtype)

    def _array(self, entry: dict) -> numpy.ndarray:
        dtype = dtype_of(entry["dtype"])
        logical = self._stored(entry["key"], dtype).reshape(entry["shape"])
        return with_strides(logical, entry["stride"])

    def written(self, name: str) -> numpy.ndarray:
        """Which bytes of an output's rows the recorded kernel wrote."""
        entry = self._entries[name]
        size = self.outputs[name].dtype.itemsize
        shape = (*entry["shape"][:-1], entry["shape"][-1] * size)
        if "unwritten" not in entry:
            return numpy.ones(shape, bool)
        return self._stored(entry["unwritten"], numpy.dtype(numpy.uint8)).reshape(shape) == 0


def golden(op: str) -> list:
    """The recorded cases of a file."""
    content = (GOLDEN / f"{op}.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    body = memoryview(content)[8 + length:]
    return [Golden(case, header, body) for case in json.loads(header["__metadata__"]["cases"])]


def with_strides(array: numpy.ndarray, strides: list) -> numpy.ndarray:
    """The same values in memory with these strides, in elements; read-only."""
    extent = sum((size - 1) * stride for size, stride in zip(array.shape, strides))
    size = array.dtype.itemsize
    storage = numpy.zeros(0 if array.size == 0 else extent + 1, array.dtype)
    view = numpy.ndarray(array.shape, array.dtype, storage, 0, [size * s for s in strides])
    view[...] = array
    view.flags.writeable = False
    return view


def bits(array) -> numpy.ndarray:
    """The array's bytes, row by row."""
    return numpy.ascontiguousarray(array).view(numpy.uint8)


def same_bytes(got, expected) -> None:
    got, expected = numpy.asarray(got), numpy.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    numpy.testing.assert_array_equal(bits(got), bits(expected))


def element_strides(array: numpy.ndarray) -> list:
    return [stride // array.dtype.itemsize for stride in array.strides]


@pytest.fixture(autouse=True)
def start_values():
    yield
    tilekernels.reset_runtime_config()


@pytest.fixture(params=["cpu", "reference"])
def backend(request):
    return request.param
