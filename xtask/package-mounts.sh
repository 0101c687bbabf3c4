# What operators have a machine mount: /etc/fstab, systemd, autofs, somebody's own session. A part of xtask/package-walk.sh, on
# the copy of the machine where its package is installed and its node runs. The recipes are those of the guide, as they stand there.
# shellcheck shell=bash

# recipe FILE: prints what docs/guides/mounting.md has for a file.
recipe() {
  awk -v first="# $1" '/^```/ { inside = !inside; begins = inside; on = 0; next } begins { on = $0 == first; begins = 0; next } on' \
    /repository/docs/guides/mounting.md | grep .
}
# the_mount DIR: prints the process that serves it.
the_mount() { pgrep --full "^(/usr/bin/)?weft mount .*$1( |\$)"; }
gone() { ! mountpoint -q "$1" && ! the_mount "$1" >/dev/null; }
alice() { (cd / && runuser -u alice -- env HOME=$home "$@"); }
# served DIR: mounted, by alice's own process that has nothing of root, for nobody but her.
served() {
  local pid line
  says fuse.weft findmnt --noheadings --output FSTYPE --types fuse.weft --mountpoint "$1"
  pid=$(the_mount "$1")
  for line in "Uid:	$(id -u alice)	$(id -u alice)	$(id -u alice)" 'CapEff:	0000000000000000' 'Groups:	 $'; do
    grep -q "^$line" "/proc/$pid/status" || { say "it runs without: $line"; return 1; }
  done
  says / readlink "/proc/$pid/cwd"
  refused grep -qz 'weft_' "/proc/$pid/environ" "/proc/$pid/cmdline"
  says 'the plan' alice cat "$1/plan"
  refused ls "$1"
}
# taken_away DIR COMMAND…: COMMAND ends it, and its process leaves nothing.
taken_away() {
  local dir=$1
  shift
  "$@"
  soon gone "$dir"
  # What it had to say stays, and would be shown here.
  says '' find /tmp -name 'weft-mount-*' -exec tail --verbose {} +
}
# fails_with CODE WORDS COMMAND…: that is its exit code, and it says those words.
fails_with() {
  local code=$1 words=$2 answer=0
  shift 2
  "$@" >refused 2>&1 || answer=$?
  [ "$answer" = "$code" ] && grep -q -- "$words" refused || { say "$*: $answer"; cat refused >&2; return 1; }
}

home=/srv/alice
useradd --create-home --home-dir $home --shell /bin/sh alice
weft_ user add alice --uid "$(id -u alice)" --no-password
weft_ mkdir /plans
weft_ acl grant /plans alice write
mkdir /mnt/plans
echo 'the plan' >plan
weft_ cp "$work/plan" weft:/plans/plan

recipe /etc/fstab >/etc/fstab
systemctl daemon-reload
says '' systemd-analyze verify /run/systemd/generator/mnt-plans.mount remote-fs.target
says '' mount /mnt/plans
served /mnt/plans
says weft:/plans findmnt --noheadings --output SOURCE /mnt/plans
says '' mount -a
alice sh -c 'echo more >>/mnt/plans/plan'
alice weft --node $data cat /plans/plan | grep -q more
echo 'the plan' | weft_ cp - weft:/plans/plan
taken_away /mnt/plans umount /mnt/plans
mount /mnt/plans
taken_away /mnt/plans kill "$(the_mount /mnt/plans)"
done_with "a line of /etc/fstab: mounted as its user, for nobody else; umount ends it, and so does its own end"

systemctl start mnt-plans.mount
served /mnt/plans
pid=$(the_mount /mnt/plans)
systemctl restart weft
says "$pid" the_mount /mnt/plans
served /mnt/plans
taken_away /mnt/plans systemctl stop mnt-plans.mount
done_with "systemd starts and stops that line, and the node's restart does not end it"

