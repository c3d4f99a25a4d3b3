#!/usr/bin/env bash
# Builds the libFuzzer harnesses and the plugins that they run, as scripts/sanitize.sh asan does, and runs them: a
# fixed, repeatable share through ctest, or one or all of them for as long as wanted
#   scripts/fuzz.sh [HARNESS|all [libFuzzer options]]      e.g. scripts/fuzz.sh gguf -max_total_time=600, or
#                                                               scripts/fuzz.sh all -max_total_time=3600
# New inputs of the second form gather in build/asan/corpus/HARNESS; what broke it is written beside as crash-*. `all`
# runs every harness at once, each with its output in build/asan/corpus/HARNESS.log, and fails if one of them does.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

run_harness() {
  local harness=$1
  shift
  mkdir -p "build/asan/corpus/$harness"
  "build/asan/bin/fuzz_$harness" "-artifact_prefix=build/asan/corpus/" "$@" "build/asan/corpus/$harness" "tests/fuzz/corpus/$harness"
}

install_packages build test
configure asan
cmake --build --preset fuzz
[ $# -gt 0 ] || exec ctest --preset fuzz --no-tests=error --parallel "$(nproc)"
harness=$1
shift
if [ "$harness" != all ]; then
  run_harness "$harness" "$@"
  exit
fi
mkdir -p build/asan/corpus
declare -A running=()
for binary in build/asan/bin/fuzz_*; do
  name=${binary##*/fuzz_}
  run_harness "$name" "$@" >"build/asan/corpus/$name.log" 2>&1 &
  running[$name]=$!
done
failed=0
for name in "${!running[@]}"; do
  wait "${running[$name]}" || { failed=1; echo "fuzz_$name failed: build/asan/corpus/$name.log" >&2; }
done
exit "$failed"
