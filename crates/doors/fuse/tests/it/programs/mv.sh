# mv moves between directories and file systems.
fails() { ! "$@"; }
inode() { stat -c %i "$1"; }
mkdir -p a/deep/er b
seq 1000 >a/deep/er/f
echo 1 >a/x
echo 2 >b/x
ln -s x a/l
file=$(inode a/deep/er/f) directory=$(inode a/deep)

mv a/deep b/
mv b/deep/er/f a/g
mv -n a/x b/x
mv a/l b
# Moved, and not copied.
test "$(inode a/g)" = "$file"
test "$(inode b/deep)" = "$directory"
test "$(cat a/x b/x b/l)" = '1
2
2'
mv -b a/x b/x
test "$(cat b/x b/x~)" = '1
2'
test "$(ls a b)" = 'a:
g

b:
deep
l
x
x~'
fails mv b b/deep

# To another file system and back: copied, with its modes and times, and removed here.
chmod 640 a/g
touch -d 2001-02-03 a/g
cp -a b "$OUT/was"
mv a/g b "$OUT"
test "$(ls)" = a
mv "$OUT/b" "$OUT/g" .
test "$(stat -c '%a %Y' g)" = '640 981158400'
diff -r --no-dereference b "$OUT/was"
test "$(ls "$OUT")" = was
