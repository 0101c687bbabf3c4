sed -i "s|DIR/|$node/|" block.1
rm home/.curlrc    # who has no account is refused (401), and told so over TLS
block 1
echo fail >home/.curlrc
printf 'machine files.example.org login alice password wonderland\n' >home/.netrc
chmod 600 home/.netrc
chown "$uid" home/.curlrc home/.netrc
seq 9 >home/work/run7
as "$uid" weft user add alice --password-stdin <<<wonderland
as "$uid" weft mkdir /results
as "$uid" weft cp run7 weft:/results/run7
as "$uid" weft acl grant /results alice read
rm home/work/run7
block 2
grep -q "$(grep -o 'certificate sha256 .*' block.1.said | cut -d' ' -f3)" block.2.said
leaves_out 3 'it is for programs that fail'
