#!/usr/bin/env bash
# Builds and runs every test of C++ and Python; ends with one line "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh test || exit 1

results=$PWD/build/test-results
rm -rf "$results"
mkdir -p "$results"

# The device text is compiled by NVRTC: the system's, or one from PyPI.
if ! ldconfig -p | grep -q libnvrtc; then
  .venv/bin/pip --quiet --disable-pip-version-check install nvidia-cuda-nvrtc
  export TILEKERNELS_NVRTC_LIBRARY=$(find "$PWD/.venv" -name 'libnvrtc.so.*' | head -n 1)
fi

echo "== C++: build and run"
cmake --preset ci >/dev/null && cmake --build --preset ci || { echo "0 passed, 1 failed"; exit 1; }
GTEST_OUTPUT="xml:$results/" ctest --preset ci --output-junit "$results/ctest.xml"

echo "== Python: build, install and run"
scripts/test_python.sh "$results/pytest.xml"

python3 scripts/count_tests.py "$results"
