"""`bulkhead chat` in a terminal and in a pipe, with a running group."""
import http.client
import http.server
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402

PROMPT = "Tell me a story."
CONTEXT = 16384
LONG = ("--max-tokens", CONTEXT - 200)
UP, CTRL_C, CTRL_D = "\x1b[A", "\x03", "\x04"


def plain(text):
    """What a terminal shows of it: escapes of the line editor taken out."""
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])", "", text).replace("\r", "")


class Terminal:
    """`bulkhead chat` with a terminal of its own; use as a context."""

    def __init__(self, *flags, **environment):
        self.process, self.fd = group.in_terminal([group.BINARY, "chat", *flags],
                                                  {**os.environ, "TERM": "xterm", **environment})
        os.set_blocking(self.fd, False)
        self.text, self.read_to, self.code = "", 0, None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.code is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)

    def _read(self, limit):
        if not select.select([self.fd], [], [], max(0, limit - time.monotonic()))[0]:
            raise AssertionError(f"nothing came for {group.LIMIT_S} s after {plain(self.text[-2000:])!r}")
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # the other side is closed
            data = b""
        self.text += data.decode(errors="replace")
        return bool(data)

    def until(self, pattern):
        """Reads until what came since the last call matches; returns it, as shown."""
        limit = time.monotonic() + group.LIMIT_S
        while not re.search(pattern, plain(self.text[self.read_to:])):
            if not self._read(limit):
                raise AssertionError(f"it ended without {pattern!r}: {plain(self.text)!r}")
        found, self.read_to = plain(self.text[self.read_to:]), len(self.text)
        return found

    def type(self, text):
        data, limit = text.encode(), time.monotonic() + group.LIMIT_S
        while data:
            # The editor does not read while its echo is not read.
            readable, writable, _ = select.select([self.fd], [self.fd], [], group.LIMIT_S)
            if readable:
                self._read(limit)
            if writable:
                try:
                    data = data[os.write(self.fd, data):]
                except BlockingIOError:
                    pass

    def say(self, text):
        """Types a message; returns what is printed behind it until the next prompt."""
        self.type(text + "\r")
        return self.until(r"\n> $").rsplit(text + "\n", 1)[-1]  # what is typed early is echoed twice

    def end(self, typed=""):
        """Types, reads to the end; the exit code. A Ctrl-D before the line editor reads may be lost."""
        limit = time.monotonic() + group.LIMIT_S
        self.type(typed)
        more = True
        while more:
            is_silent = typed and time.monotonic() < limit and not select.select([self.fd], [], [], 2)[0]
            if is_silent:
                self.type(typed)
            else:
                more = self._read(limit)
        self.code = self.process.wait()
        return self.code


class ChatGroup:
    """Tests of chats with a group."""

    @classmethod
    def start(cls):
        return group.Group("--http-port", 0)

    @classmethod
    def setUpClass(cls):
        cls.group = cls.start()

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def tearDown(self):
        self.group.wait_until_idle()

    def flags(self, *more):
        return ("--http", self.group.http_target, "--temperature", "0", *map(str, more))


