"""Makes load on a node until it is killed, and logs each acknowledgement.

usage: load.py WAY LOG ROUND TARGET…
  http   TARGET = HOST:PORT TOKEN      PUT new, PUT over, DELETE
  cli    TARGET = WEFT SCRATCH         weft cp, a new name or an old one
  mount  TARGET = MOUNTPOINT           write + fsync, rename over, unlink

The log has a line `try NAME WHAT` before each act and `done NAME WHAT` after its
acknowledgement arrived, flushed to disk; WHAT is the length and SHA-256 of the bytes
that the name stands for, or `gone`. Each worker has names of its own.
"""

import hashlib
import http.client
import os
import random
import subprocess
import sys
import threading

WORKERS = 4
NAMES = 6
SIZES = [0, 1, 4000, 9000, 70_000, 1 << 20, 3_000_000]

way, log_path, round_number, target = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def say(word, name, what):
    os.write(log, f"{word} {name} {what}\n".encode())
    if word == "done":
        os.fsync(log)


def content(rng):
    size = rng.choice(SIZES)
    data = rng.randbytes(size)
    return data, f"{size}:{hashlib.sha256(data).hexdigest()}"


class Http:
    def __init__(self):
        self.connection = http.client.HTTPConnection(target[0], timeout=60)

    def ask(self, method, name, body=None):
        head = {"Authorization": "Bearer " + target[1]}
        self.connection.request(method, "/" + name, body, head)
        answer = self.connection.getresponse()
        answer.read()
        if answer.status >= 300 and not (method == "DELETE" and answer.status == 404):
            raise OSError(f"{method} {name}: {answer.status}")

    def put(self, name, data, rng):
        self.ask("PUT", name, data)

    def remove(self, name):
        self.ask("DELETE", name)


class Cli:
    def weft(self, *args, **more):
        done = subprocess.run([target[0], *args], capture_output=True, timeout=60, **more)
        if done.returncode:
            raise OSError(done.stderr.decode())

    def put(self, name, data, rng):
        if rng.random() < 0.3:
            return self.weft("cp", "-", "weft:/" + name, input=data)
        path = f"{target[1]}/{name}"
        with open(path, "wb") as file:
            file.write(data)
        self.weft("cp", "--force", path, "weft:/" + name)

    def remove(self, name):
        self.weft("rm", "-f", "/" + name)


class Mount:
    def put(self, name, data, rng):
        # Renamed over the name: in place, a crash may leave part of a write.
        path, fresh = f"{target[0]}/{name}", f"{target[0]}/fresh-{name}"
        with open(fresh, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, path)
        self.flush()

    def remove(self, name):
        try:
            os.unlink(f"{target[0]}/{name}")
        except FileNotFoundError:
            pass
        self.flush()

    def flush(self):
        # What is renamed or removed is durable once its directory is.
        directory = os.open(target[0], os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def work(number):
    rng = random.Random(f"{round_number}/{number}")
    door = {"http": Http, "cli": Cli, "mount": Mount}[way]()
    try:
        while True:
            name = f"{way}-{number}-{rng.randrange(NAMES)}"
            if rng.random() < 0.2:
                say("try", name, "gone")
                door.remove(name)
                say("done", name, "gone")
            else:
                data, what = content(rng)
                say("try", name, what)
                door.put(name, data, rng)
                say("done", name, what)
    except (OSError, http.client.HTTPException) as error:
        print(f"worker {number} ends: {error}", file=sys.stderr)


workers = [threading.Thread(target=work, args=(n,)) for n in range(WORKERS)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
