# Sourced by the scripts, from any folder: changes to the checkout's root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say() { printf '\033[1m%s\033[0m\n' "$@" >&2; }
fail() {
  printf 'error: %s\n' "$@" >&2
  exit 1
}

# install_packages GROUP...: what scripts/packages.txt names and this machine lacks.
install_packages() {
  local group wanted="" missing=() package state
  for group in "$@"; do wanted+=" $(sed -n "s/^$group //p" scripts/packages.txt | tr '\n' ' ')"; done
  command -v dpkg-query >/dev/null || fail "this is no Debian: install the equivalents of$wanted"
  for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || true
    [ "$state" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "these packages are missing, and neither root nor sudo is at hand: ${missing[*]}"
    root=(sudo)
  fi
  say "Installing ${missing[*]}"
  local log
  log=$(mktemp)
  # It is env, since sudo drops the environment.
  if ! { "${root[@]}" apt-get update && "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y \
    --no-install-recommends "${missing[@]}"; } </dev/null >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    fail "the packages could not be installed, for the reason above (all of it: $log)." \
      "Have them installed by other means and run this again:" "  apt-get install ${missing[*]}"
  fi
  rm -f "$log"
}

# configure PRESET [OPTION...]: a compiler cache is taken up by a fresh build folder only, for it would rebuild an old
# one.
configure() {
  local preset=$1
  shift
  if [ ! -e "build/$preset/CMakeCache.txt" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
  fi
  cmake --preset "$preset" "$@" >&2
}

# find_gpu ELSE: sets gpu to its name; to nothing, and says why and what follows, where there is none that the build can
# use.
find_gpu() {
  local why
  gpu=$(nvidia-smi -L 2>/dev/null | sed -n '1s/ (UUID.*//p') || true
  if [ -z "$gpu" ]; then
    say "nvidia-smi -L lists no GPU: $1"
  elif why=$(build/release/bin/tenon plan synthetic:stories15m --set device.use=cuda --set quantization.use=none 2>&1); then
    say "On $gpu"
  else
    say "$gpu cannot be used: $1" "$why"
    gpu=
  fi
}
