#!/usr/bin/env bash
# Installs the release into a folder of its own and builds tests/package against it, as a user would.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$PWD/build/package
rm -rf "$prefix"
cmake --preset release -DTILEKERNELS_BUILD_TESTS=OFF -DTILEKERNELS_BUILD_BENCH=OFF >/dev/null
cmake --build --preset release
cmake --install build/release --prefix "$prefix/install" >/dev/null
cmake -S tests/package -B "$prefix/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix/install" >/dev/null
cmake --build "$prefix/build"
"$prefix/build/user"
"$prefix/install/bin/tilekernels" info >/dev/null
echo "package: installed and used"
