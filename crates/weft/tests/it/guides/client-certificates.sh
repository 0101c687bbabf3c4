umask 022
mkdir issued given
cat >ca.cnf <<'END'
[ca]
default_ca = d
[d]
new_certs_dir = issued
database = index.txt
serial = serial
crlnumber = crlnumber
default_md = sha256
default_crl_days = 1
policy = any
[any]
countryName = optional
organizationName = optional
commonName = optional
[client]
extendedKeyUsage = clientAuth
END
: >index.txt; echo 01 >serial; echo 01 >crlnumber
ca() { openssl ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key "$@" 2>>openssl.log; }
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /C=NL/O=Grid/CN=Alice -keyout alice.key -out alice.csr 2>>openssl.log
ca -notext -days 1 -extensions client -in alice.csr -out alice.pem
ca -gencrl -out list
cp ca.pem given/grid-ca.pem; cp list given/grid-ca.crl
# The configuration as the guide has it, with a place of this machine's own.
awk '/^```toml$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
  "$(dirname "$scene")/../../../../../docs/guides/client-certificates.md" | sed "s|/etc/weft|$place/given|" >home/weft.toml
mkdir -p home/.local/share/weft
chown -R "$uid:$uid" home
starts --config "$home/weft.toml" --https 0.0.0.0:8421
rm home/.curlrc
echo wonderland >home/work/word
seq 1000 >home/work/run7
cp alice.pem alice.key home/work
chown "$uid" home/work/*
echo "export WEFT_CONFIG=$home/weft.toml" >with; cat with block.1 >both; mv both block.1
block 1
block 2
grep -q 'CN=Alice,O=Grid,C=NL' block.2.said
cmp home/work/run7 home/work/copy
block 3
grep -q "subject .CN=Alice,O=Grid,C=NL., sha256 .*, as " block.3.said
# The id that is told ends it.
id=$(sed -n 's/.*certificate grid, .*, as \([0-9a-f]*\).*/\1/p' block.3.said | head -1)
as "$uid" weft revoke --credential "$id"
as "$uid" curl -s -o said -w '%{http_code}' --cert alice.pem --key alice.key https://node.example.net:8421/lab/run7 | grep -qx 401
