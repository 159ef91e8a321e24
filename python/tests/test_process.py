"""Threads and forks of the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy
from conftest import same_bytes

import tilekernels
from tilekernels.moe import topk_gate


def run(program: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                            timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_fork_after_use():
    run("""
import os, numpy, tilekernels
tilekernels.set_num_threads(4)
scores = numpy.random.default_rng(0).standard_normal((20000, 64)).astype(numpy.float32)
before = tilekernels.moe.topk_gate(scores, 8)
child = os.fork()
ok = (tilekernels.moe.topk_gate(scores, 8) == before).all()
if child == 0:
    os._exit(0 if ok else 1)
assert ok
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""")


def test_fork_before_use():
    run("""
import multiprocessing, numpy, tilekernels
def work(seed):
    scores = numpy.random.default_rng(seed).standard_normal((5000, 64)).astype(numpy.float32)
    return (tilekernels.moe.topk_gate(scores, 8)[:, 0] == scores.argmax(1)).all()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(pool.map(work, range(4)))
""")


def test_many_threads():
    tilekernels.set_num_threads(2)
    inputs = [numpy.random.default_rng(seed).standard_normal((500, 64)).astype(numpy.float32)
              for seed in range(8)]
    expected = [topk_gate(scores, 8, backend="reference") for scores in inputs]
    failures = []

    def work(number: int) -> None:
        try:
            for _ in range(20):
                same_bytes(topk_gate(inputs[number], 8), expected[number])
        except BaseException as error:  # noqa: BLE001: reported by the test
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_call_lets_other_threads_run():
    # A thread that counts goes on counting while the slow scalar backend works.
    scores = numpy.random.default_rng(0).standard_normal((20000, 256)).astype(numpy.float32)
    counts = []
    stop = threading.Event()

    def count() -> None:
        while not stop.is_set():
            counts.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    begin = time.perf_counter()
    topk_gate(scores, 32, backend="reference")
    end = time.perf_counter()
    stop.set()
    thread.join()
    during = sum(begin < moment < end for moment in counts)
    assert during > 3, (during, end - begin)


def test_environment_is_read_once():
    environment = dict(os.environ, TILEKERNELS_NUM_THREADS="3", TILEKERNELS_BACKEND="reference",
                       TILEKERNELS_CHECK_DATA="0")
    program = ("import tilekernels as t; assert (t.get_num_threads(), t.get_backend(), "
               "t.get_check_data()) == (3, 'reference', False)")
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
