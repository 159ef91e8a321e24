#!/usr/bin/env bash
# All evidence that needs a GPU, in one run: verify, compute-sanitizer, bench, host costs, first
# calls, the Python tests, a profile of the two slowest shapes. Each step has a time limit; a step
# that fails or runs out of time does not stop the rest.
#
#   bench/gpu_evidence.sh RESULTS [STEP…]
#
# Steps: info warm verify sanitize bench host python profile; all in this order when none is named.
# TILEKERNELS_TOOL is the command (build/release/tools/tilekernels), TILEKERNELS_PYTHON the Python
# that has torch and the package (python3), TILEKERNELS_CUPTI the library that times kernels
# (searched), PROFILE the cases to profile, by spaces (the two shapes with the least share of a
# copy). MINUTES (9) bounds the whole. RESULTS gets summary.txt, a log and a record a step.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
[ $# -ge 1 ] || { sed -n '2,12p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
mkdir -p "$1"
results=$(cd "$1" && pwd)
shift
tool=$(realpath "${TILEKERNELS_TOOL:-build/release/tools/tilekernels}")
python=${TILEKERNELS_PYTHON:-python3}
export TILEKERNELS_CACHE_DIR=${TILEKERNELS_CACHE_DIR:-$PWD/build/kernel_cache}  # not the user's
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(info warm verify sanitize bench host python profile)
deadline=$((SECONDS + ${MINUTES:-9} * 60))
summary=$results/summary.txt
: >"$summary"
failed=0

say() { printf '%s\n' "$*" | tee -a "$summary"; }

step() {  # step NAME SECONDS COMMAND…: runs it with its output in NAME.log; one line of summary
  local name=$1 limit=$2 begin=$SECONDS status
  shift 2
  local left=$((deadline - SECONDS))
  if [ $left -lt 5 ]; then
    say "SKIPPED $name: no time is left"
    failed=$((failed + 1))
    return 1
  fi
  [ "$limit" -lt $left ] || limit=$left
  timeout --kill-after=5 "$limit" "$@" >"$results/$name.log" 2>&1
  status=$?
  case $status in
    0) say "ok      $name ($((SECONDS - begin)) s): $(tail -n 1 "$results/$name.log")" ;;
    5) say "absent  $name: $(tail -n 1 "$results/$name.log")"; status=0 ;;  # pytest ran no test
    124 | 137) say "TIMEOUT $name after $limit s: $(tail -n 1 "$results/$name.log")" ;;
    *) say "FAILED  $name, status $status ($((SECONDS - begin)) s): $(tail -n 1 "$results/$name.log")" ;;
  esac
  [ $status -eq 0 ] || failed=$((failed + 1))
  return $status
}

find_cupti() {
  [ -z "${TILEKERNELS_CUPTI:-}" ] || { echo "$TILEKERNELS_CUPTI"; return; }
  local site
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null)
  find "$site/nvidia" /usr/local/cuda/extras/CUPTI/lib64 /usr/local/cuda/lib64 \
    /usr/local/cuda/targets/*/lib -name 'libcupti.so*' 2>/dev/null | head -n 1
}

run_info() {
  step info 30 "$tool" info
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.limit,temperature.gpu \
    --format=csv >"$results/gpu.txt" 2>&1
}

run_warm() {
  step warm 200 "$tool" cache warm --all-cases --threads "$(nproc)" --cubins "$results/cubins"
  # They stay here unless asked for: the report is what is kept.
  cp "$results/cubins/kernels.json" "$results/kernels.json" 2>/dev/null
  rm -rf "$results/cubins"
}

run_verify() {
  step verify 150 "$tool" verify --backend cuda --record "$results/verify.json"
  step verify-pdl 200 "$tool" verify --backend cuda --small --pdl
}

run_sanitize() {
  if ! command -v compute-sanitizer >/dev/null; then
    say "absent  sanitize: compute-sanitizer"
    return
  fi
  local check pids=()
  for check in memcheck racecheck initcheck synccheck; do  # beside each other: nothing is timed
    step "$check" 240 compute-sanitizer --tool "$check" --error-exitcode 9 --print-limit 20 \
      "$tool" verify --small --backend cuda &
    pids+=($!)
  done
  for check in "${pids[@]}"; do wait "$check" || failed=$((failed + 1)); done
}

run_bench() {
  local cupti options=()
  cupti=$(find_cupti)
  [ -z "$cupti" ] || options=(--cupti "$cupti")
  step bench 240 "$tool" bench --backend cuda "${options[@]}" --record "$results/bench.json" ||
    step bench-events 60 "$tool" bench --backend cuda --reps 30 --record "$results/bench-events.json"
}

run_host() {
  step host-cost 40 "$tool" bench --backend cuda --host-cost --record "$results/host-cost.json"
  step host-cost-python 40 "$python" bench/host_cost.py --tool "$tool" \
    --record "$results/host-cost-python.json"
}

run_python() {
  local tests=$PWD/python/tests
  local pytest=("$python" -m pytest -q -rs -p no:cacheprovider --rootdir "$tests")
  pushd "$results" >/dev/null || return  # so that the installed package is what is tested
  step python-cuda 60 "${pytest[@]}" "$tests/test_cuda.py"
  step python 60 "${pytest[@]}" "$tests" --ignore "$tests/test_cuda.py"
  popd >/dev/null || return
}

# The cases of PROFILE, else the two timed shapes of 1 MiB and more with the least share of a copy.
profiled() {
  if [ -n "${PROFILE:-}" ]; then
    tr ' ' '\n' <<<"$PROFILE"
    return
  fi
  "$python" - "$results/bench.json" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))["results"]
rows = [r for r in rows if r["bytes"] >= 1 << 20 and not r["pdl"]]
for row in sorted(rows, key=lambda r: r["share_of_copy"])[:2]:
    print(row["case"])
END
}

run_profile() {
  if ! command -v ncu >/dev/null; then
    say "absent  profile: ncu"
    return
  fi
  local number=0 case
  while read -r case; do
    number=$((number + 1))
    # The reps are few: each kernel is replayed many times. One launch of the op is kept.
    step "profile-$number" 60 ncu --clock-control none --set full --import-source no \
      --kernel-name "regex:^${case%%/*}_kernel" --launch-skip 2 --launch-count 1 --page details \
      "$tool" bench "$case" --backend cuda --reps 3
    say "        profile-$number is $case"
  done < <(profiled)
}

for name in "${steps[@]}"; do
  case $name in
    info | warm | verify | sanitize | bench | host | python | profile) "run_$name" ;;
    *) say "unknown step: $name"; failed=$((failed + 1)) ;;
  esac
done
say "$([ $failed -eq 0 ] && echo 'every step passed' || echo "$failed steps did not pass")"
[ $failed -eq 0 ]
