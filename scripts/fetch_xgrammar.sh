#!/usr/bin/env bash
# Puts the sources of XGrammar's C++ core (Apache-2.0) into build/, from PyPI or from an archive that is already here:
#   scripts/fetch_xgrammar.sh [path/to/xgrammar-0.2.8.tar.gz]
# Without them everything but structured output is built.
archive=${1:+$(realpath -- "$1")}
source "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"

name=xgrammar-0.2.8
sum=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80
index=https://pypi.org/simple/xgrammar/
# A folder with the right name has the right sources: it gets there by a rename after the check.
[ ! -d "build/$name" ] || exit 0

mkdir -p build
work=$(mktemp -d build/.fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ -z "$archive" ]; then
  say "Fetching the sources of XGrammar (3 MB) from PyPI"
  archive=$work/$name.tar.gz
  python3 - "$index" "$name.tar.gz" "$archive" <<'PYTHON' ||
import re, sys, urllib.parse, urllib.request
index, name, target = sys.argv[1:]
page = urllib.request.urlopen(index, timeout=60).read().decode()
link = next(link for link in re.findall(r'href="([^"#]+)', page) if link.endswith("/" + name))
with urllib.request.urlopen(urllib.parse.urljoin(index, link), timeout=60) as source, open(target, "wb") as out:
    out.write(source.read())
PYTHON
    fail "PyPI could not be reached, and build/$name is not there. On a machine with a network, get $name.tar.gz from" \
      "  $index" "bring it here and run" "  scripts/fetch_xgrammar.sh path/to/$name.tar.gz"
fi
found=$(sha256sum "$archive" | cut -d ' ' -f 1)
[ "$found" = "$sum" ] || fail "$archive has the sha256 $found; expected $sum"
tar -xzf "$archive" -C "$work" "$name/include" "$name/cpp" "$name/3rdparty/picojson" "$name/3rdparty/dlpack/include" \
  "$name/LICENSE" "$name/NOTICE"
mv "$work/$name" "build/$name"
