"""Sends a file by tuspy over a line that breaks: URL TOKEN FILE. Prints where each upload went on."""
import socket
import sys
import threading
from urllib.parse import urlsplit

from tusclient import client
from tusclient.uploader import Uploader

url, token, path = sys.argv[1:4]
there = urlsplit(url)
CUT = 3_000_000
lives = [2]


def relay(one, other, most):
    """Passes bytes on; breaks the line after `most` of them, in the middle of what is sent."""
    passed = 0
    try:
        while passed < most:
            piece = one.recv(65536)
            if not piece:
                break
            other.sendall(piece[: most - passed])
            passed += len(piece)
    except OSError:
        pass
    if passed >= most:
        lives[0] -= 1
    for end in (one, other):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        end.close()


def line():
    """A line to the node that breaks twice."""
    listener = socket.create_server(("127.0.0.1", 0))

    def take():
        while True:
            here, _ = listener.accept()
            onward = socket.create_connection((there.hostname, there.port))
            most = CUT if lives[0] > 0 else 1 << 60
            threading.Thread(target=relay, args=(here, onward, most), daemon=True).start()
            threading.Thread(target=relay, args=(onward, here, 1 << 60), daemon=True).start()

    threading.Thread(target=take, daemon=True).start()
    return listener.getsockname()[1]


headers = {"Authorization": f"Bearer {token}"}
weak = client.TusClient(f"http://127.0.0.1:{line()}{there.path}", headers=headers)

# It breaks while a chunk is sent; the library asks how far it came, and goes on there.
asked = []
own = Uploader.get_offset
Uploader.get_offset = lambda self: asked.append(own(self)) or asked[-1]
weak.uploader(path, chunk_size=16 << 20, retries=4, retry_delay=0.1, metadata={"filename": "broken"}).upload()
assert lives[0] == 0 and len(asked) >= 2, (lives, asked)
assert all(offset % (16 << 20) > 0 for offset in asked[:2]), ("in the middle of a chunk", asked)

# It ends in the middle, and another process, that knows the address alone, goes on.
first = client.TusClient(url, headers=headers).uploader(
    path, chunk_size=1_000_000, metadata={"filename": "taken up", "mtime": "1700000000"}
)
first.upload(stop_at=5_000_000)
second = client.TusClient(url, headers=headers).uploader(path, url=first.url)
assert second.offset == 5_000_000, second.offset
second.upload()
print("good")
