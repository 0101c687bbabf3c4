# Uses both libraries on the door named in its arguments, as the user named there, trusting the
# certificate that may be named last.
import io, sys
import httpx, requests
base, user, password = sys.argv[1:4]
verify = sys.argv[4] if len(sys.argv) > 4 else True
body = bytes(range(256)) * 4096
for library, session in (("requests", requests.Session()), ("httpx", httpx.Client(trust_env=False, verify=verify))):
    if library == "requests":
        session.trust_env = False
        session.verify = verify
    session.auth = (user, password)
    url = f"{base}/{library} caf\u00e9.bin"
    data = (lambda b: {"data": b}) if library == "requests" else (lambda b: {"content": b})
    r = session.put(url, **data(body)); assert r.status_code == 201, (library, r.status_code, r.text)
    tag = r.headers["ETag"]
    r = session.get(url); assert r.content == body and r.headers["ETag"] == tag
    r = session.get(url, headers={"Range": "bytes=256-511"}); assert r.status_code == 206 and r.content == body[256:512]
    r = session.get(url, headers={"If-None-Match": tag}); assert r.status_code == 304
    r = session.put(url, **data(b"x"), headers={"If-Match": '"no"'}); assert r.status_code == 412
    def pieces():
        for n in range(100):
            yield b"%04d" % n
    r = session.put(url, **data(pieces())); assert r.status_code == 204, r.text
    r = session.get(url); assert len(r.content) == 400
    r = session.head(url); assert r.headers["Content-Length"] == "400"
    r = session.get(f"{base}/", headers={"Accept": "application/json"})
    entry = next(e for e in r.json()["entries"] if library in e["name"])
    assert entry["size"] == 400 and entry["kind"] == "file" and "%C3%A9" in entry["href"], entry
    r = session.delete(url); assert r.status_code == 204
    r = session.get(url); assert r.status_code == 404 and r.json()["kind"] == "not-found" and r.json()["trace"]
    session.auth = None
    r = session.get(f"{base}/"); assert r.status_code == 401, r.status_code
print("good")
