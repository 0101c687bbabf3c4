#!/usr/bin/env bash
# passthrough_hp.sh MADE: builds libfuse's example `passthrough_hp` from the distribution's source of
# the library. Lists and source lie in a directory of their own, which goes away.
set -euo pipefail
made=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lists"
for list in /etc/apt/sources.list.d/{debian,ubuntu}.sources; do
  [ ! -e "$list" ] || sed 's/^Types:.*/Types: deb-src/' "$list" >"$work/list.sources"
done
[ -e "$work/list.sources" ] || sed -n 's/^deb /deb-src /p' /etc/apt/sources.list >"$work/list.list"
list=$(echo "$work"/list.*)
apt=(apt-get -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists"
  -o APT::Sandbox::User=root)
cd "$work"
"${apt[@]}" -qq update
"${apt[@]}" -qq source --download-only fuse3
dpkg-source --no-check -x fuse3_*.dsc source >/dev/null
cd source/example
read -ra flags <<<"$(pkg-config fuse3 --cflags --libs)"
g++ -O2 -w -std=c++17 -DHAVE_UTIMENSAT passthrough_hp.cc -I../include -I.. "${flags[@]}" -o "$made.part"
mv "$made.part" "$made"