with() { mount -t weft -o "node=$data,$1" weft:/plans /mnt/plans; }
with setuid=alice,ro
fails_with 2 'Read-only file system' alice sh -c ': >/mnt/plans/new'
umount /mnt/plans
with "setuid=$(id -u alice),noexec,rw"
alice sh -c 'printf "#!/bin/sh\n" >/mnt/plans/run; chmod +x /mnt/plans/run'
fails_with 126 'Permission denied' alice /mnt/plans/run
taken_away /mnt/plans umount /mnt/plans
fails_with 1 'nothing says for whom' with ro
fails_with 1 'no such user' with setuid=nobody-here
fails_with 1 'option user: mount(8) takes' with user=alice
fails_with 1 'option allow_other: everybody' with setuid=alice,allow_other
fails_with 1 'option frob: it is not known' with setuid=alice,frob=1
fails_with 1 'starts with `weft:/`' mount -t weft -o setuid=alice /plans /mnt/plans
fails_with 32 'not empty' mount -t weft -o "setuid=alice,node=$data" weft:/plans /etc
fails_with 32 '/nowhere: ' mount -t weft -o "setuid=alice,node=$data" weft:/nowhere /mnt/plans
fails_with 32 'no node\|not there\|nothing listens\|No such' mount -t weft -o setuid=alice,node=/nowhere weft:/plans /mnt/plans
fails_with 1 'option allow_other' mount.weft weft:/plans /mnt/plans -s -n -o "frob,allow_other,setuid=alice,node=$data"
mount.weft weft:/plans /mnt/plans -f -s -o "frob,setuid=alice,node=$data"
gone /mnt/plans
mount -t fuse.weft -o "setuid=alice,node=$data" weft:/plans /mnt/plans
served /mnt/plans
taken_away /mnt/plans umount /mnt/plans
done_with "options are honoured or refused by name, and what fails leaves nothing"

(umask 077; alice weft --node $data token create fstab --rights read --path /plans) >token
install -m 600 -o alice token $home/plans.token
with setuid=alice,token_file=$home/plans.token
served /mnt/plans
fails_with 2 'Permission denied' alice sh -c ': >/mnt/plans/new'
taken_away /mnt/plans umount /mnt/plans
chmod 644 $home/plans.token
fails_with 32 'chmod 600' with setuid=alice,token_file=$home/plans.token
done_with "a token from a file says what it may"

echo "weft:/plans $home/plans weft user,noauto,node=$data 0 0" >/etc/fstab
alice mkdir $home/plans
alice mount $home/plans
the_mount $home/plans >/dev/null
says 'the plan' alice cat $home/plans/plan
taken_away $home/plans alice umount $home/plans
echo "weft:/plans /mnt/plans weft user,noauto,setuid=weft,node=$data 0 0" >/etc/fstab
fails_with 1 'only root mounts for somebody else' alice mount /mnt/plans
done_with "who is not root mounts a line that lets them for themselves"

recipe '/etc/fstab, mounted at the first access' >/etc/fstab
systemctl daemon-reload
systemctl start mnt-plans.automount
gone() { ! the_mount "$1" >/dev/null; }
says '' the_mount /mnt/plans
says 'the plan' alice cat /mnt/plans/plan
served /mnt/plans
taken_away /mnt/plans umount /mnt/plans
says 'the plan' alice cat /mnt/plans/plan
taken_away /mnt/plans systemctl stop mnt-plans.automount
: >/etc/fstab
for unit in mnt-plans.mount mnt-plans.automount; do recipe /etc/systemd/system/$unit >/etc/systemd/system/$unit; done
systemctl daemon-reload
says '' systemd-analyze verify /etc/systemd/system/mnt-plans.{mount,automount}
systemctl --quiet enable --now mnt-plans.mount
served /mnt/plans
taken_away /mnt/plans systemctl --quiet disable --now mnt-plans.mount
systemctl --quiet enable --now mnt-plans.automount
says 'the plan' alice cat /mnt/plans/plan
served /mnt/plans
taken_away /mnt/plans systemctl --quiet disable --now mnt-plans.automount
systemctl stop mnt-plans.mount
rm /etc/systemd/system/mnt-plans.*
systemctl daemon-reload
done_with "automount units mount at the first access"

for file in /etc/auto.master.d/weft.autofs /etc/auto.weft; do recipe $file >$file; done
systemctl start autofs
says 'the plan' alice cat /weft/plans/plan
served /weft/plans
taken_away /weft/plans systemctl stop autofs
rm /etc/auto.master.d/weft.autofs /etc/auto.weft
done_with "autofs mounts at the first access, and takes it away"

# Her own systemd, as logind would start it.
runtime=/run/user/$(id -u alice)
install -d -m 700 -o alice "$runtime"
systemd-run --quiet --unit=session --uid=alice --property=Delegate=yes --setenv=HOME=$home --setenv="XDG_RUNTIME_DIR=$runtime" \
  /lib/systemd/systemd --user
session() { alice XDG_RUNTIME_DIR="$runtime" systemctl --user "$@"; }
soon session --quiet is-active default.target
session enable --quiet --now weft-mount
says 'the plan' alice cat $home/weft/plans/plan
# Killed, it leaves a dead mount, which is taken away before the next.
kill -9 "$(the_mount $home/weft)"
soon alice test -e $home/weft/plans/plan
taken_away $home/weft session stop weft-mount
systemctl stop session
done_with "a service of somebody's own session mounts the tree for them"

: >/etc/fstab
rmdir /mnt/plans
weft_ user disable alice
userdel --remove alice 2>/dev/null
