"""Settings of the process. Thread-safe; an op reads each of them once per call."""

from __future__ import annotations

import sys
from typing import Callable, List, NamedTuple, Optional

from . import _native
from ._arguments import flag, integer, maybe_text, number, text
from ._arrays import format_number

__all__ = [
    "BackendStatus", "backends", "set_backend", "get_backend", "set_num_threads",
    "get_num_threads", "cpu_targets", "set_cpu_target", "get_cpu_target", "set_check_data",
    "get_check_data", "set_pdl", "get_pdl", "is_ascend", "get_device", "get_device_num_sms",
    "set_num_sms", "get_num_sms", "get_num_ai_cores", "get_num_cube_cores", "get_num_vec_cores",
    "get_max_smem_per_sm", "get_max_ub_per_vector_core", "set_token_alignment",
    "get_token_alignment", "use_deterministic_algorithms", "get_deterministic_algorithms",
    "set_amax_clamp_for_quant", "get_amax_clamp_for_quant",
    "cache_dir", "set_cache_dir", "set_log_hook", "reset_runtime_config", "check_errors",
]


def __dir__() -> list:
    return sorted(__all__)


_backends = _native.function("backends")
_set_backend = _native.function("set_backend")
_get_backend = _native.function("get_backend")
_set_num_threads = _native.function("set_num_threads")
_get_num_threads = _native.function("get_num_threads")
_cpu_targets = _native.function("cpu_targets")
_set_cpu_target = _native.function("set_cpu_target")
_get_cpu_target = _native.function("get_cpu_target")
_set_check_data = _native.function("set_check_data")
_get_check_data = _native.function("get_check_data")
_set_pdl = _native.function("set_pdl")
_get_pdl = _native.function("get_pdl")
_is_ascend = _native.function("is_ascend")
_get_device = _native.function("get_device")
_get_device_num_sms = _native.function("get_device_num_sms")
_set_num_sms = _native.function("set_num_sms")
_get_num_sms = _native.function("get_num_sms")
_get_max_smem_per_sm = _native.function("get_max_smem_per_sm")
_get_max_ub_per_vector_core = _native.function("get_max_ub_per_vector_core")
_set_token_alignment = _native.function("set_token_alignment")
_get_token_alignment = _native.function("get_token_alignment")
_use_deterministic_algorithms = _native.function("use_deterministic_algorithms")
_get_deterministic_algorithms = _native.function("get_deterministic_algorithms")
_set_amax_clamp = _native.function("set_amax_clamp_for_quant")
_get_amax_clamp = _native.function("get_amax_clamp_for_quant")
_check_errors = _native.function("check_errors")
_cache_dir = _native.function("cache_dir")
_set_cache_dir = _native.function("set_cache_dir")
_set_log_hook = _native.function("set_log_hook")
_reset = _native.function("reset_runtime_config")


class BackendStatus(NamedTuple):
    """Whether a backend can run here, and if not, the one sentence that says why."""

    backend: str
    available: bool
    detail: str


def backends() -> List[BackendStatus]:
    """The state of every backend on this machine: reference, cpu, cuda, ascend."""
    texts = [str(text) for text in _backends()]
    return [BackendStatus(texts[i], texts[i + 1] == "yes", texts[i + 2])
            for i in range(0, len(texts), 3)]


def set_backend(backend: Optional[str]) -> None:
    """Forces every call onto one backend; None takes the tensors' device again.

    Starts from TILEKERNELS_BACKEND. Forcing a backend never changes a layout or a result.

    Raises:
        ValueError: Another name than reference, cpu, cuda or ascend.
    """
    _set_backend(maybe_text("set_backend", "backend", backend))


def get_backend() -> Optional[str]:
    """The forced backend, or None."""
    backend = _get_backend()
    return None if backend is None else str(backend)


def set_num_threads(num_threads: int) -> None:
    """Threads of the cpu backend; 0 (the start value, or TILEKERNELS_NUM_THREADS) takes every core
    that this process may run on.

    Raises:
        ValueError: Negative or above 1024.
    """
    _set_num_threads(integer("set_num_threads", "num_threads", num_threads))


def get_num_threads() -> int:
    """The number in force: at least 1."""
    return _get_num_threads()


