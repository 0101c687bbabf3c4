# Small programs that replace a file by another of its name, each in its own way.
seq 3000 >f
chmod 640 f
cp f was
sed -i.bak 's/^7$/seven/' f
cmp f.bak was
test "$(stat -c %a f)" = 640
test "$(grep -n seven f)" = 7:seven

diff -u was f >d || test $? = 1
cp was g
patch -s -b g d
cmp f g
cmp g.orig was
patch -s -R g d
cmp g was

install -D -m 750 f in/side/f
install -b -m 700 was in/side/f
cmp in/side/f~ f
test "$(stat -c %a in/side/f)" = 700

gzip -9 -k f
mv f f2
gzip -d f.gz
cmp f f2
test ! -e f.gz

ar rc a.ar f was
ar r a.ar g
ar d a.ar was
test "$(ar t a.ar)" = 'f
g'
ar p a.ar g | cmp - was

cat f >>f2
sort -n -u -o f2 f2
test "$(wc -l <f2)" = 3000
