#!/usr/bin/env bash
# make.sh WEFT OUT.tar.gz   makes what `older.rs` takes up: the directory of a node that WEFT, an old program, has filled and left in the
#                   midst of its work, and what is in it as that program's mount showed it. As root, by hand: programs as old are built by nobody else.
set -euo pipefail
weft=$(realpath "$1") out=$(realpath -m "$2") here=$(dirname "$(realpath "$0")")
place=$(mktemp -d /tmp/older.XXXXXX)
trap 'as 65534 fusermount3 -uz mount 2>/dev/null || true; kill "${node:-}" 2>/dev/null || true; rm -rf "$place"' EXIT
chmod 755 "$place"
cp "$weft" "$place/weft"
cd "$place"
mkdir home mount work old
chown 65534:65534 home mount work old
own=(env -i PATH="$PATH" HOME="$place/home" TMPDIR="$place/work" WEFT_NODE="$place/old/data" setpriv --clear-groups)
as() { "${own[@]}" --reuid "$1" --regid "$1" "${@:2}"; }
w() { as 65534 ./weft "$@"; }
# What this program does not know yet is left out.
knows() { ./weft "$1" --help >/dev/null 2>&1; }

"${own[@]}" --reuid 65534 --regid 65534 ./weft up --http 127.0.0.1:18420 --ready work/ready >log 2>&1 &
node=$!
until [ -s work/ready ]; do kill -0 $node; sleep 0.1; done
http=http://127.0.0.1:18420
admin=$(w login --print)

# People: an administrator, somebody known by an uid and by a word, somebody shut out, and two groups.
for name in alice bob carol dave; do echo "word of $name" | w user add "$name" --password-stdin; done
w user uid bob 1001
w group add group:admin/administrators alice
echo 'word of alice' | w login alice --password-stdin
w group make team
w group add team bob carol
w group make left
w group add left dave
w group remove left dave 2>/dev/null || true
w user disable carol

# Files of each layout and kind, through the mount and the doors.
w mount / mount --daemon
as 65534 bash -euc '
cd mount
mkdir -p tree/deep/deeper tree/many closed drop
echo small >tree/small
: >tree/empty
awk "BEGIN { for (i = 0; i < 160000; i++) print i % 251, \"acgt\" }" >tree/large
head -c 3000000 tree/large >tree/deep/changed
printf changed | dd of=tree/deep/changed bs=1 seek=1500000 conv=notrunc status=none
truncate -s 5000000 tree/sparse && printf end >>tree/sparse
ln tree/small tree/deep/second
ln -s ../small tree/deep/deeper/link
mkfifo tree/fifo
for i in $(seq 60); do echo $i >tree/many/$i; done
rm tree/many/1?
mv tree/many/20 tree/deep/renamed
echo secret >closed/secret
echo "a name with a blank and ü" >"tree/a b ü"
chmod 640 tree/small && chmod 2750 tree/deep
touch -d "2001-02-03 04:05:06.789 UTC" tree/large tree/deep/second
python3 -c "import os; os.setxattr(\"tree/small\", \"user.origin\", b\"beamline 7\")"
'
as 65534 curl -sSf -H "Authorization: Bearer $admin" -T mount/tree/large "$http/tree/put" >/dev/null
w acl grant /tree group:alice/team read
w acl grant /tree/many bob all
w acl grant --deny /closed group:alice/team read
w acl grant /closed bob read
w acl set --bytes-max 1000000 /drop
echo 'word of bob' | as 1001 ./weft login bob --password-stdin --print >/dev/null || echo "no way in for bob's uid"

if knows token; then
  w token create backup --rights read --path /tree --life 366d >token
  w token create ended --life 366d >ended
  w token revoke ended
fi
if knows link; then w link create /tree/small --for 366d >link; fi
if knows dropbox; then w dropbox create --bytes 1M --files 10 --rate 1M/h /drop; fi

# What it shows, and whom.
as 65534 sh "$here/look.sh" mount >old/seen
for who in alice bob dave; do
  token=$(echo "word of $who" | w login $who --password-stdin --print)
  for path in / /tree/ /tree/small /tree/large /tree/many/3 /tree/deep/renamed /closed/ /closed/secret /drop/ /tree/gone; do
    echo "$who $path $(curl -s -o /dev/null -w '%{http_code}' -H "Authorization: Bearer $token" "$http$path")"
  done
done >old/answers
w umount mount
# In the midst of its work: what is not closed properly has more to be taken up.
curl -sS -H "Authorization: Bearer $admin" -T - "$http/tree/cut" < <(head -c 2000000 /dev/zero; sleep 5) >/dev/null 2>&1 &
until [ "$(find old/data/objects -type f -size +1000k | wc -l)" -gt 4 ]; do sleep 0.1; done
kill -9 $node
wait || true
node=
for name in token ended link; do [ ! -e "$name" ] || cp "$name" old/; done
rm -f old/data/node.sock old/data/log
tar --sort=name --owner=0 --group=0 --sparse -cf - -C old . | gzip -9n >"$out"
ls -la "$out"
