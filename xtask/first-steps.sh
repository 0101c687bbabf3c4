#!/usr/bin/env bash
# xtask/first-steps.sh   does what a newcomer does: ./run, then each command that it prints, then Ctrl-C; checks that all
#                        went well and the files are the same. For machines with nothing on them: xtask/fresh.sh.
set -eu -o pipefail
cd "$(dirname "$0")/.."
. xtask/machine.sh
. xtask/walk.sh

place=$(mktemp -d)
said=$place/said
tidy_up() {
  ! mountpoint -q "$place/grid" || fusermount3 -u -z "$place/grid"
  kill -s TERM "$pid" 2>/dev/null && wait "$pid" || true
  rm -rf --one-file-system "$place"
}

begin_run "$place"
trap tidy_up EXIT
shows_node "$place"
done_with "./run: $(find "$place/run/sample" -type f | wc -l) files, $(du -sm "$place/run/sample" | cut -f1) MB"

# From here on a home of its own: nothing of whoever runs this is touched.
export HOME=$place XDG_CONFIG_HOME=$place/config
cd "$place"
login=$(sed -n 's|.*Log in: \([^ ]*\) / |\1:|p' "$said")
curl -sSf -u "$login" "$(sed -n 's/^  browse *//p' "$said")" | grep -q '<title>'
done_with "browse"
fetch=$(sed -n 's/^  fetch *//p' "$said")
eval "${fetch/-u alice/-sSf -u $login}"
find run/sample -type f -size "$(stat -c %s structure.pdb)c" -exec cmp -s structure.pdb {} \; -print | grep -q .
done_with "fetch"
sed -n '/^  commands/,/^  stop/{/^  stop/d;/./!d;s/^ *//;s/^commands  *//;s/^mount  *//;s/   *(.*//;p}' "$said" >steps
while read -r step <&3; do
  eval "$step" </dev/stdin >output
  done_with "$step"
  case $step in *weft\ mount*) diff -r run/sample grid/md; done_with "the files are the same through the mount" ;; esac
done 3<steps < <(yes "${login#*:}")
end_run
trap 'rm -rf --one-file-system "$place"' EXIT
done_with "stopped"
weft fsck --node "$WEFT_NODE" --dry-run >output
done_with "fsck"