def cpu_targets() -> List[str]:
    """The SIMD targets of the cpu backend that this machine can run, best first ("AVX3", "AVX2").

    Empty on a machine without any: the reference then serves the cpu backend.
    """
    return [str(target) for target in _cpu_targets()]


def set_cpu_target(target: str) -> None:
    """Forces one target of `cpu_targets()`; an empty name takes the best again.

    For tests and measurements: not to be changed while calls are running. Starts from
    TILEKERNELS_CPU_TARGET.

    Raises:
        ValueError: A name that is not in `cpu_targets()`.
    """
    _set_cpu_target(text("set_cpu_target", "target", target))


def get_cpu_target() -> str:
    """The target that the next call runs; empty when there is none."""
    return str(_get_cpu_target())


def set_check_data(enabled: bool) -> None:
    """Whether faults in the data are reported (`DataError`). On unless TILEKERNELS_CHECK_DATA=0."""
    _set_check_data(flag("set_check_data", "enabled", enabled))


def get_check_data() -> bool:
    """Whether faults in the data are reported."""
    return _get_check_data()


def set_pdl(enabled: bool) -> None:
    """Whether CUDA kernels are launched with programmatic dependent launch: a kernel may then
    start while its predecessor in the stream ends, and waits before it reads. Off at the start."""
    _set_pdl(flag("set_pdl", "enabled", enabled))


def get_pdl() -> bool:
    """Whether CUDA kernels are launched with programmatic dependent launch."""
    return _get_pdl()


def is_ascend() -> bool:
    """Whether this machine has the device file of Ascend's driver, /dev/davinci_manager; looked up
    once. The NPU need not be usable: `backends()` says that."""
    return _is_ascend()


def get_device() -> str:
    """The kind of accelerator that functions below ask for when no device is named: "npu" if
    `is_ascend()`, else "cuda"."""
    return str(_get_device())


def get_device_num_sms(device: Optional[str] = None) -> int:
    """Multiprocessors of a CUDA device, each device asked once. Of "npu" the cube cores, which are
    half the vector cores, of the machine model.

    Args:
        device: "cuda", "cuda:1" or "npu"; None takes `get_device()`.

    Raises:
        ValueError: Another name, or a device that is not there.
        RuntimeError: There is no driver to ask (NotImplementedError: a build without cuda).
    """
    return _get_device_num_sms(maybe_text("get_device_num_sms", "device", device))


def set_num_sms(num_sms: int) -> None:
    """Limits the grids of persistent kernels to so many multiprocessors, on an Ascend machine model
    the vector cores to twice as many; no result depends on it.

    Kernels that give each row or block of its own a thread block are not persistent and not
    limited.

    Raises:
        ValueError: Unless 1 <= num_sms <= get_device_num_sms().
        RuntimeError: As `get_device_num_sms`.
    """
    _set_num_sms(integer("set_num_sms", "num_sms", num_sms))


def get_num_sms(device: Optional[str] = None) -> int:
    """The number in force on a device: its own, or what `set_num_sms` limits it to."""
    return _get_num_sms(maybe_text("get_num_sms", "device", device))


def get_num_ai_cores(device: Optional[str] = None) -> int:
    """The same as `get_num_sms`."""
    return get_num_sms(device)


def get_num_cube_cores(device: Optional[str] = None) -> int:
    """The same as `get_num_sms`."""
    return get_num_sms(device)


def get_num_vec_cores(device: Optional[str] = None) -> int:
    """Twice `get_num_sms`: an AI core has two vector cores."""
    return 2 * get_num_sms(device)


def get_max_smem_per_sm(device: Optional[str] = None) -> int:
    """Bytes of shared memory of a CUDA multiprocessor.

    Raises: as `get_device_num_sms`; ValueError for "npu", which has none.
    """
    return _get_max_smem_per_sm(maybe_text("get_max_smem_per_sm", "device", device))


def get_max_ub_per_vector_core(use_simt: bool = True) -> int:
    """Bytes of on-core buffer of an Ascend 950 vector core that a kernel may take: 216 KiB if it
    has SIMT parts, whose cache takes the rest, else 248 KiB."""
    return _get_max_ub_per_vector_core(flag("get_max_ub_per_vector_core", "use_simt", use_simt))


