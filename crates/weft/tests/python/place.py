"""Writes in place through a mount until its node is killed; and reads back what is there.

usage: place.py place LOG ROUND MOUNTPOINT    writes, and logs what was flushed
       place.py HOST:PORT TOKEN LOG           compares what is there with the log

Each worker has a file of PAGES pages. A write has a number and covers some pages in the midst
of the file; every cell of a page holds that number and the page's own. The log has a line
`try FILE NUMBER FIRST COUNT` before a write and `done FILE NUMBER` once an fsync after it has
returned. A page must hold, all of it, the last write that was flushed, or one tried after that.
"""

import http.client
import os
import random
import struct
import sys
import threading

WORKERS = 4
PAGES = 200
PAGE = 4096
ROUND = 1_000_000  # writes of one round have numbers from a multiple of it
CELL = struct.Struct(">QQ")


def page(number, index):
    return CELL.pack(number, index) * (PAGE // CELL.size)


def load(log_path, round_number, mount):
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(*words):
        os.write(log, (" ".join(map(str, words)) + "\n").encode())
        if words[0] == "done":
            os.fsync(log)

    def work(worker):
        rng = random.Random(f"{round_number}/{worker}")
        name, number = f"place-{worker}", int(round_number) * ROUND
        try:
            file = os.open(f"{mount}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
            if os.fstat(file).st_size < PAGES * PAGE:
                say("try", name, number, 0, PAGES)
                os.pwrite(file, b"".join(page(number, n) for n in range(PAGES)), 0)
                os.fsync(file)
                directory = os.open(mount, os.O_RDONLY)
                os.fsync(directory)
                os.close(directory)
                say("done", name, number)
            while True:
                tried = []
                for _ in range(rng.randrange(1, 4)):
                    number += 1
                    count = rng.choice([1, 1, 3, 40, 100])
                    first = rng.randrange(PAGES - count)
                    say("try", name, number, first, count)
                    data = b"".join(page(number, n) for n in range(first, first + count))
                    if os.pwrite(file, data, first * PAGE) != len(data):
                        raise OSError("a short write")
                    tried.append(number)
                os.fsync(file)
                say("done", name, number)
        except OSError as error:
            print(f"worker {worker} ends: {error}", file=sys.stderr)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def check(address, token, log):
    allowed, made, tried, flushed = {}, set(), {}, 0
    for line in open(log):
        words = line.split()
        if not line.endswith("\n") or len(words) < 3:
            continue  # the load maker was cut off while it wrote a line
        word, name, number = words[0], words[1], int(words[2])
        pages = allowed.setdefault(name, [set() for _ in range(PAGES)])
        if word == "try":
            first, count = int(words[3]), int(words[4])
            tried.setdefault(name, []).append((number, first, count))
            for at in range(first, first + count):
                pages[at].add(number)
            continue
        flushed += 1
        made.add(name)
        # All that this worker tried before is there now, each page as written last. What was tried
        # in a round before this one was cut off, and may never have come.
        for before, first, count in tried.pop(name, []):
            if before // ROUND == number // ROUND:
                for at in range(first, first + count):
                    pages[at] = {before}
    connection = http.client.HTTPConnection(address, timeout=60)
    wrong = []
    for name in sorted(made):
        connection.request("GET", "/" + name, headers={"Authorization": "Bearer " + token})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200 or len(body) != PAGES * PAGE:
            wrong.append(f"{name}: {answer.status}, {len(body)} bytes")
            continue
        for at in range(PAGES):
            held = body[at * PAGE : (at + 1) * PAGE]
            number, index = CELL.unpack_from(held)
            if held != page(number, index) or index != at:
                wrong.append(f"{name}: page {at} is of no write")
            elif number not in allowed[name][at]:
                wrong.append(f"{name}: page {at} is of write {number}, not of {sorted(allowed[name][at])}")
    print("\n".join(wrong[:20]) or f"{flushed} acknowledgements hold")
    sys.exit(1 if wrong or not made else 0)


if sys.argv[1] == "place":
    load(*sys.argv[2:5])
else:
    check(*sys.argv[1:4])
