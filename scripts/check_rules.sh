#!/usr/bin/env bash
# The rules of the house that a machine can check: format, rooms, and what code may not do.
set -uo pipefail
cd "$(dirname "$0")/.."
broken=0

report() {  # report RULE HITS: prints the hits, if any, as a broken rule
  [ -n "$2" ] || return 0
  printf 'broken: %s\n%s\n' "$1" "$2"
  broken=1
}

sources=$(git ls-files '*.cpp' '*.h' '*.cuh')

if command -v clang-format-14 >/dev/null; then
  report "clang-format" "$(clang-format-14 --dry-run $sources 2>&1 | grep -E 'warning|error' | head -n 20)"
else
  echo "absent here: clang-format-14"
fi

# The library does not print, abort or read the environment outside core/settings.
report "no printing, aborting or environment in the library" "$(git ls-files src include |
  grep -v -e '^src/cases/' -e '^src/core/settings\.cpp$' |
  xargs grep -nE '\b(printf|puts|std::cout|std::cerr|std::abort|abort\(|getenv|std::exit|exit\()' |
  grep -vE 'snprintf|_exit')"

report "messages are put together in core/message.cpp" "$(git ls-files 'src/*.cpp' 'src/*.h' |
  grep -v -e '^src/cases/' -e '/cases\.cpp$' -e '^src/core/message\.cpp$' |
  xargs grep -nE '^[^/]*"\[[a-z_]+\] ')"

# Rooms: who includes whom.
report "an op includes no other op" "$(
  for folder in src/ops/*/*/; do
    op=${folder#src/}
    grep -nHE '#include "ops/[^/]+/[^/"]+/' "$folder"* 2>/dev/null | grep -v "\"$op"
  done)"
report "core names no op" "$(grep -nE '#include "ops/' src/core/* src/runtime/*/* 2>/dev/null)"
report "op.h includes numerics/ and shared headers of its family only" "$(
  grep -nHE '#include' src/ops/*/*/op.h | grep -vE '"(numerics/|ops/[^/]+/[^/]+\.h"$)')"
report "numerics has no std headers" "$(grep -nHE '#include <' src/numerics/*.h | grep -v -e '-inl\.h')"
report "kernel text for ascend has no std or vendor headers" "$(
  grep -nHE '#include' src/ops/*/*ascend.h src/ops/*/*/*ascend.h src/runtime/ascend/{ring,composites,elementary,faults,row_sum}.h |
    grep -vE '"(numerics|ops|runtime/ascend)/[^"]+"$')"
report "tools use the public headers and the cases" "$(
  grep -nHE '#include "(core|numerics|runtime|io|checkpoint|ops)/' tools/*.cpp tools/*.h 2>/dev/null)"

# Two ops with a same-named helper in a shared target namespace would link silently.
report "cpu helpers stand in an anonymous namespace" "$(
  for file in src/ops/*/*/cpu.cpp; do
    awk -v file="$file" '
      /^namespace HWY_NAMESPACE \{|^namespace tilekernels::cpu::HWY_NAMESPACE \{/ { want = NR + 1 }
      NR == want && !/^namespace \{/ { print file ": line " NR ": " $0 }' "$file"
  done)"

report "no contraction, no fast-math" "$(grep -rnE 'ffast-math|ffp-contract=(fast|on)|Ofast' \
  CMakeLists.txt cmake src tests bench tools python --include=CMakeLists.txt --include='*.cmake' \
  --include='*.cpp' --include='*.h' 2>/dev/null)"
report "README shows examples/quickstart.cpp as it is" "$(
  diff <(sed -n '/^```cpp$/,/^```$/p' README.md | sed '1d;$d') \
       <(sed -n '/^#include/,$p' examples/quickstart.cpp))"
report "no loose ends" "$(git grep -nE '\b(TODO|FIXME|XXX)\b' -- . ':!scripts/check_rules.sh')"

[ $broken -eq 0 ] && echo "rules: all kept"
exit $broken
