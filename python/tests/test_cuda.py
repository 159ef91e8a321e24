"""Tensors of torch in CUDA memory; needs torch and a GPU with kernels."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="torch is absent")
if not torch.cuda.is_available():
    pytest.skip("CUDA is absent", allow_module_level=True)

import tilekernels  # noqa: E402
from tilekernels import quant  # noqa: E402
from tilekernels.moe import topk_gate  # noqa: E402

_CUDA = next(status for status in tilekernels.backends() if status.backend == "cuda")
if not _CUDA.available:
    pytest.skip(f"the cuda backend is absent: {_CUDA.detail}", allow_module_level=True)

KINDS = [
    {}, {"round_sf": True}, {"use_tma_aligned_col_major_sf": True},
    {"round_sf": True, "use_packed_ue8m0": True},
    {"round_sf": True, "use_packed_ue8m0": True, "use_tma_aligned_col_major_sf": True},
]
DELAY = 20_000_000  # cycles, about 10 ms


def randn(rows: int, cols: int, dtype=torch.float32, seed: int = 1) -> torch.Tensor:
    """In host memory."""
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Bytes, dtype, shape and strides."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    for dim, extent in enumerate(expected.shape if expected.numel() else ()):
        assert extent <= 1 or got.stride(dim) == expected.stride(dim)
    as_bytes = [t.cpu().clone(memory_format=torch.contiguous_format).view(torch.uint8)
                for t in (got, expected)]
    assert torch.equal(*as_bytes)


def cast(x: torch.Tensor, **kind) -> tuple:
    return quant.per_token_cast(x, "e4m3", 128, **kind)


@pytest.mark.parametrize("rows", [0, 1, 33, 4096])
def test_topk_gate(rows):
    x = randn(rows, 256)
    got = topk_gate(x.cuda(), 8)
    assert got.device.type == "cuda"
    same(got, topk_gate(x, 8))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
@pytest.mark.parametrize("rows,cols", [(0, 256), (1, 256), (7, 384), (130, 7168)])
def test_per_token_cast_there_and_back(rows, cols, fmt, kind):
    x = randn(rows, cols, torch.bfloat16)
    got = quant.per_token_cast(x.cuda(), fmt, 32, **kind)
    expected = quant.per_token_cast(x, fmt, 32, **kind)
    for g, e in zip(got, expected):
        assert g.device.type == "cuda"
        same(g, e)
    same(quant.cast_back(got, "bf16", (1, 32)), quant.cast_back(expected, "bf16", (1, 32)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_per_block_cast_there_and_back(dtype):
    x = randn(300, 512, dtype)
    got = quant.per_block_cast(x.cuda(), "e4m3", (128, 128))
    expected = quant.per_block_cast(x, "e4m3", (128, 128))
    same(got[0], expected[0])
    same(got[1], expected[1])
    same(quant.cast_back(got, "fp32", (128, 128)), quant.cast_back(expected, "fp32", (128, 128)))


def test_quantized_input():
    x = randn(64, 256)
    quantized = quant.per_token_cast(x, "e4m3", 128)
    got = quant.per_token_cast(tuple(t.cuda() for t in quantized), "e4m3", 32, (1, 128))
    expected = quant.per_token_cast(quantized, "e4m3", 32, (1, 128))
    same(got[0], expected[0])
    same(got[1], expected[1])


@pytest.mark.parametrize("offset", [1, 2, 4, 8])
def test_views_off_by_elements(offset):
    whole = randn(20, 600, torch.bfloat16)
    on_device = whole.cuda()
    view, expected = (t[1::3, offset:offset + 512] for t in (on_device, whole))
    for g, e in zip(cast(view), cast(expected)):
        same(g, e)


def test_given_outputs():
    x = randn(6, 256)
    expected = cast(x)
    out = tuple(torch.empty_like(t, device="cuda") for t in expected)
    got = quant.per_token_cast(x.cuda(), "e4m3", 128, out=out)
    assert got[0] is out[0] and got[1] is out[1]
    same(out[0], expected[0])
    same(out[1], expected[1])


def test_outputs_are_torchs_memory():
    x = randn(1024, 4096, torch.bfloat16).cuda()
    cast(x)
    before = torch.cuda.memory_allocated()
    out = cast(x)
    held = sum(t.numel() * t.element_size() for t in out)
    assert held <= torch.cuda.memory_allocated() - before < held + (1 << 20)
    del out
    assert torch.cuda.memory_allocated() == before


def test_runs_on_the_current_stream():
    expected = randn(512, 1024, torch.bfloat16)
    source = expected.pin_memory()
    x = torch.zeros(512, 1024, dtype=torch.bfloat16, device="cuda")
    cast(x)  # loads the kernel
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY)
        x.copy_(source, non_blocking=True)
        got = cast(x)  # before the copy on any other stream
    assert not stream.query()  # nothing waited
    stream.synchronize()
    for g, e in zip(got, cast(expected)):
        same(g, e)


def test_threads_have_streams_of_their_own():
    expected = [topk_gate(randn(64, 128, seed=i), 6) for i in range(4)]
    failures = []

    def work(i: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                x = randn(64, 128, seed=i).cuda()
                for _ in range(50):
                    same(topk_gate(x, 6), expected[i])
        except BaseException as error:  # pragma: no cover
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_graph_replays():
    first, second = (randn(128, 1024, torch.bfloat16, seed) for seed in (1, 2))
    x = first.cuda()
    scores = randn(128, 256).cuda()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # the warm-up
        quant.cast_back(cast(x), "bf16", (1, 128))
        topk_gate(scores, 8)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = cast(x)
        ids = topk_gate(scores, 8)
        back = quant.cast_back(out, "bf16", (1, 128))
    for host in (second, first):
        x.copy_(host)
        new_scores = randn(128, 256, seed=int(host is first) + 5)
        scores.copy_(new_scores)
        graph.replay()
        torch.cuda.synchronize()
        expected = cast(host)
        same(out[0], expected[0])
        same(out[1], expected[1])
        same(ids, topk_gate(new_scores, 8))
        same(back, quant.cast_back(expected, "bf16", (1, 128)))


def test_first_compile_in_a_capture_is_refused():
    scores = randn(16, 97).cuda()
    x = torch.ones(8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    message = r"^\[topk_gate\] must be called once with this shape, these options and memory "
    with torch.cuda.graph(graph):
        y = x + 1
        with pytest.raises(tilekernels.BackendError, match=message):
            topk_gate(scores, 5)
        z = y * 2
    x.fill_(3)
    graph.replay()  # the refusal has not broken the capture
    torch.cuda.synchronize()
    assert z.tolist() == [8.0] * 8
    same(topk_gate(scores, 5), topk_gate(scores.cpu(), 5))


def test_faults_are_reported_when_asked_for():
    x = randn(40, 64)
    good = topk_gate(x, 6)
    x[17, 3] = float("nan")
    x[31, 5] = float("inf")
    got = topk_gate(x.cuda(), 6)  # does not wait, so cannot throw
    with pytest.raises(tilekernels.DataError) as caught:
        tilekernels.check_errors()
    assert caught.value.row == 17
    tilekernels.check_errors()  # reported once
    rows = [row for row in range(40) if row not in (17, 31)]
    same(got[rows], good[rows])
    assert ((got >= 0) & (got < 64)).all()


def test_faults_of_another_stream():
    x = randn(4, 64)
    x[2] = float("nan")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        topk_gate(x.cuda(), 6)
    with pytest.raises(tilekernels.DataError) as caught:
        tilekernels.check_errors(stream.cuda_stream)
    assert caught.value.row == 2


def test_dependent_launch_waits_for_what_it_reads():
    inputs = [randn(4096, 1024, torch.bfloat16) for _ in range(2)]
    expected = [quant.cast_back(cast(x), "bf16", (1, 128)) for x in inputs]
    on_device = [x.cuda() for x in inputs]
    codes = cast(on_device[0])
    back = []
    tilekernels.set_pdl(True)
    # The same memory holds other codes at every turn: a read too early finds the last ones.
    for turn in range(20):
        quant.per_token_cast(on_device[turn % 2], "e4m3", 128, out=codes)
        back.append(quant.cast_back(codes, "bf16", (1, 128)))
    for turn in range(20):
        same(back[turn], expected[turn % 2])


def test_more_elements_than_32_bits_count():
    rows, cols = 300_001, 7168  # 2.15e9
    if torch.cuda.mem_get_info()[0] < 16 << 30:
        pytest.skip("16 GiB of GPU memory are absent")
    x = torch.zeros(rows, cols, dtype=torch.bfloat16, device="cuda")
    last = randn(64, cols, torch.bfloat16)
    x[-64:] = last.cuda()
    out, out_sf = cast(x)
    expected = cast(last)
    same(out[-64:], expected[0])
    same(out_sf[-64:], expected[1])
    assert int(out[:-64].view(torch.uint8).max()) == 0


def test_arrays_of_two_devices_are_refused():
    x = randn(4, 256)
    out = (torch.empty(4, 256, dtype=torch.float8_e4m3fn), torch.empty(4, 2))
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] out\.data "):
        quant.per_token_cast(x.cuda(), "e4m3", 128, out=out)
    with pytest.raises(ValueError, match=r"^\[topk_gate\] backend "):
        topk_gate(x.cuda(), 4, backend="cpu")


two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="a second GPU is absent")


@two_devices
def test_the_tensors_device_decides():
    x = randn(64, 1024, torch.bfloat16)
    expected = cast(x)
    for current in (0, 1):
        with torch.cuda.device(current):
            for index in (1, 0):
                got = cast(x.to(f"cuda:{index}"))
                assert torch.cuda.current_device() == current
                for g, e in zip(got, expected):
                    assert g.device.index == index
                    same(g, e)


@two_devices
def test_the_other_devices_stream_and_faults():
    x = randn(64, 128)
    x[9] = float("nan")
    with torch.cuda.device(0):
        stream = torch.cuda.Stream("cuda:1")
        with torch.cuda.stream(stream):
            torch.cuda._sleep(DELAY)
            topk_gate(x.to("cuda:1", non_blocking=True), 6)
        with pytest.raises(tilekernels.DataError) as caught:
            tilekernels.check_errors(stream.cuda_stream)
        assert caught.value.row == 9
        assert torch.cuda.current_device() == 0


@two_devices
def test_graphs_of_two_devices():
    for index in (0, 1):
        with torch.cuda.device(index):
            x = randn(32, 512, torch.bfloat16).cuda()
            cast(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Left out, the stream is one that torch keeps, on the device of the first capture.
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                out = cast(x)
            new = randn(32, 512, torch.bfloat16, seed=3)
            x.copy_(new)
            graph.replay()
            torch.cuda.synchronize()
            same(out[0], cast(new)[0])


@two_devices
def test_threads_on_two_devices():
    expected = topk_gate(randn(64, 128), 6)
    failures = []

    def work(index: int) -> None:
        try:
            torch.cuda.set_device(1 - index)
            x = randn(64, 128).to(f"cuda:{index}")
            for _ in range(50):
                same(topk_gate(x, 6), expected)
                assert torch.cuda.current_device() == 1 - index
        except BaseException as error:  # pragma: no cover
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
