# What an authority of openssl keeps: whom it signs for, what it has signed, and what it has revoked.
umask 022
mkdir issued
: >index.txt
echo 01 >serial
echo 01 >crlnumber
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
unique_subject = no
[any]
countryName = optional
organizationName = optional
commonName = optional
[client]
extendedKeyUsage = clientAuth
[server]
extendedKeyUsage = serverAuth
END
