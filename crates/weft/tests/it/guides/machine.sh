# A machine for one guide, in namespaces of its own: the hosts that guides name are addresses of the
# loopback, an authority vouches for those of others, and the ports of a guide are free.
#
# Usage: machine.sh PLACE UID WEFT SCENE; run as root by `unshare --net --mount --pid`. In PLACE are the guide's
# commands: block.1, block.2, … SCENE makes what the guide takes for granted, and has each of them run.
set -euo pipefail
place=$1 uid=$2 weft=$3 scene=$4
cd "$place"
ip link set lo up
mount -t proc proc /proc

printf '127.0.0.1 %s\n' localhost "$(hostname)" files.example.org node.example.net >hosts
printf '127.0.0.2 data.example.org\n127.0.0.3 cloud.example.org\n' >>hosts
mount --bind hosts /etc/hosts

# Who vouches for servers: programs ask the bundle, gfal2 the directory.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj '/O=Example/CN=Authority' \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2>openssl.log
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=example.org -keyout host.key -out host.csr 2>>openssl.log
printf 'subjectAltName=DNS:data.example.org,DNS:cloud.example.org\n' >extensions
openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out host.pem 2>>openssl.log
cat ca.pem >bundle; chmod 644 bundle
mount --bind bundle /etc/ssl/certs/ca-certificates.crt
mkdir -p authorities srv home/work
trust() { # trust FILE: whoever is on this machine believes this certificate
  cat "$1" >>bundle
  cp "$1" "authorities/$(openssl x509 -noout -hash -in "$1").0"
}
trust ca.pem
mount --bind srv /srv
echo fail >home/.curlrc
chown -R "$uid:$uid" home srv

home=$place/home
node=$home/.local/share/weft
PATH=$(dirname "$weft"):$PATH

# as UID COMMAND…: away from the settings of whoever runs the tests
as() {
  local who=$1; shift
  (cd "$home/work" && env -i PATH="$PATH" HOME="$home" X509_CERT_DIR="$place/authorities" GFAL_PYTHONBIN=/usr/bin/python3 \
    setpriv --reuid "$who" --regid "$who" --clear-groups "$@")
}
# serves HOST NAME…: a WebDAV server there, over a directory of this machine
serves() {
  local host=$1; shift
  mkdir -p "$host"
  rclone --config /dev/null serve webdav "$host" --addr "$host:443" --cert host.pem --key host.key "$@" >"$host.log" 2>&1 &
  until curl -s "https://$host/" -o /dev/null; do
    kill -0 $! || { cat "$host.log"; exit 1; }
  done
}

# starts OPTION…: a node as the guides have it
starts() {
  as "$uid" weft up --daemon --host files.example.org --host node.example.net --http 0.0.0.0:8420 "$@"
  trust "$node/tls/cert.pem"
}

# said_in GUIDE: the configuration that stands in it
said_in() {
  awk '/^```toml$/ { inside = 1; next } /^```$/ { inside = 0 } inside' \
    "$(dirname "$scene")/../../../../../docs/guides/$1.md"
}

# starts_configured: a node by home/weft.toml, which the guide's first commands set up further
starts_configured() {
  mkdir -p home/.local/share/weft
  chown -R "$uid:$uid" home
  starts --config "$home/weft.toml" --https 0.0.0.0:8421
  rm home/.curlrc
  echo wonderland >home/work/word
  seq 1000 >home/work/run7
  chown "$uid" home/work/*
  echo "export WEFT_CONFIG=$home/weft.toml" >with; cat with block.1 >both; mv both block.1
  block 1
}

# block N: runs the guide's commands as they are written; one that fails ends all. What they say is in block.N.said.
block() {
  echo "== block $1"
  as "$uid" bash -euxo pipefail -c ". '$place/block.$1'" 2>&1 | tee "block.$1.said"
  touch "block.$1.done"
}

# leaves_out N WHY
leaves_out() {
  echo "== block $1 is not run: $2"
  touch "block.$1.done"
}

. "$scene"

for file in block.*; do
  case $file in *.done | *.said) continue ;; esac
  [ -e "$file.done" ] || { echo "$scene forgets $file"; exit 1; }
done
[ ! -e "$node/node.sock" ] || as "$uid" weft down
