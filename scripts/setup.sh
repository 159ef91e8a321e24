#!/usr/bin/env bash
# Installs what the given purposes need and this machine lacks, and says so first.
# Usage: scripts/setup.sh build|demo|test|ci…   (each includes "build")
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build ccache libhwy-dev libfmt-dev nlohmann-json3-dev libcli11-dev)
python_packages=(python3 python3-venv python3-pip)
test_packages=(libgtest-dev)
ci_packages=(clang libclang-rt-dev clang-format-14)

packages=("${build_packages[@]}")
need_venv=0
for purpose in "$@"; do
  case "$purpose" in
    build) ;;
    demo) packages+=("${python_packages[@]}"); need_venv=1 ;;
    test) packages+=("${test_packages[@]}" "${python_packages[@]}"); need_venv=1 ;;
    ci) packages+=("${ci_packages[@]}") ;;
    *) echo "setup: unknown purpose '$purpose'" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' \
    || missing+=("$package")
done
# A Python of the user's own serves as well as the system's.
if python3 -c 'import venv, ensurepip' 2>/dev/null; then
  missing=($(printf '%s\n' "${missing[@]}" | grep -vxE 'python3|python3-venv|python3-pip' || true))
fi
if [ ${#missing[@]} -gt 0 ]; then
  mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
  echo "Installing with apt: ${missing[*]}"
  sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ $need_venv -eq 1 ] && [ ! -x .venv/bin/pip ]; then
  echo "Creating the Python environment .venv"
  python3 -m venv .venv
fi
