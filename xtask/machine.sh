# What `./run` and `./test` need of the machine. Sourced, not run.
# shellcheck shell=bash

export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

say() { printf '%s\n' "$*" >&2; }

# as_root COMMAND…: fails at once where that needs a password.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
  command -v apt-get >/dev/null && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

# missing PACKAGE…: prints those that are not installed.
missing() {
  local name
  for name in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || printf '%s\n' "$name"
  done
}

# packages PACKAGE…: installs what is missing; fails if something then still is.
packages() {
  local wanted name
  command -v dpkg-query >/dev/null || { say "no Debian or Ubuntu: install the like of: $*"; return 1; }
  wanted=$(missing "$@")
  [ -n "$wanted" ] || return 0
  may_install || { say "not installed, and only root may: $(echo $wanted)"; return 1; }
  say "installing: $(echo $wanted)"
  quiet_services
  as_root apt-get update -qq </dev/null
  # All at once is quick; one by one, so that a name this release lacks costs only itself.
  apt_install $wanted || for name in $wanted; do apt_install "$name"; done
  loud_services
  wanted=$(missing "$@")
  [ -z "$wanted" ] || { say "could not install: $(echo $wanted)"; return 1; }
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null
}

# No package may start its daemon while we install it. The file says whose it is, so that one that
# was interrupted is put right by the next.
services_policy=/usr/sbin/policy-rc.d
services_mark='# Weft installs packages: gone when it has.'
quiet_services() {
  [ ! -e "$services_policy" ] || return 0
  printf '#!/bin/sh\n%s\nexit 101\n' "$services_mark" | as_root tee "$services_policy" >/dev/null
  as_root chmod +x "$services_policy"
}

loud_services() {
  ! grep -qsxF "$services_mark" "$services_policy" || as_root rm -f "$services_policy"
}

# at_least HAVE WANT: compares versions.
at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# rust_stated: prints the version of Rust that the repository states, which its lints were checked with.
rust_stated() { sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml; }

# rust COMPONENT…: the installed Rust if it is new enough, else the stated one by rustup.
rust() {
  local want have component
  want=$(rust_stated)
  have=$(rustc --version 2>/dev/null | cut -d' ' -f2)
  if ! at_least "${have:-0}" "$want"; then
    say "Rust ${have:-is not installed}; $want is needed: taking that by rustup"
    command -v rustup >/dev/null || curl --proto '=https' --tlsv1.2 -sSf https://static.rust-lang.org/rustup/rustup-init.sh |
      sh -s -- -y -q --no-modify-path --profile minimal --default-toolchain none || return 1
    rustup toolchain install "$want" --profile minimal || return 1
    export RUSTUP_TOOLCHAIN=$want
  fi
  for component in "$@"; do
    "cargo-$component" --version >/dev/null 2>&1 || rustup component add "$component" || return 1
  done
}

# marked MARK: prints the processes that carry MARK in their environment, whatever
# became of their parents. Only what was started under it does.
marked() {
  grep -slzxF "WEFT_RUN_MARK=$1" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3
}

# end_marked MARK: ends them, kindly, then not.
end_marked() {
  local pids signal
  for signal in TERM KILL; do
    pids=$(marked "$1")
    [ -n "$pids" ] || return 0
    kill -s "$signal" $pids 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      [ -n "$(marked "$1")" ] || return 0
      sleep 0.5
    done
  done
}

# watched SECONDS COMMAND…: runs COMMAND and ends every process it started once it is
# done or the time is up (then the answer is 124).
watched() {
  local limit=$1 mark="$$-$RANDOM$RANDOM" pid watcher answer late
  shift
  late=$(mktemp)
  WEFT_RUN_MARK=$mark "$@" </dev/null &
  pid=$!
  (
    for ((second = 0; second < limit; second++)); do
      kill -0 "$pid" 2>/dev/null || exit 0
      sleep 1
    done
    say "the limit of $limit s is over: ending what was started"
    echo late >"$late"
    end_marked "$mark"
  ) &
  watcher=$!
  wait "$pid"
  answer=$?
  if [ -s "$late" ]; then wait "$watcher"; answer=124; else kill "$watcher" 2>/dev/null; wait "$watcher" 2>/dev/null; fi
  for pid in $(marked "$mark"); do
    say "left running, ended: $pid $(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c1-120)"
  done
  end_marked "$mark"
  rm -f "$late"
  return "$answer"
}
