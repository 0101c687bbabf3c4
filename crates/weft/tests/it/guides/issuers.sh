printf '127.0.0.4 tokens.example.org\n' >>/etc/hosts
issuer() { python3 "$(dirname "$scene")/issuer.py" "$@"; }
mkdir -p issuer/www
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=tokens.example.org -keyout tokens.key -out tokens.csr 2>>openssl.log
printf 'subjectAltName=DNS:tokens.example.org\n' >extensions
openssl x509 -req -in tokens.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out tokens.pem 2>>openssl.log
issuer key issuer k1
issuer serve issuer https://tokens.example.org/ tokens.pem tokens.key 443 >issuer.log 2>&1 &
until curl -s https://tokens.example.org/jwks -o /dev/null; do
  kill -0 $! || { cat issuer.log; exit 1; }
done
# The configuration as the guide has it, and what leads to an issuer on this machine.
{
  printf 'http.third-party-to = ["127.0.0.4"]\n'
  said_in issuers
} >home/weft.toml
starts_configured
as "$uid" weft mkdir /cms/in
now=$(date +%s)
claims=$(printf '{"iss":"https://tokens.example.org/","sub":"a1b2","jti":"job-7","aud":"https://node.example.net:8421","wlcg.ver":"1.0","iat":%d,"exp":%d,"scope":"storage.read:/ storage.create:/in"}' "$now" "$((now + 600))")
sed -i "1i TOKEN=$(issuer token issuer k1 "$claims")" block.2
block 2
cmp home/work/run7 home/work/copy
block 3
grep -q "subject .a1b2., token .job-7., as " block.3.said
