starts
mkdir -p home/work/photos home/work/src/build data.example.org cloud.example.org/dav/photos cloud.example.org/dav/back
for name in a list; do seq 10 >home/work/photos/$name; done
touch home/work/src/{keep,other}.o; echo '- *.tmp' >home/work/rules
chown -R "$uid:$uid" home
seq 1000 >data.example.org/run7.tar
seq 7 >cloud.example.org/dav/photos/b
serves data.example.org
serves cloud.example.org
block 1
block 2
block 3
block 4
block 5
