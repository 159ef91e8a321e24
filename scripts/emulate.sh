#!/usr/bin/env bash
# Runs the command with the CUDA emulator in place of a GPU (docs/cuda.md), for example
#   scripts/emulate.sh verify topk_gate --backend cuda
# Kernels are kept in BUILD/emulator_cache, BUILD being build/ci unless it is given.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build/ci}
export TILEKERNELS_CUDA_LIBRARY=$PWD/$build/tests/cuda_emulator/libtilekernels_cuda_emulator.so
export TILEKERNELS_NVRTC_LIBRARY=$TILEKERNELS_CUDA_LIBRARY
export TILEKERNELS_CACHE_DIR=${TILEKERNELS_CACHE_DIR:-$PWD/$build/emulator_cache}
exec "$build/tools/tilekernels" "$@"
