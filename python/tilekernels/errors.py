"""The kinds of error that are not the caller's fault; that one is a plain ValueError.

Every message reads ``[op] argument rule, got value``.
"""

from __future__ import annotations

__all__ = ["DataError", "Unsupported", "BackendError"]


def __dir__() -> list:
    return sorted(__all__)


class DataError(ValueError):
    """A value in the data breaks the op's contract. Other rows of the result are right.

    Attributes:
        row: The lowest offending row, the same on every backend.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row

    def __reduce__(self) -> tuple:
        return DataError, (str(self), self.row)


class Unsupported(NotImplementedError):
    """No kernel for this backend, dtype or shape; the message says what is available."""


class BackendError(RuntimeError):
    """The machine failed, not the caller: driver, compiler, file system."""
