"""What numbers, flags and names a caller may pass, and the words when he passes others."""

from __future__ import annotations

import numbers
import operator
from typing import Any, Optional

import numpy


def _refuse(op: str, name: str, rule: str, value: Any) -> ValueError:
    return ValueError(f"[{op}] {name} {rule}, got {value!r}")


def integer(op: str, name: str, value: Any) -> int:
    """Python's and NumPy's whole numbers of 32 bits."""
    try:
        number = int(operator.index(value))
    except TypeError:
        raise _refuse(op, name, "must be an integer", value) from None
    if not -2**31 <= number < 2**31:
        raise _refuse(op, name, "must fit in 32 bits", number)
    return number


def flag(op: str, name: str, value: Any) -> bool:
    """Python's and NumPy's truth values, and 0 and 1."""
    if isinstance(value, (bool, numpy.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral) and value in (0, 1):
        return value == 1
    raise _refuse(op, name, "must be True or False", value)


def number(op: str, name: str, value: Any) -> float:
    """Python's and NumPy's real numbers."""
    try:
        if isinstance(value, (numbers.Real, numpy.number)):
            return float(value)
    except (TypeError, OverflowError):
        pass
    raise _refuse(op, name, "must be a real number that a float holds", value)


def text(op: str, name: str, value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise _refuse(op, name, "must be a str", value)


def maybe_number(op: str, name: str, value: Any) -> Optional[float]:
    return None if value is None else number(op, name, value)


def maybe_text(op: str, name: str, value: Any) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    raise _refuse(op, name, "must be a str or None", value)