class ChatTest(ChatGroup, unittest.TestCase):
    def pipe(self, text, *flags, **environment):
        return subprocess.run([group.BINARY, "chat", *flags], input=text, capture_output=True, text=True, errors="surrogateescape",
                              timeout=group.LIMIT_S, env=dict(group.ENVIRONMENT, **environment))

    def rendered(self, messages):
        host, port = self.group.http_target.rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=group.LIMIT_S)
        connection.request("POST", "/tokenize", json.dumps({"messages": messages}), {"Content-Type": "application/json"})
        tokens = json.loads(connection.getresponse().read())["tokens"]
        connection.close()
        return tokens

    def prompt_tokens(self):
        return self.group.load().prompt_tokens_total

    def test_a_message_that_is_not_utf8_is_refused(self):
        before = self.prompt_tokens()
        done = self.pipe("caf\udce9\n", *self.flags("--max-tokens", 16))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "bulkhead: the message is not valid UTF-8; convert it, as iconv does\n")
        self.assertEqual(self.prompt_tokens(), before)

    def test_a_pipe_is_one_message_and_its_answer(self):
        done = self.pipe(PROMPT + "\n", *self.flags("--max-tokens", 16))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rendered = group.pb.TokenIds(ids=self.rendered([{"role": "user", "content": PROMPT}]))
        request = group.greedy("", 16)
        request.token_ids.CopyFrom(rendered)
        text = self.group.generation.Generate(request).text
        self.assertGreater(len(text), 8)
        self.assertEqual(done.stdout, text + "\n")
        self.assertEqual(self.pipe("", *self.flags()).returncode, 2)
        refused = self.pipe(PROMPT, *self.flags("--system", "Be brief."))
        self.assertEqual(refused.returncode, 1)
        self.assertIn("only user and assistant turns", refused.stderr)  # as its template says

    def test_a_conversation_goes_on_until_it_is_reset(self):
        with Terminal(*self.flags("--max-tokens", 12)) as terminal:
            self.assertRegex(terminal.until(r"\n> $"), r"model \S+, 2048 tokens of context at .*/help")
            first = terminal.say("One day")
            self.assertIn("limit of tokens", first)
            fresh = self.prompt_tokens()
            terminal.say("One day")
            grown = self.prompt_tokens()
            self.assertIn("new conversation", terminal.say("/reset"))
            self.assertEqual(terminal.say("One day"), first)
            again = self.prompt_tokens()
            self.assertGreater(grown - fresh, again - grown)  # the second had the first before it
            self.assertIn("/reset", terminal.say("/help"))
            self.assertIn("no command /rest", terminal.say("/rest"))
            self.assertEqual(terminal.end(CTRL_D), 0)

    def test_up_brings_a_message_back_and_a_backslash_goes_on(self):
        with Terminal(*self.flags("--max-tokens", 4)) as terminal:
            terminal.until(r"\n> $")
            terminal.say("Once upon")
            terminal.say("/reset")
            terminal.type(UP + UP)
            terminal.until("Once upon")
            terminal.say(" a time")
            terminal.type("One\\\r")
            terminal.until(r"\n\. $")
            terminal.say("two")
            terminal.type("/exit\r")
            self.assertEqual(terminal.end(), 0)

    def test_a_full_context_says_how_to_go_on(self):
        with Terminal(*self.flags("--max-tokens", 4)) as terminal:
            terminal.until(r"\n> $")
            words = "word " * 400
            terminal.type((words + "\\\r") * 8)
            self.assertRegex(terminal.say("end"), r"context_length_exceeded: .*; /reset begins a new conversation")
            self.assertNotIn("context_length_exceeded", terminal.say("Hello"))  # it was taken back
            self.assertEqual(terminal.end(CTRL_D), 0)

    def test_a_ctrl_d_during_an_answer_quotes_no_later_key(self):
        with Terminal(*self.flags("--max-tokens", 1500)) as terminal:
            terminal.until(r"\n> $")
            terminal.type("Hello\r")
            # Before the answer begins, the line editor may still have the terminal, and a Ctrl-D is its end.
            terminal.until(r"Hello\nThe")
            terminal.type(CTRL_D)
            terminal.until(r"\n> $")
            self.assertEqual(terminal.end(CTRL_D), 0)

    def test_what_is_no_server_is_named(self):
        for target, words in (("127.0.0.1:1", "no server answers at 127.0.0.1:1"),
                              (self.group.target, "does not speak HTTP/1.1")):
            done = self.pipe(PROMPT, "--http", target)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(words, done.stderr)
        with Terminal("--http", "127.0.0.1:1") as terminal:
            self.assertEqual(terminal.end(), 1)
            self.assertIn("no server answers", terminal.text)
        self.assertEqual(self.pipe(PROMPT, "--http", "nonsense").returncode, 2)


