#!/usr/bin/env bash
# xtask/fresh.sh SUITE [COMMAND…]   runs a command of this repository on a machine with nothing on it: a clone of what is
#                   committed, in a minimal Debian (bookworm) or Ubuntu (jammy, noble) made anew under target/fresh.
#                   Without a command, the README's first screen is walked through (xtask/first-steps.sh).
# As root, with a network and 15 GB of disk. The machine's own certificate authorities are taken along.
set -eu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh

case "${1:-}" in
  bookworm) components=main keyring=debian-archive-keyring script=sid ;;
  jammy | noble) components=main,universe keyring=ubuntu-keyring script=gutsy ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { say "only root may make a machine"; exit 1; }
suite=$1
shift
[ $# -gt 0 ] || set -- xtask/first-steps.sh
if [ -n "${UNCHECKED:-}" ]; then checks=--no-check-gpg; else packages "$keyring" || {
  say "without $keyring nobody can tell whose packages these are; UNCHECKED=1 takes them all the same"
  exit 1
}; fi
packages debootstrap

mkdir -p target/fresh
machine=$(mktemp -d "$PWD/target/fresh/$suite.XXXXXX")
chmod 755 "$machine"
trap 'rm -rf --one-file-system "$machine"' EXIT
say "making a $suite"
debootstrap ${checks:-} --variant=minbase --components="$components" "$suite" "$machine" "" \
  "/usr/share/debootstrap/scripts/$script" >"$machine.log" ||
  { say "debootstrap failed: $machine.log"; exit 1; }
rm -f "$machine.log"
cp -r /usr/local/share/ca-certificates "$machine/usr/local/share/"
cp /etc/resolv.conf "$machine/etc/"
# What an installer writes, and debootstrap does not.
printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$machine/etc/hosts"
mkdir "$machine/newcomer"
git clone --quiet . "$machine/newcomer/weft"

# All that is mounted goes with the namespace, and all that was started with its first process.
inside='
for place in dev sys; do mount --rbind "/$place" "$0/$place"; done
mount -t proc proc "$0/proc"
mount -t tmpfs -o mode=1777 tmpfs "$0/run"
exec chroot "$0" env -i HOME=/newcomer USER=root TERM=dumb CI="${CI:-}" http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  sh -c '\''cd /newcomer/weft && exec "$@"'\'' sh "$@"
'
unshare --mount --pid --fork --kill-child --propagation private bash -euc "$inside" "$machine" "$@"