def set_token_alignment(token_alignment: int) -> None:
    """Rows to which SwiGLU's experts are aligned unless a call says otherwise; 128 at the start.

    Raises:
        ValueError: Unless in 1..2**20.
    """
    _set_token_alignment(integer("set_token_alignment", "token_alignment", token_alignment))


def get_token_alignment() -> int:
    """The alignment in force."""
    return _get_token_alignment()


def use_deterministic_algorithms(enabled: bool) -> None:
    """Asks for deterministic algorithms. All of this library's are, whether it was asked or not:
    kept for callers of the reference package. Off at the start."""
    _use_deterministic_algorithms(flag("use_deterministic_algorithms", "enabled", enabled))


def get_deterministic_algorithms() -> bool:
    """Whether deterministic algorithms were asked for."""
    return _get_deterministic_algorithms()


def set_amax_clamp_for_quant(fmt: str, use_e4m3_sf: bool, value: float) -> None:
    """The smallest amax from which a scaling factor is computed.

    Defaults: 1e-4 and 448·2^-9 for e4m3, 6·2^-126 and 6·2^-9 for e2m1.

    Args:
        fmt: Format of the data, "e4m3" or "e2m1".
        use_e4m3_sf: Whether the scaling factors are e4m3.
        value: The new clamp.

    Raises:
        ValueError: Another format, or a value that is not finite or lies below Q·2^-126 (with e4m3
            scales Q·2^-9), Q being the format's largest number: the scaling factor would not be a
            normal number.
    """
    op = "set_amax_clamp_for_quant"
    _set_amax_clamp(format_number(op, fmt, ("e4m3", "e2m1")), flag(op, "use_e4m3_sf", use_e4m3_sf),
                    number(op, "value", value))


def get_amax_clamp_for_quant(fmt: str, use_e4m3_sf: bool) -> float:
    """The clamp in force for a format of the data and e4m3 or other scaling factors."""
    op = "get_amax_clamp_for_quant"
    return _get_amax_clamp(format_number(op, fmt, ("e4m3", "e2m1")),
                           flag(op, "use_e4m3_sf", use_e4m3_sf))


def cache_dir() -> str:
    """The folder of compiled CUDA kernels; empty: none, each process compiles what it needs.

    Starts as TILEKERNELS_CACHE_DIR, else $XDG_CACHE_HOME/tilekernels, else ~/.cache/tilekernels.
    """
    return str(_cache_dir())


def set_cache_dir(folder: str) -> None:
    """Sets the folder of compiled CUDA kernels, which is made when the first one is written.

    A folder that cannot be read or written costs a compilation and one warning (`set_log_hook`),
    never an error. Not touched by `reset_runtime_config`.
    """
    _set_cache_dir(text("set_cache_dir", "folder", folder))


def set_log_hook(hook: Optional[Callable[[str], None]]) -> None:
    """Where warnings go, such as that the kernel cache cannot be written; None, as at the start:
    nowhere.

    Args:
        hook: Takes one sentence, each said once. Called by any thread; an exception of it is lost.
            Not touched by `reset_runtime_config`.
    """
    if hook is not None and not callable(hook):
        raise ValueError(f"[set_log_hook] hook must be callable or None, got {hook!r}")
    _set_log_hook(None if hook is None else
                  lambda sentence: hook(bytes(sentence).decode(errors="replace")))


def reset_runtime_config() -> None:
    """Restores the settings of this module to their start values, but not cache folder and hook."""
    _reset()


def check_errors(stream: Optional[int] = None) -> None:
    """Reports the data-dependent faults of the work queued on a CUDA stream so far.

    Waits for the stream. On host memory a call reports its own faults, so this returns at once.

    Args:
        stream: The stream's handle (torch: `stream.cuda_stream`); None takes torch's current
            stream, without torch the default one.

    Raises:
        DataError: With the lowest faulty row.
    """
    if stream is None:
        torch = sys.modules.get("torch")
        used = torch is not None and torch.cuda.is_initialized()
        stream = torch.cuda.current_stream().cuda_stream if used else 0
    _check_errors(stream)
