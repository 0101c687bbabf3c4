"""Uses a tree while what serves it is killed and stopped, and says what is lost of what it was told is on the disk.

usage: beneath.py TREE... SCRATCH

In each tree one program replaces a file and syncs it, one appends lines and syncs them. What fails because nobody answered may have
been made or not, once; what was synced is there from then on. In a share a rename that was made is made again by the mount once its
node has been killed, and finds nothing. Rounds are told in SCRATCH, until it holds `stop`. Ends with 1, and
says why, once something is otherwise.
"""

import errno
import os
import sys
import time

# What a call ends with that nobody answered, or whose open file is one of before.
AWAY = {errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EIO, errno.ESTALE}
SIZE = 300_000

trees, scratch = sys.argv[1:-1], sys.argv[-1]


def stops():
    return os.path.exists(os.path.join(scratch, "stop"))


def told(name, rounds):
    place = os.path.join(scratch, name)
    with open(place + ".new", "w") as file:
        file.write(str(rounds))
    os.rename(place + ".new", place)


def tried(act):
    """Whether it was answered; what fails for another reason ends the program."""
    try:
        act()
        return True
    except OSError as error:
        if error.errno not in AWAY:
            raise
        time.sleep(0.01)
        return False


def whole(path):
    with open(path, "rb") as file:
        return file.read()


def replaces(tree, name):
    """A file is what it was last replaced by and synced, or what it was being replaced by since."""
    path, known = os.path.join(tree, name), [None]
    number, rounds = 0, 0

    def replace():
        with open(path + ".new", "wb") as file:
            file.write(b"%9d\n" % number * (SIZE // 10))
            os.fsync(file.fileno())
        known.append(number)
        try:
            os.rename(path + ".new", path)
        except FileNotFoundError:
            assert os.path.basename(tree) == "share" and int(whole(path)[:10]) == number, "the rename made nothing"
        directory = os.open(tree, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        known[:] = [number]

    def look():
        try:
            found = whole(path)
        except FileNotFoundError:
            assert None in known, "%s is gone, which was %s" % (path, known)
            return
        number = int(found[:10])
        assert found == b"%9d\n" % number * (SIZE // 10), "%s is torn at %d" % (path, number)
        assert number in known, "%s is %d and not one of %s" % (path, number, known)

    while not stops():
        number += 1
        if tried(replace) & tried(look):
            rounds += 1
            told(name, rounds)


def appends(tree, name):
    """Lines are there in their order, those that were synced once each, others once or not at all."""
    path, synced, unsure = os.path.join(tree, name), [], set()
    number, rounds = 0, 0

    def append():
        with open(path, "ab", buffering=0) as file:
            unsure.add(number)
            file.write(b"%9d\n" % number)
            os.fsync(file.fileno())
        unsure.discard(number)
        synced.append(number)

    def look():
        lines = [int(line) for line in whole(path).split(b"\n")[:-1]]
        assert lines == sorted(set(lines)), "%s has lines twice or out of order: %s" % (path, lines)
        lost = set(synced) - set(lines)
        assert not lost, "%s lost lines that were synced: %s" % (path, sorted(lost))
        more = set(lines) - set(synced) - unsure
        assert not more, "%s has lines that were never written: %s" % (path, sorted(more))

    while not stops():
        number += 1
        if tried(append) & (not synced or tried(look)):
            rounds += 1
            told(name, rounds)


children = []
for tree in trees:
    for act in (replaces, appends):
        child = os.fork()
        if child == 0:
            act(tree, "%s-%s" % (act.__name__, os.path.basename(tree)))
            os._exit(0)
        children.append(child)
# The first that ends badly ends all.
for _ in children:
    if os.wait()[1] != 0:
        open(os.path.join(scratch, "stop"), "w").close()
        sys.exit(1)
