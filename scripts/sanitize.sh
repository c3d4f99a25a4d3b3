#!/usr/bin/env bash
# Builds with sanitizers and runs the whole suite under them, with asan also fuzzing's fixed share:
#   scripts/sanitize.sh [asan] [tsan] [ctest options]
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build test
scripts/fetch_model.sh
scripts/fetch_xgrammar.sh || say "Structured output is left out."
presets=()
while [[ ${1:-} =~ ^[at]san$ ]]; do
  presets+=("$1")
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(asan tsan)
for preset in "${presets[@]}"; do
  configure "$preset"
  cmake --build --preset "$preset"
  ctest --preset "$preset" --no-tests=error --parallel "$(nproc)" "$@"
done
