"""The small kernels around the matrix products of large language models.

Ops take arrays of NumPy (with the dtypes of ml_dtypes), torch or JAX and return arrays of the
same framework. `moe` holds routing, `quant` the casts, `config` the settings.
"""

from . import config, moe, quant
from ._native import function as _function
from .config import *  # noqa: F403
from .errors import BackendError, DataError, Unsupported

__version__ = str(_function("version")())

__all__ = ["config", "moe", "quant", "BackendError", "DataError", "Unsupported", "__version__",
           *config.__all__]


def __dir__() -> list:
    return sorted(__all__)
