#!/usr/bin/env bash
# xtask/throwaway.sh SCRIPT [WORD…]   runs a script of this repository as root on a copy of this machine that is thrown away: its own files
#                   under a layer that lies in memory, systemd as the first process, nobody on the network but itself. The repository is
#                   at /repository, read-only, and SCRIPT begins there. What it prints is printed here, and its failure is one here.
# Needs root, overlayfs, cgroup 2, and the package systemd. Nothing of the machine is changed, its clock and its disks included.
set -eu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh

# More than any script here takes.
limit_s=300

case "${1:-}" in '' | -*) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
[ "$(id -u)" = 0 ] || { say "only root may make a machine"; exit 1; }
[ -x /lib/systemd/systemd ] || { say "the package systemd is not installed"; exit 1; }
for kind in overlay cgroup2; do
  grep -qsw "$kind" /proc/filesystems || modprobe "$kind" 2>/dev/null || { say "this kernel has no $kind"; exit 1; }
done

# layer PLACE: puts a layer over the machine's files; the namespaces that follow end with this process.
layer() {
  local place=$1 group machine answer
  mount -t tmpfs -o size=2g,mode=755 tmpfs "$place"
  mkdir "$place"/{upper,work,root,groups}
  mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" overlay "$place/root"
  mount -t cgroup2 none "$place/groups"
  group=$place/groups/throwaway.$$
  mkdir "$group"
  # Whatever ends this process, or the time, ends the machine: of the signals, unshare heeds only KILL.
  (
    echo "$BASHPID" >"$group/cgroup.procs"
    exec setpriv --pdeathsig TERM timeout --signal=KILL --kill-after=1 "$limit_s" \
      unshare --mount --cgroup --uts --ipc --net --pid --fork --kill-child bash -euc "$(declare -f boot); boot \"\$@\"" - "$@"
  ) &
  machine=$!
  trap 'kill "$machine"' TERM
  while kill -0 "$machine" 2>/dev/null; do wait "$machine" && answer=0 || answer=$?; done
  echo 1 >"$group/cgroup.kill"
  # Who was killed there needs a moment to be gone.
  for _ in {1..100}; do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break || sleep 0.1; done
  return $answer
}

# boot PLACE SAID REPOSITORY SCRIPT WORD…: makes it a machine, and hands it over to systemd.
boot() {
  local root=$1/root said=$2 repository=$3 name
  shift 3
  hostname throwaway
  mount -t proc proc "$root/proc"
  # What is set there holds for the whole machine.
  mount --bind "$root/proc/sys" "$root/proc/sys"
  mount -o remount,bind,ro "$root/proc/sys"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t cgroup2 none "$root/sys/fs/cgroup"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  # Nodes of its own: what is given away in it must not be the machine's.
  while read -r name major minor; do mknod -m 666 "$root/dev/$name" c "$major" "$minor"; done <<NODES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
fuse 10 229
autofs 10 235
NODES
  mkdir "$root"/dev/{pts,shm} "$root/repository"
  mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
  ln -s pts/ptmx "$root/dev/ptmx"
  for name in dev/shm tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root/$name"; done
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
  mount --bind "$repository" "$root/repository"
  mount -o remount,bind,ro "$root/repository"
  touch "$root/run/said"
  mount --bind "$said" "$root/run/said"

  # Its services are those that the script starts; none of this machine's, and no disk of it.
  rm -rf "$root"/{etc,lib}/systemd/system/*.{wants,requires} "$root/usr/sbin/policy-rc.d"
  : >"$root/etc/fstab"
  tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
  mkdir -p "$root/run/systemd/system"
  cat >"$root/run/systemd/system/script.service" <<UNIT
[Unit]
Wants=systemd-journald.service
[Service]
Type=oneshot
WorkingDirectory=/repository
Environment=HOME=/root USER=root TERM=dumb THROWAWAY=1 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/bin/bash $(printf '"%s" ' "$@")
ExecStopPost=/bin/sh -c '[ "\$\$SERVICE_RESULT" = success ] && systemctl exit 0 || systemctl exit 1'
StandardOutput=append:/run/said
StandardError=inherit
UNIT
  mkdir "$root/run/before"
  cd "$root"
  pivot_root . run/before
  umount -l /run/before
  # As the first process has it, but where it takes itself for a container's: what is unmounted is so in services' own namespaces.
  mount --make-rshared /
  exec env -i container=throwaway /lib/systemd/systemd --unit=script.service --show-status=no
}

place=$(mktemp -d)
touch "$place.said"
trap 'rm -rf "$place" "$place.said"' EXIT
unshare --mount --propagation private bash -euc "limit_s=$limit_s; $(declare -f layer boot); layer \"\$@\"" - \
  "$place" "$place.said" "$PWD" "$@" &
machine=$!
trap 'kill "$machine"' INT TERM
tail -n +1 -f --sleep-interval=0.2 --pid="$machine" "$place.said" &
while kill -0 "$machine" 2>/dev/null; do wait "$machine" && answer=0 || answer=$?; done
wait
[ "$answer" != 137 ] || say "the machine was ended: by somebody, or after $limit_s s"
exit "$answer"
