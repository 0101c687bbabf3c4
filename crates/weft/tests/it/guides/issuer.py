"""An issuer of tokens for tests: its keys by openssl, its two documents over HTTPS.

issuer.py key DIR ID          makes a key, and adds it to those that DIR shows
issuer.py token DIR ID JSON   prints a token that says this, of that key
issuer.py serve DIR URL CERT KEY [PORT]   shows DIR; prints the port; what is asked for goes to DIR/asked
"""
import base64, http.server, json, os, ssl, subprocess, sys


def coded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def openssl(*args, text=b""):
    return subprocess.run(["openssl", *args], input=text, check=True, capture_output=True).stdout


def key(where, name):
    file = f"{where}/{name}.pem"
    openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", file)
    modulus = openssl("rsa", "-in", file, "-noout", "-modulus").decode().strip().split("=")[1]
    shown = f"{where}/www/jwks"
    keys = json.load(open(shown)) if os.path.exists(shown) else {"keys": []}
    keys["keys"].append({"kty": "RSA", "kid": name, "use": "sig", "alg": "RS256",
                         "n": coded(bytes.fromhex(modulus)), "e": "AQAB"})
    json.dump(keys, open(shown, "w"))


def token(where, name, claims):
    head = json.dumps({"alg": "RS256", "kid": name, "typ": "JWT"})
    signed = f"{coded(head.encode())}.{coded(claims.encode())}"
    print(f"{signed}.{coded(openssl('dgst', '-sha256', '-sign', f'{where}/{name}.pem', text=signed.encode()))}")


def serve(where, url, cert, private, port="0"):
    class Shows(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=f"{where}/www")

        def do_GET(self):
            if os.path.exists(f"{where}/moved") and self.path != "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            super().do_GET()

        def log_message(self, *_):
            print(self.path, file=open(f"{where}/asked", "a"))

    server = http.server.ThreadingHTTPServer(("0.0.0.0", int(port)), Shows)
    url = url.replace("PORT", str(server.server_port))
    os.makedirs(f"{where}/www/.well-known", exist_ok=True)
    about = {"issuer": url, "jwks_uri": f"{url.rstrip('/')}/jwks"}
    json.dump(about, open(f"{where}/www/.well-known/openid-configuration", "w"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


{"key": key, "token": token, "serve": serve}[sys.argv[1]](*sys.argv[2:])
