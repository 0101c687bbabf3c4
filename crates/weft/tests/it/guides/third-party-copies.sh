mkdir -p data.example.org "$node"
for name in run7 run8; do seq 1000 >data.example.org/$name; done
printf '[http]\nthird-party-to = ["127.0.0.2"]\n' >home/weft.toml; chown -R "$uid:$uid" home
starts --config "$home/weft.toml"
as "$uid" weft mkdir /bio
serves data.example.org
block 1
block 2
