#!/usr/bin/env bash
# xtask/colleagues.sh   does what the README's second screen says, timed: ./run, then a folder of this disk for a colleague
#                       who has nothing but a browser and for one with an account and rclone; checks that each gets the
#                       same bytes and nothing else. For machines with nothing on them: xtask/fresh.sh SUITE xtask/colleagues.sh
set -eu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh
. xtask/walk.sh

place=$(mktemp -d)
tidy_up() {
  ! [ -e "$place/.local/share/weft" ] || weft down || true
  rm -rf --one-file-system "$place"
}

begin_run "$place"
trap 'kill -s TERM $pid 2>/dev/null && wait $pid; rm -rf --one-file-system "$place"' EXIT
shows_node "$place"
end_run
done_with "./run builds and shows a node"

# A home of its own: nothing of whoever runs this is touched.
export HOME=$place PATH="$PWD/target/release:$PATH" XDG_DATA_HOME=$place/.local/share XDG_CONFIG_HOME=$place/.config
trap tidy_up EXIT
cd "$place"
mkdir results
cp -r run/sample/. results/
printf 'nobody else is to read this\n' >private

weft up --daemon --host localhost --http 127.0.0.1:8420
weft share ~/results /results
address=$(weft link create /results --for 7d --json | sed -n 's/.*"url": *"\([^"]*\)".*/\1/p')
[ -n "$address" ]
done_with "a folder is shared, and a link made to it"

# The colleague with a browser: the page that the link leads to, and each file that it names.
trust=(--cacert "$XDG_DATA_HOME/weft/tls/cert.pem")
curl -sSf "${trust[@]}" "$address" | grep -q '<title>'
(cd results && find . -type f -printf '%P\n') >names
while read -r name; do
  curl -sSf "${trust[@]}" "${address%/}/$name" | cmp -s - "results/$name" || { say "$name differs"; exit 1; }
done < <(head -n 20 names)
! curl -sf "${trust[@]}" "https://localhost:8421/results/" -o refused || { say "served without the link"; exit 1; }
done_with "who has the link sees the folder and gets its files, who has not gets nothing"

# The colleague with an account, and rclone.
printf 'builder of bridges\n' >word
weft user add bob --password-stdin <word
weft acl grant /results bob read
packages rclone
rclone copy --ca-cert "$XDG_DATA_HOME/weft/tls/cert.pem" --webdav-url https://localhost:8421/results --webdav-user bob \
  --webdav-pass "$(rclone obscure "$(cat word)")" :webdav: copied
diff -r results copied
! weft cat /private 2>/dev/null || { say "what was not shared is served"; exit 1; }
done_with "who has an account copied it all with rclone"
