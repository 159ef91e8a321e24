#!/usr/bin/env bash
# Shows every Ascend kernel, as it is embedded, and every primitive to clang beside the vendor's
# public headers: names, types and argument counts, nothing is compiled or run.
#
# Usage: scripts/check_ascend_syntax.sh STAND_INS HEADERS [NAME]
#   STAND_INS  a folder with pre.h (keywords), types.h and fns.h (compiler intrinsics), own text
#   HEADERS    a checkout of the public asc-devkit with include/ and impl/; its licence allows
#              software for Huawei processors only, so it is no part of this project
#   NAME       the beginning of what to check (an op, primitives, selftest); all when left out
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2; }
stand_ins=$(cd "$1" && pwd)
sdk=$(cd "$2" && pwd)
only=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/more.h"

flags=(-std=c++17 -fsyntax-only -ferror-limit=0 -w -D__NPU_ARCH__=3510 -D__DAV_C310__
  -D__DAV_C310_VEC__ -D__DAV_VEC__ -DTILEKERNELS_SHAPE={} -DTILEKERNELS_TILE={}
  -include "$stand_ins/pre.h" -include "$stand_ins/types.h" -include "$stand_ins/fns.h"
  -include "$work/more.h" -I"$sdk" -I"$sdk/include" -I"$sdk/include/basic_api"
  -I"$sdk/include/basic_api/reg_compute" -I"$sdk/include/utils" -I"$sdk/impl"
  -I"$sdk/impl/basic_api" -I"$sdk/impl/basic_api/reg_compute")

# embed NAME FILE: writes the text that the library would hold to $work/NAME.cpp.
embed() {
  cmake -DOP="$1" -DFILE="$2" -DROOT="$PWD/src" -DBACKEND=ascend -DOUTPUT="$work/$1.txt" \
    -DDEPFILE="$work/$1.d" -P cmake/embed_text.cmake
  sed -e '1,/R"device_text(/{s/.*R"device_text(//;t;d}' -e '/)device_text"/,$d' \
    "$work/$1.txt" >"$work/$1.cpp"
}

# check NAME: clang's errors, after a stand-in was added for every intrinsic that the headers call
# and the folder does not have.
check() {
  local round
  for round in 1 2 3 4 5 6 7 8; do
    clang++ "${flags[@]}" "$work/$1.cpp" >"$work/$1.log" 2>&1 || true
    local names
    names=$(grep -F "$sdk" "$work/$1.log" |
      sed -nE "s/.*use of undeclared identifier '([a-z_0-9]+)'.*/\1/p" | sort -u)
    [ -n "$names" ] || break
    for name in $names; do
      echo "template <class... A> inline void $name(A&&...) {}" >>"$work/more.h"
    done
  done
  grep -c 'error:' "$work/$1.log" || true
}

total=0
checked=0
report() {
  local errors
  [[ "$1" == "$only"* ]] || return 0
  errors=$(check "$1")
  printf '%-24s %s errors\n' "$1" "$errors"
  [ "$errors" -eq 0 ] || grep 'error:' "$work/$1.log" | head -n 10
  total=$((total + errors))
  checked=$((checked + 1))
}
for header in src/ops/*/*/ascend.h; do
  op=$(basename "$(dirname "$header")")
  printf '#include "%s"\n#include "runtime/ascend/npu/entry.h"\nTILEKERNELS_ENTRY(%s)\n' \
    "${header#src/}" "$op" >"$work/$op.h"
  embed "$op" "$work/$op.h"
  report "$op"
done
embed primitives "$PWD/tests/ascend/primitives.h"
report primitives
embed selftest "$PWD/src/runtime/ascend/npu/selftest.h"
questions=$(sed -nE 's/.*kNumQuestions = ([0-9]+);/\1/p' src/runtime/ascend/npu/questions.h)
for ((question = 0; question < questions; ++question)); do
  { echo "#undef TILEKERNELS_SHAPE"; echo "#define TILEKERNELS_SHAPE {$question}"
    cat "$work/selftest.cpp"; } >"$work/selftest_$question.cpp"
  report "selftest_$question"
done
echo "$checked texts (kernels, every primitive, questions of the self-test): $total errors"
[ "$total" -eq 0 ]
