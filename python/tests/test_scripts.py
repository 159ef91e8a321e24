"""The scripts beside the library."""

from __future__ import annotations

import json
import subprocess
import sys

from conftest import ROOT


def kernel_report(folder) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "kernel_report.py"), str(folder)],
                          capture_output=True, text=True, timeout=60, check=False)


def test_kernel_report_says_how_its_input_is_made(tmp_path):
    def refusal() -> str:
        run = kernel_report(tmp_path)
        assert run.returncode == 2 and run.stdout == ""
        assert run.stderr.count("\n") == 1, run.stderr
        assert f"cache warm --arch sm_90a --all-cases --threads 2 --cubins {tmp_path}" in run.stderr
        return run.stderr

    assert f"{tmp_path}/kernels.json: No such file or directory" in refusal()
    (tmp_path / "kernels.json").write_text("[{")
    assert f"{tmp_path}/kernels.json: no JSON" in refusal()


def test_kernel_report_fails_where_registers_are_spilled(tmp_path):
    kernel = {"op": "sample", "arch": "sm_90a", "file": "sample.cubin", "constants": "{1}",
              "registers": 24, "shared_bytes": 0, "spill_bytes": 0, "stack_bytes": 0}
    for spill, status in ((0, 0), (8, 1)):
        kernels = [dict(kernel, spill_bytes=spill)]
        (tmp_path / "kernels.json").write_text(json.dumps(kernels))
        run = kernel_report(tmp_path)
        assert run.returncode == status, run.stdout + run.stderr
        assert ("SPILLS: sample.cubin" in run.stdout) == (spill > 0)
