"""Looks at what a mount shows, and keeps files of it open and mapped meanwhile.

usage: eyes.py DIRECTORY

Each line of standard input is a word and a name, and is answered by one line of JSON:
  hold NAME         opens a file, maps it, and keeps both
  look              what the kernel shows of NAMES and of f, which is held; asks the mount only what it does not know
  mapped            the same of the bytes that are mapped alone
  stat NAME         the same of a name
  list              how many names there are
  tree              the names and bytes that are there, everything opened anew
  read NAME AT      a byte of the open file
  touch NAME AT     a byte of the mapping
  child NAME AT     the same by a child of its own, or what signal ended that
  edit NAME         opens a file to be read and written, and keeps it
  write NAME AT     writes a byte of that
  open NAME         whether it can be opened anew
  why               what failed last, as the mount tells it at DIRECTORY

What fails is answered by its number's name. Whoever asks and is not answered for long has it end by itself.
"""

import errno
import json
import mmap
import os
import signal
import stat
import sys

NAMES = ["f", "g", "d", "d/in", "none", "none/in"]
PATIENCE_SECONDS = 60

os.chdir(sys.argv[1])
held = {}


def tried(act, *arguments):
    try:
        return act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def times():
    """When what is held was last written, and when names in the directory last came or went."""
    return {"time": os.fstat(held["f"][0]).st_mtime_ns, "names": os.stat(".").st_mtime_ns}


def hold(name):
    fd = os.open(name, os.O_RDONLY)
    held[name] = fd, mmap.mmap(fd, os.fstat(fd).st_size, prot=mmap.PROT_READ)
    if name == "f":
        held["times"] = times()
    return "held"


def child(name, at):
    pid = os.fork()
    if pid == 0:
        signal.alarm(PATIENCE_SECONDS)
        held[name][1][int(at)]
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "there" if ended == 0 else signal.Signals(-ended).name


def edit(name):
    held[name] = os.open(name, os.O_RDWR), None
    return "edited"


def kind(name):
    try:
        told = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    return "directory" if stat.S_ISDIR(told.st_mode) else "%d bytes" % told.st_size


def age(now, then):
    return "as before" if now == then else "newer" if now > then else "older"


def mapped():
    """As far as it is mapped: of what is beyond, the kernel asks how long the file is."""
    fd, mapping = held["f"]
    return {"read": os.pread(fd, len(mapping), 0).decode(), "mapped": mapping[:].rstrip(b"\0").decode()}


def look():
    fd, _ = held["f"]
    shows, told = mapped(), os.fstat(fd)
    shows["held"] = os.pread(fd, 4096, 0).decode()
    shows.update({name: tried(kind, name) for name in NAMES})
    shows["mode"] = "%o" % stat.S_IMODE(told.st_mode)
    shows["links"] = str(told.st_nlink)
    shows.update({what: age(now, held["times"][what]) for what, now in times().items()})
    return shows


def tree(path="."):
    if not os.path.isdir(path):
        with open(path) as file:
            return file.read()
    return {name: tree(os.path.join(path, name)) for name in os.listdir(path)}


def opened(name):
    os.close(os.open(name, os.O_RDONLY))
    return "opened"


ACTS = {
    "hold": hold,
    "look": look,
    "mapped": mapped,
    "stat": kind,
    "list": lambda: "%d" % len(os.listdir(".")),
    "tree": tree,
    "read": lambda name, at: "%d" % len(os.pread(held[name][0], 1, int(at))),
    "touch": lambda name, at: held[name][1][int(at)],
    "child": child,
    "edit": edit,
    "write": lambda name, at: "%d" % os.pwrite(held[name][0], b"!", int(at)),
    "open": opened,
    "why": lambda: os.getxattr(".", "user.weft.why").decode(),
}

for line in sys.stdin:
    word, *arguments = line.split()
    signal.alarm(PATIENCE_SECONDS)
    print(json.dumps(tried(ACTS[word], *arguments)), flush=True)
    signal.alarm(0)
