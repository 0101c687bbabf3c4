. "$(dirname "$scene")/../authority.sh"
mkdir given
ca() { openssl ca -batch -config ca.cnf -cert ca.pem -keyfile ca.key "$@" 2>>openssl.log; }
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /C=NL/O=Grid/CN=Alice -keyout alice.key -out alice.csr 2>>openssl.log
ca -notext -days 1 -extensions client -in alice.csr -out alice.pem
ca -gencrl -out list
cp ca.pem given/grid-ca.pem; cp list given/grid-ca.crl
# With a place of this machine's own.
said_in client-certificates | sed "s|/etc/weft|$place/given|" >home/weft.toml
cp alice.pem alice.key home/work
starts_configured
block 2
grep -q 'CN=Alice,O=Grid,C=NL' block.2.said
cmp home/work/run7 home/work/copy
block 3
grep -q "subject .CN=Alice,O=Grid,C=NL., sha256 .*, as " block.3.said
# The id that is told ends it.
id=$(sed -n 's/.*certificate grid, .*, as \([0-9a-f]*\).*/\1/p' block.3.said | head -1)
as "$uid" weft revoke --credential "$id"
as "$uid" curl -s -o said -w '%{http_code}' --cert alice.pem --key alice.key https://node.example.net:8421/lab/run7 | grep -qx 401
