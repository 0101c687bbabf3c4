# rsync keeps hard links and attributes, and deletes what went.
left() { rsync -aHXcni --delete "$1/" "$2/"; }
source=$OUT/source copy=$PWD/copy

mkdir -p "$source/a/b" "$source/gone/deep" "$source/empty"
cd "$source"
seq 10000 >a/b/numbers
ln a/b/numbers a/twin
ln a/b/numbers gone/third
echo x >gone/deep/x
ln -s ../b a/link
ln -s nowhere dangling
mkfifo pipe
: >'odd \ name'
setfattr -n user.colour -v red a/twin
setfattr -n user.of -v dir a
chmod 2750 a
touch -d 2001-02-03 a/b

rsync -aHX --delete "$source/" "$copy"
said=$(left "$source" "$copy")
test -z "$said"
cd "$copy"
test "$(stat -c %h a/twin)" = 3
test "$(getfattr --only-values -n user.colour a/b/numbers)" = red

# Names go, kinds change, a link is cut, an attribute changes and one goes.
cd "$source"
rm -r gone
rm a/link
mkdir a/link
echo y >a/link/y
rmdir empty
echo now a file >empty
seq 9 >cut
mv cut a/twin
setfattr -n user.colour -v blue empty
setfattr -x user.of a
said=$(left "$source" "$copy")
test -n "$said"
rsync -aHX --delete "$source/" "$copy"
said=$(left "$source" "$copy")
test -z "$said"
cd "$copy"
test "$(stat -c %h a/twin a/b/numbers)" = '1
1'
test "$(cat empty)" = 'now a file'
test "$(ls)" = 'a
dangling
empty
odd \ name
pipe'

# And out again.
rsync -aHX "$copy/" "$OUT/out"
said=$(left "$source" "$OUT/out")
test -z "$said"
