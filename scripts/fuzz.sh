#!/usr/bin/env bash
# Builds the libFuzzer harnesses, as scripts/sanitize.sh asan does, and runs them: a fixed, repeatable share through ctest, or one for as long as wanted
#   scripts/fuzz.sh [HARNESS [libFuzzer options]]      e.g. scripts/fuzz.sh gguf -max_total_time=600
# New inputs of the second form gather in build/asan/corpus/HARNESS; what broke it is written beside as crash-*.
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build test
configure asan
cmake --build --preset fuzz
[ $# -gt 0 ] || exec ctest --preset fuzz --no-tests=error --parallel "$(nproc)"
harness=$1
shift
mkdir -p "build/asan/corpus/$harness"
exec "build/asan/bin/fuzz_$harness" "-artifact_prefix=build/asan/corpus/" "$@" "build/asan/corpus/$harness" "tests/fuzz/corpus/$harness"
