"""Writes a mebibyte into each of so many files at once.

    writers.py DIRECTORY FILES

Says `opened` once all are open, begins when a line comes, and says `written` once all are.
"""

import os
import sys
import threading

DIRECTORY, FILES = sys.argv[1], int(sys.argv[2])
# Not zeros: of memory that nothing was written to, the kernel sends a page at a time.
BYTES = b"x" * (1 << 20)

files = [os.open(os.path.join(DIRECTORY, "f%d" % n), os.O_CREAT | os.O_WRONLY) for n in range(FILES)]
lengths = []
threads = [threading.Thread(target=lambda fd=fd: lengths.append(os.pwrite(fd, BYTES, 0))) for fd in files]
print("opened", flush=True)
sys.stdin.readline()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert lengths == [len(BYTES)] * FILES, "one has failed"
print("written", flush=True)
