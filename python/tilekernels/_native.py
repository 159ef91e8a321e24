"""Loads the extension and gives its errors their Python classes."""

from __future__ import annotations

import pathlib
from typing import Any

import tvm_ffi

from . import errors

tvm_ffi.load_module(str(pathlib.Path(__file__).with_name("libtilekernels_python.so")))


def function(name: str) -> Any:
    """The extension's function of that name; it runs without the interpreter's lock."""
    found = tvm_ffi.get_global_func("tilekernels." + name)
    found.release_gil = True
    return found


class _DataError(ValueError):
    """Makes a `DataError` from "row:message", as the extension sends it."""

    def __new__(cls, text: str) -> errors.DataError:  # type: ignore[misc]
        row, _, message = text.partition(":")
        return errors.DataError(message, int(row))


tvm_ffi.register_error("tilekernels.DataError", _DataError)
tvm_ffi.register_error("tilekernels.Unsupported", errors.Unsupported)
tvm_ffi.register_error("tilekernels.BackendError", errors.BackendError)
