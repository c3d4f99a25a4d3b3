#!/usr/bin/env bash
# From a bare Debian 12 to generated text and a trace of how it came about, on the GPU where there is one:
#   scripts/demo.sh ["prompt"]
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build
scripts/fetch_model.sh
scripts/fetch_xgrammar.sh || say "Structured output is left out."
configure release
cmake --build --preset release --target core/all plugins/all profiler/all apps/all configs/all >&2
find_gpu "computing on the CPU"
exec build/release/bin/tenon generate configs/smollm2.toml ${gpu:+--set device.use=cuda} --chat \
  --prompt "${1:-Why is the sky blue?}" --trace smollm2.trace.json.gz --force
