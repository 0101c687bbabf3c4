"""Reads everything back over HTTP and compares it with what was acknowledged.

usage: readback.py HOST:PORT TOKEN LOG

Per name, the state is what was last acknowledged, or what was tried after that and
not answered. Nothing else may be there, nothing may be half made. Prints how many
acknowledgements it checked; exits with 1 and says what is wrong if anything is.
"""

import hashlib
import http.client
import json
import sys

address, token, log = sys.argv[1:4]
connection = http.client.HTTPConnection(address, timeout=60)


def get(path):
    connection.request("GET", path, headers={"Authorization": "Bearer " + token})
    answer = connection.getresponse()
    return answer.status, answer.read()


def state(name):
    status, body = get("/" + name)
    if status == 404:
        return "gone"
    if status != 200:
        return f"status {status}: {body[:200]!r}"
    return f"{len(body)}:{hashlib.sha256(body).hexdigest()}"


allowed, acknowledged = {}, 0
for line in open(log):
    fields = line.split()
    if len(fields) != 3 or not line.endswith("\n"):
        continue  # the load maker was cut off while it wrote a line
    word, name, what = fields
    if word == "done":
        allowed[name] = {what}
        acknowledged += 1
    else:
        # An act without an answer may have happened. Before the first, there was nothing.
        allowed.setdefault(name, {"gone"}).add(what)

wrong = []
for name, states in sorted(allowed.items()):
    found = state(name)
    if found not in states:
        wrong.append(f"{name} is {found}, not one of {sorted(states)}")

status, listing = get("/?format=json")
names = {entry["name"] for entry in json.loads(listing)["entries"]}
for name in sorted(names):
    # A name beside those of the log is a file whose renaming was cut off.
    if name not in allowed and name.removeprefix("fresh-") not in allowed:
        wrong.append(f"nobody made {name}")
    elif name in allowed and allowed[name] == {"gone"}:
        wrong.append(f"{name} is listed, but was removed")
for name, states in sorted(allowed.items()):
    if "gone" not in states and name not in names:
        wrong.append(f"{name} is not listed")

print("\n".join(wrong[:20]) or f"{acknowledged} acknowledgements hold")
sys.exit(1 if wrong else 0)