class InterruptTest(ChatGroup, unittest.TestCase):
    """Answers so long that none is at its end before the key that stops it: the model's end of sequence is one it never says."""
    PAD = 4

    @classmethod
    def start(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = shutil.copytree(group.MODEL, os.path.join(cls.folder.name, "sample"))
        with open(os.path.join(model, "config.json"), "r+", encoding="utf-8") as file:
            config = json.load(file)
            file.seek(0)
            json.dump(dict(config, max_position_embeddings=CONTEXT, eos_token_id=cls.PAD), file)
            file.truncate()
        os.unlink(os.path.join(model, "generation_config.json"))  # names the same end
        return group.Group("--http-port", 0, "--max-model-len", CONTEXT, "--max-num-seqs", 1,
                           front=lambda *command: [model if word == group.MODEL else word for word in command])

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_ctrl_c_stops_an_answer_and_only_that(self):
        with Terminal(*self.flags(*LONG)) as terminal:
            terminal.until(r"\n> $")
            before = self.group.load().generation_tokens_total
            terminal.type("Once upon a time\r")
            terminal.until(r"time\n(?!Once)(.|\n)*\w{3}")  # what is typed early is echoed twice
            terminal.type(CTRL_C)
            terminal.until(r"\[stopped\]\n> $")
            self.group.wait_until_idle()  # its blocks are free
            self.assertLess(self.group.load().generation_tokens_total - before, CONTEXT - 200)
            terminal.type("half a line" + CTRL_C)
            terminal.until(r"\(Ctrl-D or /exit leaves\)\n> $")
            terminal.process.terminate()
            self.assertEqual(terminal.end(), 128 + signal.SIGTERM)

    def test_ctrl_c_ends_a_pipe(self):
        process = subprocess.Popen([group.BINARY, "chat", *self.flags(*LONG)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(b"Once upon a time")
        process.stdin.close()
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(group.LIMIT_S), 128 + signal.SIGINT)
        process.stdout.close()
        process.stderr.close()


class OtherServerTest(unittest.TestCase):
    def test_an_answer_ends_where_the_server_says_so(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            def answer():
                connection, _ = server.accept()
                self.addCleanup(connection.close)  # not before
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\n\r\ndata: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]\n\n')

            threading.Thread(target=answer, daemon=True).start()
            done = subprocess.run([group.BINARY, "chat", "--http", f"127.0.0.1:{server.getsockname()[1]}"], input="x", capture_output=True,
                                  text=True, timeout=group.LIMIT_S, env=group.ENVIRONMENT)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "a\n", ""))


class Refuses(http.server.BaseHTTPRequestHandler):
    """Keeps what was asked, and refuses it as another server would."""
    asked = []

    def do_POST(self):
        Refuses.asked.append(self.headers.get("Authorization"))
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"error": {"message": "no such key", "code": "UNAUTHENTICATED"}}'
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class SecurityTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.HTTPServer(("127.0.0.1", 0), Refuses)
        Refuses.asked = []

    def test_the_key_of_the_environment_or_of_a_file_is_sent(self):
        server = self.server
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)

        def ask(*flags, **environment):
            return subprocess.run([group.BINARY, "chat", "--http", f"127.0.0.1:{server.server_port}", *flags], input="x",
                                  capture_output=True, text=True, timeout=group.LIMIT_S,
                                  env=dict(group.ENVIRONMENT, **environment))
        done = ask(BULKHEAD_API_KEY="secret-of-16-characters-1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("UNAUTHENTICATED: no such key; give a key", done.stderr)
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "key")
        with open(path, "w", encoding="ascii") as file:
            file.write("secret-of-16-characters-2\nsecret-of-16-characters-3\n")
        ask("--api-key-file", path, BULKHEAD_API_KEY="secret-of-16-characters-1")
        ask()
        self.assertEqual(Refuses.asked, ["Bearer secret-of-16-characters-1", "Bearer secret-of-16-characters-2", None])
        for bad in (ask(BULKHEAD_API_KEY="a b"), ask("--api-key-file", "/dev/null"), ask("--api-key-file", "/nowhere")):
            self.assertEqual(bad.returncode, 2, bad.stderr)
        self.assertEqual(len(Refuses.asked), 3)

    def test_a_servers_certificate_is_checked(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        key, cert, other = (os.path.join(folder, name) for name in ("key.pem", "cert.pem", "other.pem"))
        for path, name in ((other, "other"), (cert, "localhost")):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                            "-keyout", key, "-out", path, "-days", "2", "-subj", f"/CN={name}",
                            "-addext", f"subjectAltName=DNS:{name}"], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

        def ask(host, *flags):
            return subprocess.run([group.BINARY, "chat", "--http", f"{host}:{self.server.server_port}", *flags], input="x",
                                  capture_output=True, text=True, timeout=group.LIMIT_S)
        self.assertIn("UNAUTHENTICATED", ask("localhost", "--ssl-ca-certs", cert).stderr)
        for host, flags, words in (("localhost", ("--ssl-ca-certs", other), "made no TLS connection"),
                                   ("127.0.0.1", ("--ssl-ca-certs", cert), "made no TLS connection"),
                                   ("localhost", (), "does not speak HTTP/1.1")):
            done = ask(host, *flags)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)
        for flags in (("--ssl-ca-certs", "/nowhere"), ("--ssl-ca-certs", cert, "--ssl-certfile", cert)):
            self.assertEqual(ask("localhost", *flags).returncode, 2)
        self.assertEqual(len(Refuses.asked), 1)


if __name__ == "__main__":
    unittest.main()
