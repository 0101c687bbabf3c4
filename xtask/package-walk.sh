#!/usr/bin/env bash
# xtask/package-walk.sh [PROGRAM]   makes the Debian package, of PROGRAM or of one built as it is shipped, and does with it what operators do:
#                   installs it, starts the service, fills it, kills it, mounts it (xtask/package-mounts.sh), upgrades it twice, removes it, installs it again, purges it.
# As root, on a copy of this machine that is thrown away (xtask/throwaway.sh); less than a minute.
set -eEu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh

if [ -z "${THROWAWAY:-}" ]; then
  case "${1:-}" in -*) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
  packages systemd man-db bash-completion lintian curl fuse3 autofs procps
  cargo xtask deb "$@"
  exec xtask/throwaway.sh xtask/package-walk.sh
fi

. xtask/walk.sh
failed() {
  say "FAILED: line $1: $2"
  journalctl --no-pager --output=cat --unit=weft --lines=40 >&2
}
trap 'failed "$LINENO" "$BASH_COMMAND"' ERR

settings=/etc/weft/weft.toml
data=/var/lib/weft backups=/var/lib/weft-backups
work=$(mktemp -d)
chmod 755 "$work"
cd "$work"

# Who runs the service administers it.
weft_() { runuser -u weft -- env HOME=$data weft --node $data "$@"; }
# What a program prints, and nothing else, is equal to WANTED.
says() {
  local wanted=$1 said
  shift
  said=$("$@" 2>&1) || true
  [ "$said" = "$wanted" ] || { say "$* says, for \`$wanted\`: $said"; return 1; }
}
# Fails unless COMMAND does.
refused() { ! "$@" >refused 2>&1 || { say "this went well: $*"; return 1; }; }
# soon COMMAND…: waits until it is so.
soon() {
  local until=$((SECONDS + 60))
  until "$@"; do
    [ $SECONDS -lt $until ] || { say "not in time: $*"; return 1; }
    sleep 0.2
  done
}
# again: another process than that of $pid serves. Its number first: a unit whose process was just killed is active still.
again() {
  local now
  now=$(main_pid)
  [ "$now" != 0 ] && [ "$now" != "$pid" ] && [ "$(systemctl is-active weft)" = active ]
}
main_pid() { systemctl show --property=MainPID --value weft; }
# apt_ VERB WORD…: as an operator's, who answers no questions.
apt_() { DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" </dev/null >apt.said 2>&1 || { cat apt.said >&2; return 1; }; }
# Every path that a package could have left; what systems write of themselves is left out.
everything() {
  local own='^/(etc/(passwd|group|shadow|gshadow|subuid|subgid)|var/(cache|log|tmp|lib/dpkg|lib/apt))'
  find /etc /usr /var /opt /srv -xdev -printf '%p %y %u %m\n' | grep -Ev "$own" | sort
}
# newer VERSION FILE: the package again, of a higher version; the edit of its tree is on standard input.
newer() {
  rm -rf tree
  dpkg-deb --raw-extract weft.deb tree
  sed -i "s/^Version: .*/Version: $1/" tree/DEBIAN/control
  (cd tree && bash -euc "$(cat)")
  dpkg-deb --root-owner-group -Znone --build tree "$2" >/dev/null
}
# filled: puts what people put: a file over HTTP, a tree by a command, a user with a word.
filled() {
  install -d -o weft out
  head -c 5000000 /dev/urandom >large
  curl -sSf -H "Authorization: Bearer $(weft_ login --print)" -T large http://127.0.0.1:8420/large
  cp -r /usr/share/doc/weft tree.put
  weft_ cp -r "$work/tree.put" weft:/tree 2>copied
  echo 'a word of bob' | weft_ user add bob --password-stdin
}
# kept: it is there, byte for byte, and bob may log in; by the program that is installed.
kept() {
  says active systemctl is-active weft
  says /usr/bin/weft readlink "/proc/$(main_pid)/exe"
  curl -sSf -H "Authorization: Bearer $(weft_ login --print)" http://127.0.0.1:8420/large | cmp - large
  rm -rf out/tree
  weft_ cp -r weft:/tree "$work/out/" 2>copied
  diff -r tree.put out/tree
  echo 'a word of bob' | weft_ login bob --password-stdin --print >/dev/null
}

# A machine that never had it, leaves out no manuals, and makes no index of all others'.
rm -f /var/lib/man-db/auto-update
dpkg --purge weft 2>/dev/null
rm -rf /etc/weft /etc/dpkg/dpkg.cfg.d/* /etc/systemd/system/weft.service* $data $backups
! getent passwd weft >/dev/null || userdel weft
everything >before
cp /repository/target/deb/weft_*.deb weft.deb
chmod 644 weft.deb
version=$(dpkg-deb --field weft.deb Version)

lintian --allow-root --fail-on error,warning weft.deb
done_with "lintian finds nothing"

apt_ install ./weft.deb
says '' dpkg --verify weft
dpkg-query --listfiles weft | while read -r path; do
  case $path in
    /usr/bin/weft) wanted='root root 755 regular file' ;;
    /usr/sbin/mount.*weft | /usr/share/man/man8/mount.fuse.weft.8.gz) wanted='root root 777 symbolic link' ;;
    *) if [ -d "$path" ]; then wanted='root root 755 directory'; else wanted='root root 644 regular file'; fi ;;
  esac
  says "$wanted" stat --format='%U %G %a %F' "$path"
done
says "weft $version" weft --version
says weft:$data:/usr/sbin/nologin sh -c 'getent passwd weft | cut -d: -f1,6,7'
[ "$(id -u weft)" -lt 1000 ]
says '!' sh -c 'getent shadow weft | cut -d: -f2'
refused ls -d $data
says disabled systemctl is-enabled weft
says inactive systemctl is-active weft
done_with "installed: files, owners, modes, the user; nothing runs yet"

says '' systemd-analyze verify /usr/lib/systemd/system/weft.service
man weft >page
grep -q 'weft-up(1)' page
man weft-up >page
grep -q 'WEFT_NODE' page
for name in mount.weft mount.fuse.weft; do
  man $name >page
  grep -q 'setuid=' page
done
completed=$(bash --norc -euc '. /usr/share/bash-completion/bash_completion; _completion_loader weft || true
  COMP_WORDS=(weft sta) COMP_CWORD=1 COMP_LINE="weft sta" COMP_POINT=8
  $(complete -p weft | sed "s/.* -F \([^ ]*\) .*/\1/") weft sta weft; echo "${COMPREPLY[@]}"')
says 'status stat' echo "$completed"
done_with "the unit is without a mistake, the manuals are read, bash completes"

systemctl --quiet enable --now weft
pid=$(main_pid)
for line in "Uid:	$(id -u weft)	" 'CapEff:	0000000000000000' 'CapBnd:	0000000000000000' 'NoNewPrivs:	1' 'Seccomp:	2'; do
  grep -q "^$line" "/proc/$pid/status" || { say "the node runs without: $line"; false; }
done
says 'weft weft 711' stat --format='%U %G %a' $data
filled
kept
weft_ status >/dev/null
weft_ doctor
stranger() { setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/nonexistent "$@"; }
says anyone stranger weft --node $data whoami
refused stranger ls $data
# The service writes beside its data into this place only.
weft_ backup $backups/today
install -d -o weft /srv/backups
refused weft_ backup /srv/backups/today
grep -q 'ead-only' refused
rmdir /srv/backups
done_with "it runs as the unit says: confined, as its user, and serves"

systemctl reload weft
says "$pid" main_pid
kill -9 "$pid"
soon again
kept
done_with "killed, it is started again with what it had"

. /repository/xtask/package-mounts.sh

echo 'log = "warn"' >>$settings
cp $settings settings.mine
newer "$version+1" newer.deb <<<''
pid=$(main_pid)
apt_ install ./newer.deb
cmp settings.mine $settings
refused test "$(main_pid)" = "$pid"
kept
done_with "upgraded while it runs: restarted by itself, with the operator's settings"

systemctl stop weft
newer "$version+2" newest.deb <<<'echo "# A line that is new." >>etc/weft/weft.toml'
apt_ -o Dpkg::Options::=--force-confold install ./newest.deb
cmp settings.mine $settings
grep -q 'that is new' $settings.dpkg-dist
says inactive systemctl is-active weft
systemctl start weft
kept
done_with "upgraded while it is stopped: it stays so, and the package's new settings lie beside the operator's"

apt_ remove weft
says inactive systemctl is-active weft
refused test -e /usr/bin/weft
refused test -L /etc/systemd/system/multi-user.target.wants/weft.service
cmp settings.mine $settings
test -d $data/meta -a -d $backups/today
apt_ install ./newest.deb
systemctl start weft
kept
done_with "removed: data and settings stay, and the next installation finds them"

apt_ purge weft
grep -q "people's files stay: $data $backups" apt.said
test -d $data/meta -a -d $backups/today
getent passwd weft >/dev/null
everything | grep -Ev "^($data|$backups)/" >after
says "$(printf '%s d weft 711\n' $data $backups)" comm -13 before after
says '' comm -23 before after
rm -r $data $backups
eval "$(sed -n 's/.*nothing is its any more: //p' apt.said)"
refused getent passwd weft
done_with "purged: people's files and whose they are stay, nothing else; what it says removes the user"

# An operator's own group, and data that lie elsewhere behind a link.
groupadd --system weft
mkdir /srv/elsewhere
ln -s /srv/elsewhere $data
apt_ install ./weft.deb
says weft id -gn weft
apt_ purge weft
test -L $data -a -d /srv/elsewhere
grep -q "people's files stay: $data\$" apt.said
rm $data
rmdir /srv/elsewhere
done_with "purged where its data lie behind a link: the link stays"

apt_ install ./weft.deb
apt_ purge weft
refused grep "people's files" apt.said
everything | cmp before -
done_with "purged before anybody used it: only its user stays"
