#!/usr/bin/env bash
# Builds the Python package into .venv and runs its tests. Usage: scripts/test_python.sh RESULTS.xml
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/pip ] || python3 -m venv .venv
pip=(.venv/bin/pip --quiet --disable-pip-version-check)
"${pip[@]}" install "scikit-build-core>=0.10" "apache-tvm-ffi>=0.1.11" numpy ml_dtypes pytest jax
# The same compiler and flags as the C++ build, so that ccache has compiled most of it already.
export CXX=${CXX:-c++}
"${pip[@]}" install --no-build-isolation --no-deps \
  --config-settings=cmake.define.TILEKERNELS_WERROR=ON .
# From another folder, so that the installed package is what is tested.
tests=$PWD/python/tests
results=$1
cd build
../.venv/bin/python -m pytest -q --rootdir "$tests" --junitxml "$results" "$tests"
