#!/usr/bin/env bash
# Installs what is missing, builds everything, and runs every test: scripts/test.sh [ctest options]
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

install_packages build test
scripts/fetch_model.sh
scripts/fetch_chat_templates.sh || say "The chat templates could not be fetched; their test skips."
scripts/fetch_xgrammar.sh || say "Structured output is left out."
python3 -m pip install --quiet --disable-pip-version-check --upgrade --target build/python -r tests/perfetto/requirements.txt ||
  say "The Perfetto UI could not be installed; its test skips."
python3 -m pip install --quiet --disable-pip-version-check --upgrade --target build/python -r tests/serve/requirements.txt ||
  say "OpenAI's client and jsonschema could not be installed; their tests skip."
# The package asks for JupyterLab, too, which what is tested has no use for.
python3 -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target build/python -r tests/perfetto/hta_requirements.txt ||
  say "HolisticTraceAnalysis could not be installed; its test skips."
python3 -m pip install --quiet --disable-pip-version-check --upgrade --target build/python -r tests/speed/requirements.txt ||
  say "cuobjdump could not be installed; the test of the recorded CUDA kernels skips."
configure release
cmake --build --preset release
find_gpu "the tests that need one skip"
code=0
ctest --preset release --no-tests=error --parallel "$(nproc)" "$@" || code=$?
skipped=$(sed -n '/: Skipped$/{n;p}' build/release/Testing/Temporary/LastTest.log | sort | uniq -c | sort -rn) || true
[ -z "$skipped" ] || say "How many tests were skipped, and why:" "$skipped"
exit "$code"
