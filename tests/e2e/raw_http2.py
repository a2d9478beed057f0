"""HTTP/2 by hand: a client that sends what no library would, and a server that answers no call. Its header blocks use
neither the table nor Huffman codes."""
import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
CANCEL = struct.pack(">I", 8)


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def integer(value):
    """HPACK integer with a 7-bit prefix."""
    if value < 127:
        return bytes([value])
    out, value = b"\x7f", value - 127
    while value >= 128:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def header(name, value):
    return b"\x00" + integer(len(name)) + name + integer(len(value)) + value


def request_headers(path):
    return b"".join(header(name, value) for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"test"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc")))


def short_request_headers(path):
    """As few bytes as a call can have: names and whole fields of the static table, values in full."""
    return (b"\x83\x86\x01" + integer(1) + b"x" + b"\x04" + integer(len(path)) + path
            + b"\x0f\x10" + integer(16) + b"application/grpc" + header(b"te", b"trailers"))


def message(body):
    return b"\0" + struct.pack(">I", len(body)) + body


class Connection:
    """`window` bytes for each answer. After `greet` its calls may be anything."""

    def __init__(self, target, window=65535, greet=True):
        self.socket = self._connect(target)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pings = 0  # received
        self.next_stream, self.closed, self.went_away, self.ended, self.answers = 1, False, False, {}, {}
        self.window, self.windows, self._initial, self._bytes, self._greeted = 65535, {}, 65535, b"", False
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))
            limit = time.monotonic() + 20
            while not self._greeted and not self.closed and time.monotonic() < limit:
                self.read(0.1)

    def _connect(self, target):
        host, port = target.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=20)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            self.closed = True
        return not self.closed

    def open(self, path, flags=END_HEADERS):
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        self.windows[stream] = self._initial
        self.send(frame(HEADERS, flags, stream, request_headers(path)))
        return stream

    def send_body(self, stream, body, keep_back=0):
        """Sends a message except its last bytes, as the windows allow; False if it could not be
        sent."""
        data = message(body)
        whole, at = len(data), 0
        data = data[:whole - keep_back]
        for _ in range(2000):
            if self.closed or stream in self.ended or at == len(data):
                break
            size = min(16384, self.window, self.windows[stream], len(data) - at)
            if size <= 0:
                self.read(0.01)
                continue
            last = at + size == whole
            self.send(frame(DATA, END_STREAM if last else 0, stream, data[at:at + size]))
            at, self.window = at + size, self.window - size
            self.windows[stream] -= size
            self.read(0)
        return at == len(data)

    def read(self, patience_s):
        """Reads what has arrived, and answers pings and settings."""
        while not self.closed and select.select([self.socket], [], [], patience_s)[0]:
            patience_s = 0
            try:
                data = self.socket.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.closed = True
            self._bytes += data
            while len(self._bytes) >= 9:
                size = int.from_bytes(self._bytes[:3], "big")
                if len(self._bytes) < 9 + size:
                    break
                head, payload = self._bytes[:9], self._bytes[9:9 + size]
                self._bytes = self._bytes[9 + size:]
                self._take(head[3], head[4], struct.unpack(">I", head[5:])[0], payload)

    def _take(self, kind, flags, stream, payload):
        if kind == DATA:
            self.answers[stream] = self.answers.get(stream, b"") + payload
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == 4:
                    self.windows = {s: w + value - self._initial for s, w in self.windows.items()}
                    self._initial = value
            self.send(frame(SETTINGS, ACK, 0))
            self._greeted = True
        elif kind == PING and not flags & ACK:
            self.pings += 1
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            step = struct.unpack(">I", payload)[0]
            if stream == 0:
                self.window += step
            else:
                self.windows[stream] = self.windows.get(stream, self._initial) + step
        elif kind == GOAWAY:
            self.went_away = True
        elif kind == RST_STREAM:
            self.ended[stream] = struct.unpack(">I", payload)[0]
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended[stream] = 0

    def close(self):
        self.socket.close()


class SilentServer(Connection):
    """The server of one connection to `listener`, a listening socket: answers settings and pings, and no call."""

    def __init__(self, listener):
        super().__init__(listener, greet=False)
        self.socket.recv(len(PREFACE), socket.MSG_WAITALL)
        self.send(frame(SETTINGS, 0, 0))

    def _connect(self, listener):
        listener.settimeout(20)
        return listener.accept()[0]
