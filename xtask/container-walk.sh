#!/usr/bin/env bash
# xtask/container-walk.sh PROGRAM   builds packaging/Containerfile around a program that is built (target/debug/weft), for the system that this
#                   machine has, and does with it what operators do: runs it confined, fills it, stops it, kills it, puts a newer image in its place.
#                   `base` makes the base image only: from packages of the machine's own release, once, in target/tools. No registry is asked.
# As root, on a copy of this machine that is thrown away (xtask/throwaway.sh); less than a minute.
set -eEu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh

base=target/tools/base.tar

# make_base: a system with what its release calls essential, as base images have it.
make_base() {
  [ ! -s $base ] || return 0
  mkdir -p target/tools
  mmdebstrap --quiet --format=tar --variant=essential --include=ca-certificates,libgcc-s1,passwd \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" $base.making && mv $base.making $base
}

if [ -z "${THROWAWAY:-}" ]; then
  case "${1:-}" in '' | -*) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
  packages systemd podman crun mmdebstrap binutils curl
  make_base
  [ "$1" != base ] || exit 0
  mkdir -p target/container
  strip -o target/container/weft "$1"
  exec xtask/throwaway.sh xtask/container-walk.sh
fi

. xtask/walk.sh
trap 'say "FAILED: line $LINENO: $BASH_COMMAND"; podman_ logs weft >&2 || true' ERR

work=$(mktemp -d /var/tmp/walk.XXXXXX)
podman_() { podman --root "$work/store" --runroot /run/store --storage-driver overlay --cgroup-manager cgroupfs "$@"; }
# up IMAGE: a container of it, which may do nothing that a node need not, and writes into its volume only.
up() {
  podman_ run --detach --name weft --network host --cgroups disabled --read-only --cap-drop all --security-opt no-new-privileges \
    --volume weft:/var/lib/weft "$1" >/dev/null
  answers
}
answers() {
  until curl -sf http://127.0.0.1:8422/readyz >/dev/null; do
    [ "$(podman_ inspect --format '{{.State.Running}}' weft)" = true ]
    sleep 0.1
  done
}
kept() { curl -sSf -H "Authorization: Bearer $(podman_ exec weft weft login --print)" http://127.0.0.1:8420/large | cmp - "$work/large"; }

# What is built on has authorities, as such images do; what is run on has none.
podman_ import --quiet $base localhost/build >/dev/null
printf 'FROM localhost/build\nRUN rm -r /etc/ssl/certs\n' | podman_ build --quiet --isolation chroot --tag localhost/base - >/dev/null
mkdir "$work/context"
cp packaging/Containerfile target/container/weft "$work/context"
build() {
  podman_ build --quiet --isolation chroot --build-arg BUILD=localhost/build --build-arg BASE=localhost/base --build-arg PROGRAM=weft \
    --tag "$1" "$work/context" >/dev/null
}
build localhost/weft:1
done_with "built"

up localhost/weft:1
[ "$(podman_ exec weft id -un)" = weft ]
[ "$(podman_ exec weft weft whoami)" = admin ]
podman_ exec weft test -s /etc/ssl/certs/ca-certificates.crt
podman_ exec weft weft status >/dev/null
head -c 5000000 /dev/urandom >"$work/large"
curl -sSf -H "Authorization: Bearer $(podman_ exec weft weft login --print)" -T "$work/large" http://127.0.0.1:8420/large
kept
done_with "it runs confined, and serves"

podman_ stop --time 60 weft >/dev/null
[ "$(podman_ inspect --format '{{.State.ExitCode}}' weft)" = 0 ]
podman_ start weft >/dev/null
answers
kept
podman_ kill weft >/dev/null
podman_ wait weft >/dev/null
podman_ start weft >/dev/null
answers
kept
done_with "stopped in time, and killed, it has what it had"

echo >>"$work/context/weft"
build localhost/weft:2
podman_ rm --force --time 60 weft >/dev/null
up localhost/weft:2
kept
podman_ rm --force --time 60 weft >/dev/null
done_with "a newer image in its place has it, too"
