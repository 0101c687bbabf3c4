leaves_out 1 'the run of all tests is what runs this one, and xtask/fresh.sh runs ./run'
mkdir -p home/results home/work/target/release
ln -s "$weft" home/work/target/release/weft
echo 42 >home/results/answer; chown -R "$uid:$uid" home
block 2 <<<'a good password'
# What was printed is for others as it is.
trust "$node/tls/cert.pem"
curl -sSf "$(grep -o '^https://.*/.weft/link/.*' block.2.said)answer" | grep -x 42
curl -sSf -u 'bob:a good password' https://files.example.org:8421/results/answer | grep -x 42
