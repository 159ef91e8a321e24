"""Settings through Python."""

from __future__ import annotations

import importlib.metadata

import numpy
import pytest

import tilekernels
from tilekernels import config, quant


def test_version():
    assert tilekernels.__version__.count(".") == 2
    try:
        assert importlib.metadata.version("tilekernels") == tilekernels.__version__
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("an installed package is absent")


def test_backends():
    found = config.backends()
    assert [status.backend for status in found] == ["reference", "cpu", "cuda", "ascend"]
    assert found[0].available and found[1].available
    assert all(isinstance(status.available, bool) and status.detail for status in found)


def test_set_backend():
    assert config.get_backend() is None
    config.set_backend("reference")
    assert config.get_backend() == "reference"
    config.set_backend(None)
    assert config.get_backend() is None
    with pytest.raises(ValueError, match="got gpu$"):
        config.set_backend("gpu")


def test_num_threads():
    cores = config.get_num_threads()
    assert cores >= 1
    config.set_num_threads(3)
    assert config.get_num_threads() == 3
    config.set_num_threads(0)
    assert config.get_num_threads() == cores
    for wrong in (-1, 1025):
        with pytest.raises(ValueError, match=rf"^\[set_num_threads\] .*, got {wrong}$"):
            config.set_num_threads(wrong)


def test_cpu_targets():
    targets = config.cpu_targets()
    best = config.get_cpu_target()
    assert best == (targets[0] if targets else "")
    for target in targets:
        config.set_cpu_target(target)
        assert config.get_cpu_target() == target
    config.set_cpu_target("")
    assert config.get_cpu_target() == best
    with pytest.raises(ValueError, match=r"^\[set_cpu_target\] .*, got Z80$"):
        config.set_cpu_target("Z80")


def test_check_data():
    assert config.get_check_data() is True
    config.set_check_data(False)
    assert config.get_check_data() is False


def test_pdl():
    assert config.get_pdl() is False
    config.set_pdl(True)
    assert config.get_pdl() is True


def test_token_alignment_and_determinism():
    assert config.get_token_alignment() == 128
    config.set_token_alignment(64)
    assert config.get_token_alignment() == 64
    with pytest.raises(ValueError, match=r"token_alignment must be in 1\.\.1048576, got 0$"):
        config.set_token_alignment(0)
    assert config.get_deterministic_algorithms() is False
    config.use_deterministic_algorithms(True)
    assert config.get_deterministic_algorithms() is True
    config.reset_runtime_config()
    assert config.get_token_alignment() == 128


def test_facts():
    assert config.get_device() == ("npu" if config.is_ascend() else "cuda")
    assert config.get_device_num_sms("npu") == config.get_num_sms("npu:0") == 32
    assert config.get_num_ai_cores("npu") == config.get_num_cube_cores("npu") == 32
    assert config.get_num_vec_cores("npu") == 64
    assert config.get_max_ub_per_vector_core() == 216 * 1024
    assert config.get_max_ub_per_vector_core(use_simt=False) == 248 * 1024
    with pytest.raises(ValueError, match=r"device must be cuda, cuda:N, npu or npu:N, got cuda:x$"):
        config.get_num_sms("cuda:x")
    cuda = config.backends()[2]
    if not cuda.available and "driver is missing" in cuda.detail:
        with pytest.raises(tilekernels.BackendError, match="driver is missing"):
            config.get_num_sms("cuda")


def test_amax_clamps():
    start = {("e4m3", False): 1e-4, ("e4m3", True): 0.875, ("e2m1", False): 6 * 2.0**-126,
             ("e2m1", True): 6 * 2.0**-9}
    for (fmt, use_e4m3_sf), value in start.items():
        assert config.get_amax_clamp_for_quant(fmt, use_e4m3_sf) == numpy.float32(value)
    config.set_amax_clamp_for_quant("e4m3", False, 448.0)
    x = numpy.ones((1, 16), numpy.float32)
    assert quant.per_token_cast(x, "e4m3", 16)[1].tolist() == [[1.0]]
    assert quant.per_token_cast(x, "e4m3", 16, amax_clamp=896.0)[1].tolist() == [[2.0]]
    config.reset_runtime_config()
    assert config.get_amax_clamp_for_quant("e4m3", False) == numpy.float32(1e-4)
    with pytest.raises(ValueError, match=r"fmt must be e4m3 or e2m1, got fp32$"):
        config.set_amax_clamp_for_quant("fp32", False, 1.0)
    for wrong in (0.0, -1.0, numpy.inf, numpy.nan):
        with pytest.raises(ValueError, match=r"^\[set_amax_clamp_for_quant\] "):
            config.set_amax_clamp_for_quant("e2m1", False, wrong)
        with pytest.raises(ValueError, match=r"^\[per_token_cast\] amax_clamp "):
            quant.per_token_cast(x, "e4m3", 16, amax_clamp=wrong)


def test_numpy_scalars_are_taken():
    config.set_num_threads(numpy.int64(2))
    assert config.get_num_threads() == 2
    config.set_check_data(numpy.bool_(False))
    assert config.get_check_data() is False
    config.set_amax_clamp_for_quant("e4m3", numpy.bool_(False), numpy.float32(2.0))
    assert config.get_amax_clamp_for_quant("e4m3", False) == 2.0


@pytest.mark.parametrize("call,message", [
    (lambda: config.set_num_threads(2**63),
     "num_threads must fit in 32 bits, got 9223372036854775808"),
    (lambda: config.set_num_threads("2"), "num_threads must be an integer, got '2'"),
    (lambda: config.set_check_data("no"), "enabled must be True or False, got 'no'"),
    (lambda: config.set_pdl(2), "enabled must be True or False, got 2"),
    (lambda: config.set_cpu_target(None), "target must be a str, got None"),
    (lambda: config.set_backend(1), "backend must be a str or None, got 1"),
    (lambda: config.set_cache_dir(3), "folder must be a str, got 3"),
    (lambda: config.set_log_hook(3), "hook must be callable or None, got 3"),
])
def test_wrong_kinds_are_value_errors(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value).endswith("] " + message)


def test_cache_dir(tmp_path):
    start = config.cache_dir()
    config.set_cache_dir(str(tmp_path))
    config.reset_runtime_config()
    assert config.cache_dir() == str(tmp_path)
    config.set_cache_dir(start)
    assert config.cache_dir() == start


def test_log_hook():
    config.set_log_hook(lambda sentence: None)
    config.set_log_hook(None)
