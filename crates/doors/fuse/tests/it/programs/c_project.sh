# A real C project is cloned, checked and built, with its own tests; a second build has nothing to do; its product works.
# $SOURCE: its files.
fails() { ! "$@"; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org \
  GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org

cp -r "$SOURCE" "$OUT/bzip2"
git -C "$OUT/bzip2" init -q -b main
git -C "$OUT/bzip2" add -A
git -C "$OUT/bzip2" commit -qm all

git clone -q "file://$OUT/bzip2" bzip2
cd bzip2
git fsck --full --strict
said=$(git status --porcelain)
test -z "$said"
make -j2 >first
grep -q "you're in business" first
# By the times that the mount shows.
make -j2 >second
fails grep -e ' -c ' -e ' -o ' second

./bzip2 -k -9 manual.html
./bzip2 -d -f manual.html.bz2
cmp manual.html "$SOURCE/manual.html"
git diff --exit-code
