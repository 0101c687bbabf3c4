"""Programs on a mount whose process is killed again and again, none of which may notice.

    taking_over.py MOUNT SCRATCH

Each runs in a process of its own until SCRATCH/stop is there, and says in SCRATCH/NAME how often it has been round. What is
not as it must be ends it with a traceback, and all with 1.
"""

import fcntl
import hashlib
import mmap
import os
import random
import sys
import traceback

MOUNT, SCRATCH = sys.argv[1], sys.argv[2]
RECORD = 64


def at(name):
    return os.path.join(MOUNT, name)


def read_all(fd, length):
    parts, begin = [], 0
    while begin < length:
        part = os.pread(fd, 131072, begin)
        assert part, "it ends at %d" % begin
        parts.append(part)
        begin += len(part)
    return b"".join(parts)


def reads(times):
    """Bytes are those that were written, from end to end and here and there."""
    fd = os.open(at("large"), os.O_RDONLY)
    length = os.fstat(fd).st_size
    with open(os.path.join(SCRATCH, "large.sum")) as right:
        right = right.read().strip()
    for _ in times:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        whole = read_all(fd, length)
        assert hashlib.sha256(whole).hexdigest() == right, "other bytes"
        for _ in range(20):
            begin = random.randrange(length - 5000)
            again = os.open(at("large"), os.O_RDONLY)
            assert os.pread(again, 5000, begin) == whole[begin : begin + 5000], "other bytes at %d" % begin
            os.close(again)


def makes(times):
    """What must be new is new, and what was made is there until it is removed: once."""
    os.mkdir(at("made"))
    for time in times:
        for number in range(5):
            name, other = at("made/n%d" % number), at("made/o%d" % number)
            fd = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o444)
            text = b"%d of %d" % (number, time)
            assert os.write(fd, text) == len(text)
            os.close(fd)
            os.rename(name, other)
            assert not os.path.exists(name), "it has both names"
            os.link(other, name)
            os.unlink(other)
            with open(name, "rb") as file:
                assert file.read() == text
            os.mkdir(other)
            os.rmdir(other)
            os.symlink("x", other)
            assert os.readlink(other) == "x"
            os.unlink(other)
        assert sorted(os.listdir(at("made"))) == ["n%d" % number for number in range(5)]
        for number in range(5):
            os.unlink(at("made/n%d" % number))
        assert os.listdir(at("made")) == []


def appends(times):
    """Each record is there once, in its place."""
    fd = os.open(at("appended"), os.O_CREAT | os.O_RDWR | os.O_APPEND)
    count = 0
    for _ in times:
        for _ in range(30):
            assert os.write(fd, b"%063d\n" % count) == RECORD
            count += 1
        os.fsync(fd)
        assert os.fstat(fd).st_size == count * RECORD, "it is %d long" % os.fstat(fd).st_size
        if count > 20000:
            os.ftruncate(fd, 0)
            count = 0
        for number, line in enumerate(read_all(fd, count * RECORD).splitlines()):
            assert int(line) == number, "record %d is %s" % (number, line)


def cuts(times):
    """A file that is cut as it is opened is empty, and then holds what is written."""
    for time in times:
        for name in ("cut", "cut2"):
            fd = os.open(at(name), os.O_CREAT | os.O_TRUNC | os.O_RDWR)
            assert os.fstat(fd).st_size == 0
            text = (b"%d " % time) * 3000
            assert os.write(fd, text) == len(text)
            assert os.pread(fd, len(text) + 1, 0) == text
            os.ftruncate(fd, 100)
            assert os.pread(fd, 200, 0) == text[:100]
            os.close(fd)


def counts(name):
    def counts(times):
        """Who has the lock alone adds one, and nobody else's is lost."""
        fd = os.open(at("counter"), os.O_CREAT | os.O_RDWR)
        own = os.open(os.path.join(SCRATCH, "own-" + name), os.O_CREAT | os.O_RDWR)
        mine = 0
        for _ in times:
            fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)
            count = int(os.pread(fd, 20, 0) or b"0")
            os.pwrite(fd, b"%020d" % (count + 1), 0)
            fcntl.lockf(fd, fcntl.LOCK_UN, 100, 0)
            mine += 1
            os.pwrite(own, b"%020d" % mine, 0)

    return counts


