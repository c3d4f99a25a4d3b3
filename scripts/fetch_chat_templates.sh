#!/usr/bin/env bash
# Puts the chat templates that come with llama-cpp-python's source (MIT, the templates each with their model's licence)
# into build/chat_templates, from PyPI or from an archive that is already here:
#   scripts/fetch_chat_templates.sh [path/to/llama_cpp_python-0.3.36.tar.gz]
archive=${1:+$(realpath -- "$1")}
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

folder=build/chat_templates
name=llama_cpp_python-0.3.36
sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
# A folder with the right name has the right files: it gets there by a rename after the check.
[ ! -d "$folder" ] || exit 0

mkdir -p build
work=$(mktemp -d build/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ -z "$archive" ]; then
  say "Fetching chat templates (in an archive of 77 MB) from PyPI"
  python3 -m pip download --quiet --no-deps --no-binary :all: --no-cache-dir --disable-pip-version-check --dest "$work" \
    llama-cpp-python==0.3.36 </dev/null >&2 ||
    fail "PyPI could not be reached, and $folder is not there. On a machine with a network, get $name.tar.gz from" \
      "PyPI (python3 -m pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36), bring it here and run" \
      "  scripts/fetch_chat_templates.sh path/to/$name.tar.gz"
  archive=$work/$name.tar.gz
fi
found=$(sha256sum "$archive" | cut -d ' ' -f 1)
[ "$found" = "$sum" ] || fail "$archive has the sha256 $found; expected $sum"
mkdir "$work/templates"
tar -xzf "$archive" -C "$work/templates" --strip-components 5 "$name/vendor/llama.cpp/models/templates"
mv "$work/templates" "$folder"