def holds(times):
    """A lock that is held is held, of either sort: somebody else asks each time."""
    fd = os.open(at("locked"), os.O_CREAT | os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 5)
    whole = os.open(at("flocked"), os.O_CREAT | os.O_RDWR)
    fcntl.flock(whole, fcntl.LOCK_EX)
    for _ in times:
        child = os.fork()
        if child == 0:
            refused = 0
            try:
                other = os.open(at("locked"), os.O_RDWR)
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 8)
            except BlockingIOError:
                refused += 1
            try:
                fcntl.flock(os.open(at("flocked"), os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused += 1
            os._exit(0 if refused == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0, "somebody else was given the lock"
        fcntl.lockf(fd, fcntl.LOCK_SH, 3, 50)
        fcntl.lockf(fd, fcntl.LOCK_UN, 3, 50)


def has_no_name(times):
    """A file that was removed while it is open goes on, and so does one whose mode forbids what it was opened for."""
    fd = os.open(at("nameless"), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o400)
    text = os.urandom(300000)
    assert os.write(fd, text) == len(text)
    os.unlink(at("nameless"))
    for time in times:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert read_all(fd, len(text)) == text, "other bytes"
        assert os.fstat(fd).st_nlink == 0
        some = os.urandom(1000)
        begin = random.randrange(len(text) - 1000)
        assert os.pwrite(fd, some, begin) == 1000
        text = text[:begin] + some + text[begin + 1000 :]
        if time % 5 == 0:
            os.fsync(fd)


def maps(times):
    """What is written through a mapping is in the file."""
    fd = os.open(at("mapped"), os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, 1 << 20)
    with mmap.mmap(fd, 1 << 20) as memory:
        for time in times:
            for page in range(0, 256, 3):
                memory[page * 4096 + 17] = time % 251
            memory.flush()
            other = os.open(at("mapped"), os.O_RDONLY)
            whole = read_all(other, 1 << 20)
            os.close(other)
            assert all(whole[page * 4096 + 17] == time % 251 for page in range(0, 256, 3)), "other bytes"
            assert memory[:] == whole


def lists(times):
    """All names are there, also those of a directory that was open all the while."""
    os.mkdir(at("listed"))
    for number in range(200):
        open(at("listed/%d" % number), "w").close()
    fd = os.open(at("listed"), os.O_RDONLY | os.O_DIRECTORY)
    for _ in times:
        assert sorted(map(int, os.listdir(fd))) == list(range(200))
        assert all(entry.is_file() for entry in os.scandir(at("listed")))
        os.stat("7", dir_fd=fd)
        os.statvfs(MOUNT)


def times(name):
    count = 0
    with open(os.path.join(SCRATCH, name), "w") as said:
        while not os.path.exists(os.path.join(SCRATCH, "stop")):
            count += 1
            yield count
            os.pwrite(said.fileno(), b"%020d\n" % count, 0)


def run(name, program):
    try:
        program(times(name))
    except BaseException:
        sys.stderr.write("%s: %s\n" % (name, traceback.format_exc()))
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def main():
    programs = {
        "reads": reads,
        "makes": makes,
        "appends": appends,
        "cuts": cuts,
        "counts1": counts("1"),
        "counts2": counts("2"),
        "holds": holds,
        "has-no-name": has_no_name,
        "maps": maps,
        "lists": lists,
    }
    children = {}
    for name, program in programs.items():
        child = os.fork()
        if child == 0:
            run(name, program)
        children[child] = name
    failed = []
    for _ in programs:
        child, status = os.wait()
        if status != 0:
            failed.append(children[child])
            # Nobody is to wait for the others to be told.
            open(os.path.join(SCRATCH, "stop"), "w").close()
    counted = [int(open(os.path.join(SCRATCH, "own-" + n)).read()) for n in "12"]
    if not failed:
        with open(at("counter")) as counter:
            count = int(counter.read())
        # One that was killed after it had counted and before it noted that: none is, here.
        assert count == sum(counted), "%d counted, %d are there" % (sum(counted), count)
    sys.stderr.write("failed: %s\n" % ", ".join(failed))
    sys.exit(1 if failed else 0)


main()
