"""The HTTP API of a running group, asked with the standard library alone: the same answers as over gRPC, and clients that do
not do as they should."""
import concurrent.futures
import http.client
import json
import os
import signal
import socket
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import group  # noqa: E402

PROMPT = "Once upon a time"


def address(target):
    host, port = target.rsplit(":", 1)
    return host, int(port)


def completion(**fields):
    return {"prompt": PROMPT, "max_tokens": 16, "temperature": 0, **fields}


def chat(**fields):
    return {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 16, "temperature": 0, **fields}


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.group = group.Group("--http-port", 0, "--served-model-name", "sample,alias")
        cls.golden = group.golden()[0]

    @classmethod
    def tearDownClass(cls):
        cls.group.__exit__()

    def tearDown(self):
        self.group.wait_until_idle()

    def connect(self):
        return http.client.HTTPConnection(*address(self.group.http_target), timeout=group.LIMIT_S)

    def ask(self, path, body=None, method=None, headers=None):
        """Status, JSON and headers."""
        connection = self.connect()
        text = None if body is None else body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method or ("POST" if text is not None else "GET"), path, text,
                           {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, json.loads(data) if data else None, dict(response.getheaders())

    def events(self, path, body):
        """The JSON of all events, and whether [DONE] was the last."""
        connection = self.connect()
        connection.request("POST", path, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        self.assertTrue(response.getheader("Content-Type").startswith("text/event-stream"))
        lines = [line[6:] for line in response.read().decode().split("\n\n") if line]
        connection.close()
        done = lines[-1] == "[DONE]"
        return [json.loads(line) for line in lines[:-1 if done else None]], done

    def raw(self):
        return socket.create_connection(address(self.group.http_target), timeout=group.LIMIT_S)

    def test_a_completion_is_the_golden_text_whole_or_streamed(self):
        asked = completion(prompt=self.golden["prompt"], max_tokens=96)
        status, whole, _ = self.ask("/v1/completions", asked)
        self.assertEqual(status, 200)
        self.assertEqual(whole["choices"][0]["text"], self.golden["text"])
        usage = {"prompt_tokens": len(self.golden["prompt_ids"]), "completion_tokens": len(self.golden["ids"])}
        self.assertEqual(whole["usage"], {**whole["usage"], **usage})
        events, done = self.events("/v1/completions", dict(asked, stream_options={"include_usage": True}))
        self.assertTrue(done)
        self.assertEqual("".join(e["choices"][0]["text"] for e in events[:-1]), self.golden["text"])
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], len(self.golden["ids"]))
        self.assertEqual([e["choices"][0]["finish_reason"] for e in events[:-1]],
                         [None] * (len(events) - 2) + [whole["choices"][0]["finish_reason"]])
        ids = self.ask("/v1/completions", dict(asked, prompt=self.golden["prompt_ids"]))[1]
        self.assertEqual(ids["choices"][0]["text"], self.golden["text"])

    def test_a_chat_is_its_rendered_text(self):
        ids = self.ask("/tokenize", {"messages": chat()["messages"]})[1]["tokens"]
        text = self.ask("/v1/completions", completion(prompt=ids))[1]["choices"][0]["text"]
        status, whole, _ = self.ask("/v1/chat/completions", chat())
        self.assertEqual(status, 200)
        self.assertEqual(whole["choices"][0]["message"], {"role": "assistant", "content": text})
        self.assertEqual(whole["usage"]["prompt_tokens"], len(ids))
        events, done = self.events("/v1/chat/completions", chat())
        self.assertTrue(done)
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertTrue(events[0]["choices"][0]["delta"]["content"])  # not before the first token
        self.assertEqual("".join(e["choices"][0]["delta"].get("content", "") for e in events), text)
        status, refused, _ = self.ask("/v1/chat/completions", chat(messages=[{"role": "system", "content": "x"}]))
        self.assertEqual(status, 400)
        self.assertIn("only user and assistant turns", refused["error"]["message"])  # as its template says

    def test_a_response_is_the_chat_whole_or_streamed(self):
        text = self.ask("/v1/chat/completions", chat())[1]["choices"][0]["message"]["content"]
        asked = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Tell me a story."}]}],
                 "max_output_tokens": 16, "temperature": 0, "metadata": {"a": "b"}}
        status, whole, _ = self.ask("/v1/responses", asked)
        self.assertEqual(status, 200, whole)
        self.assertEqual([(item["type"], item["content"][0]["text"]) for item in whole["output"]], [("message", text)])
        self.assertEqual((whole["object"], whole["status"], whole["metadata"], whole["store"]),
                         ("response", "incomplete", {"a": "b"}, False))
        connection = self.connect()
        connection.request("POST", "/v1/responses", json.dumps(dict(asked, stream=True)), {"Content-Type": "application/json"})
        events = [event.split("\n") for event in connection.getresponse().read().decode().split("\n\n") if event]
        connection.close()
        data = [json.loads(lines[1][6:]) for lines in events]
        self.assertEqual([lines[0] for lines in events], ["event: " + event["type"] for event in data])
        self.assertEqual([event["sequence_number"] for event in data], list(range(len(data))))
        self.assertEqual("".join(e["delta"] for e in data if e["type"] == "response.output_text.delta"), text)
        self.assertEqual(data[-1]["type"], "response.incomplete")  # cut off by max_output_tokens
        self.assertEqual(data[-1]["response"]["usage"]["output_tokens"], whole["usage"]["output_tokens"])
        status, refused, _ = self.ask("/v1/responses", dict(asked, instructions="x"))
        self.assertEqual((status, refused["error"]["param"]), (400, "input"))  # its template has no system turn

    def test_seeds_repeat_and_choices_differ(self):
        def texts(**fields):
            return [c["text"] for c in self.ask("/v1/completions", completion(temperature=1, **fields))[1]["choices"]]
        three = texts(n=3, seed=7)
        self.assertEqual(three, texts(n=3, seed=7))
        self.assertEqual(len(set(three)), 3)
        self.assertEqual([three[1]], texts(seed=8))  # choice i has seed + i
        events, _ = self.events("/v1/completions", completion(temperature=1, n=3, seed=7))
        for i in range(3):
            self.assertEqual("".join(e["choices"][0]["text"] for e in events if e["choices"][0]["index"] == i), three[i])

    def test_logprobs_are_those_of_grpc(self):
        whole = self.ask("/v1/completions", completion(logprobs=2))[1]["choices"][0]
        logprobs = whole["logprobs"]
        self.assertEqual("".join(logprobs["tokens"]), whole["text"])
        want = self.group.generation.Generate(group.greedy(PROMPT, 16, output=group.pb.Output(logprobs=2)))
        for token, logprob, top in zip(want.tokens, logprobs["token_logprobs"], logprobs["top_logprobs"]):
            self.assertAlmostEqual(token.logprob, logprob, places=5)
            self.assertEqual(len(top), 2)
        content = self.ask("/v1/chat/completions", chat(logprobs=True, top_logprobs=2))[1]["choices"][0]
        joined = b"".join(bytes(t["bytes"]) for t in content["logprobs"]["content"])
        self.assertEqual(joined.decode(), content["message"]["content"])
        echoed = self.ask("/v1/completions", completion(logprobs=1, echo=True, max_tokens=1))[1]["choices"][0]
        self.assertTrue(echoed["text"].startswith(PROMPT))
        self.assertIsNone(echoed["logprobs"]["token_logprobs"][0])
        score = self.ask("/v1/score", {"prompt": PROMPT})[1]
        names = [model["id"] for model in self.ask("/v1/models")[1]["data"]]
        self.assertEqual(names, ["sample", "alias"])
        self.assertEqual(self.ask("/v1/completions", completion(model="alias"))[1]["model"], "alias")
        self.assertEqual(score["model"], names[0])
        for a, b in zip(echoed["logprobs"]["token_logprobs"][1:], score["token_logprobs"]):
            self.assertAlmostEqual(a, b, places=4)
        asked = completion(prompt_logprobs=2, max_tokens=0)
        listed = self.ask("/v1/completions", asked)[1]["choices"][0]["prompt_logprobs"]
        self.assertIsNone(listed[0])
        for token, one, logprob in zip(score["token_ids"][1:], listed[1:], score["token_logprobs"]):
            self.assertAlmostEqual(one[str(token)]["logprob"], logprob, places=4)
            self.assertLessEqual({1, 2}, {top["rank"] for top in one.values()})

    def test_token_ids_are_those_of_the_log_probabilities_whole_or_streamed(self):
        text = self.golden["text"]
        for path, asked in (
                ("/v1/completions", completion(prompt=[PROMPT, self.golden["prompt_ids"]], n=2)),
                ("/v1/completions", completion(echo=True)),
                ("/v1/completions", completion(prompt=self.golden["prompt"], max_tokens=96, stop=[text[40:44]])),
                ("/v1/chat/completions", chat(n=2))):
            is_chat = path.endswith("chat/completions")
            asked = dict(asked, return_token_ids=True)
            whole = self.ask(path, asked)[1]
            events, done = self.events(path, dict(asked, stream_options={"include_usage": True}))
            self.assertTrue(done)
            shown = dict(asked, return_tokens_as_token_ids=True, logprobs=True if is_chat else 0)
            listed = self.ask(path, shown)[1]["choices"]
            num_ids = 0
            for choice, other in zip(whole["choices"], listed):
                ids = choice["token_ids"]
                num_ids += len(ids)
                names = [t["token"] for t in other["logprobs"]["content"]] if is_chat else other["logprobs"]["tokens"]
                prompt_ids = (whole if is_chat else choice)["prompt_token_ids"]
                of_prompt = prompt_ids if asked.get("echo") else []
                self.assertEqual([f"token_id:{i}" for i in of_prompt + ids], names)
                of_choice = [e for e in events[:-1] if e["choices"][0]["index"] == choice["index"]]
                self.assertEqual(sum((e["choices"][0]["token_ids"] for e in of_choice), []), ids)
                firsts = of_choice if is_chat else [e["choices"][0] for e in of_choice]
                self.assertEqual([e.get("prompt_token_ids") for e in firsts], [prompt_ids] + [None] * (len(firsts) - 1))
            self.assertEqual([num_ids] * 2, [whole["usage"]["completion_tokens"], events[-1]["usage"]["completion_tokens"]])
        self.assertEqual(whole["prompt_token_ids"], self.ask("/tokenize", {"messages": chat()["messages"]})[1]["tokens"])

    def test_penalties_and_biases_change_the_answer(self):
        plain = self.ask("/v1/completions", completion(logprobs=0))[1]["choices"][0]
        first = self.ask("/tokenize", {"prompt": plain["logprobs"]["tokens"][0], "add_special_tokens": False})[1]["tokens"][0]
        banned = self.ask("/v1/completions", completion(logit_bias={str(first): -100}))[1]["choices"][0]
        self.assertFalse(banned["text"].startswith(plain["logprobs"]["tokens"][0]))
        self.assertEqual(self.ask("/v1/completions", completion(presence_penalty=3))[1]["error"]["param"], "presence_penalty")

    def test_stop_strings_end_an_answer(self):
        text = self.golden["text"]
        asked = completion(prompt=self.golden["prompt"], max_tokens=96, stop=[text[40:44]])
        choice = self.ask("/v1/completions", asked)[1]["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["stop_reason"]),
                         (text[:text.index(text[40:44])], "stop", text[40:44]))

    def test_refusals_name_field_and_reason(self):
        for path, body, status, param, code in (
                ("/v1/completions", completion(model="other"), 404, None, "MODEL_NOT_FOUND"),
                ("/v1/completions", completion(max_tokens=10**9), 400, "max_tokens", "INVALID_VALUE"),
                ("/v1/completions", completion(temperature=-1), 400, "temperature", "INVALID_VALUE"),
                ("/v1/completions", completion(prompt=[1] * 2048), 400, "prompt", "context_length_exceeded"),
                ("/v1/completions", completion(tempreature=1), 400, "tempreature", "UNSUPPORTED_PARAMETER"),
                ("/v1/completions", '{"prompt": ', 400, None, "MALFORMED_REQUEST"),
                ("/v1/completions", '{"prompt": ' + "[" * 5000, 400, None, "MALFORMED_REQUEST"),
                ("/v1/responses", {"input": "a", "previous_response_id": "resp_1"}, 400, "previous_response_id",
                 "UNSUPPORTED_PARAMETER"),
                ("/v1/chat/completions", chat(messages=[]), 400, "messages", "INVALID_VALUE"),
                ("/v1/chat/completions", chat(response_format={"type": "structural_tag"}), 400, "response_format.type",
                 "UNSUPPORTED_PARAMETER")):
            got, answer, _ = self.ask(path, body)
            self.assertEqual((got, answer["error"]["param"], answer["error"]["code"]), (status, param, code), answer)
        self.assertEqual(self.ask("/v1/completions", "{}", headers={"Content-Type": "text/plain"})[0], 415)
        status, _, headers = self.ask("/v1/completions", method="OPTIONS")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertNotIn("Access-Control-Allow-Origin", headers)

    def test_a_body_of_two_lengths_is_refused(self):
        with self.raw() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
                           b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        self.assertEqual(answer.count(b"HTTP/1.1 "), 1)
        self.assertIn(b"400 Bad Request", answer)

    def test_a_body_that_is_too_long_is_refused_before_it_comes(self):
        with self.raw() as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                           b"Content-Length: 1000000000\r\n\r\n" + b" " * 100000)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        self.assertIn(b"413 Content Too Large", answer)
        self.assertIn(b"MESSAGE_TOO_LARGE", answer)

    def test_an_echo_is_the_prompt_however_it_is_sent(self):
        prompt = "Once upon a time, there was a caf\u00e9. " * 30
        asked = completion(prompt=prompt, echo=True, max_tokens=1, n=2)
        whole = self.ask("/v1/completions", asked)[1]
        for choice in whole["choices"]:
            self.assertTrue(choice["text"].startswith(prompt), choice["text"][:80])
        usage = {"include_usage": True, "continuous_usage_stats": True}
        events, done = self.events("/v1/completions", dict(asked, stream=True, stream_options=usage))
        self.assertTrue(done)
        for choice in whole["choices"]:
            of_choice = [e for e in events if e["choices"] and e["choices"][0]["index"] == choice["index"]]
            self.assertEqual("".join(e["choices"][0]["text"] for e in of_choice), choice["text"])
            self.assertTrue(all(e["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"] for e in of_choice))

    def test_an_echo_without_an_answer_is_the_prompt(self):
        asked = completion(echo=True, max_tokens=0)
        tokens = self.ask("/tokenize", {"prompt": PROMPT})[1]["count"]
        whole = self.ask("/v1/completions", asked)[1]
        choice = whole["choices"][0]
        self.assertEqual((choice["text"], choice["finish_reason"], choice["logprobs"]), (PROMPT, "length", None))
        usage = (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"], whole["usage"]["total_tokens"])
        self.assertEqual(usage, (tokens, 0, tokens))
        events, done = self.events("/v1/completions", dict(asked, stream_options={"include_usage": True}))
        self.assertTrue(done)
        self.assertEqual([e["choices"][0]["text"] for e in events[:-1]], [PROMPT, ""])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(events[-1]["usage"], whole["usage"])
        self.assertEqual(self.ask("/v1/completions", completion(max_tokens=0))[0], 400)

    def test_minus_one_truncates_a_prompt_to_what_the_answer_leaves(self):
        length = self.ask("/v1/models")[1]["data"][0]["max_model_len"]
        for n in (1, 2):
            answer = self.ask("/v1/completions", completion(prompt="a " * length, truncate_prompt_tokens=-1, ignore_eos=True, n=n))[1]
            self.assertEqual((answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]), (length - 16, 16 * n))
        answer = self.ask("/v1/chat/completions", chat(max_tokens=1, truncate_prompt_tokens=-1))[1]
        self.assertLess(answer["usage"]["prompt_tokens"], length - 1)

    def test_the_next_request_may_come_before_an_answer_that_takes_long(self):
        ask = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        for choices in (16, 32, 64):
            body = json.dumps(completion(max_tokens=1900, ignore_eos=True, n=choices)).encode()
            client = self.raw()
            client.settimeout(10 * group.LIMIT_S)
            client.sendall(ask + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(0.5)
            client.sendall(b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            begin = time.monotonic()
            answer = b"".join(iter(lambda: client.recv(65536), b""))
            waited_s = time.monotonic() - begin
            client.close()
            self.assertEqual(answer.count(b"HTTP/1.1 200"), 2, (answer[:200], waited_s))
            if waited_s > 12:  # longer than a request may take to come
                break

    def test_a_request_that_comes_too_slowly_is_ended(self):
        clients = [self.raw(), self.raw()]
        clients[0].sendall(b"POST /v1/completions HTTP/1.1\r\n")
        clients[1].sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
        begin = time.monotonic()
        for client in clients:
            answer = b"".join(iter(lambda: client.recv(65536), b""))
            client.close()
            self.assertIn(b"408 Request Timeout", answer)
            self.assertIn(b"SLOW_SENDER", answer)
        self.assertGreater(time.monotonic() - begin, 5)

    def test_slow_bodies_shut_no_client_out(self):
        """Bodies that take all bytes and hardly come: whoever waits for room gets it within its 5 s."""
        clients = [self.raw() for _ in range(60)]
        for client in clients:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
        self.group.wait_until(lambda load: load.host.request_bytes.now > 50000000)
        self.assertEqual(self.ask("/v1/completions", json.dumps(completion()) + " " * 900000)[0], 200)
        for client in clients:
            self.assertIn(b"408 Request Timeout", client.recv(4096))
            client.close()

    def test_clients_at_once_get_what_each_gets_alone(self):
        alone = self.ask("/v1/completions", completion())[1]["choices"][0]["text"]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(lambda i: self.ask("/v1/completions", completion(seed=i)), range(24)))
        self.assertEqual({a[1]["choices"][0]["text"] for a in answers}, {alone})

    def test_clients_that_hang_up_free_their_blocks(self):
        for stream in (True, False):
            clients = []
            for _ in range(16):
                client = self.raw()
                body = json.dumps(completion(max_tokens=2000, ignore_eos=True, stream=stream)).encode()
                client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
                clients.append(client)
            self.group.wait_until(lambda load: load.num_requests_running == 8)
            for client in clients:
                client.close()
            begin = time.monotonic()
            self.group.wait_until_idle()
            self.assertLess(time.monotonic() - begin, 20)

    def test_idle_connections_do_not_delay_health(self):
        clients = [self.raw() for _ in range(2000)]
        for client in clients[:1000]:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
        times = []
        for _ in range(20):
            begin = time.monotonic()
            self.assertEqual(self.ask("/health")[0], 200)
            times.append(time.monotonic() - begin)
        self.assertLess(sorted(times)[10], 1)
        for client in clients:
            client.close()

    def test_a_connection_is_used_again(self):
        connection = self.connect()
        for i in range(3):
            connection.request("POST", "/v1/completions", json.dumps(completion(stream=i == 1)), {"Content-Type": "application/json"})
            response = connection.getresponse()
            self.assertEqual(response.status, 200)
            response.read()
            self.assertIsNotNone(connection.sock)
        connection.close()


class DrainTest(unittest.TestCase):
    def test_a_draining_server_finishes_what_runs_and_refuses_the_rest(self):
        with group.Group("--http-port", 0) as served:
            where = address(served.http_target)
            running = http.client.HTTPConnection(*where, timeout=group.LIMIT_S)
            running.request("POST", "/v1/completions", json.dumps(completion(max_tokens=1500, ignore_eos=True)),
                            {"Content-Type": "application/json"})
            served.wait_until(lambda load: load.num_requests_running == 1)
            if group.RANKS == 1:
                os.kill(served.rank_pids()[0], signal.SIGTERM)
            else:
                served.control.Drain(group.pb.DrainRequest(), timeout=group.LIMIT_S)
            while True:
                other = http.client.HTTPConnection(*where, timeout=group.LIMIT_S)
                other.request("POST", "/v1/completions", json.dumps(completion()), {"Content-Type": "application/json"})
                response = other.getresponse()
                answer = json.loads(response.read())
                other.close()
                if response.status != 200:
                    break
            self.assertEqual((response.status, answer["error"]["code"]), (503, "DRAINING"))
            self.assertTrue(response.getheader("Retry-After"))
            answer = json.loads(running.getresponse().read())
            running.close()
            self.assertEqual(answer["usage"]["completion_tokens"], 1500)
            self.assertEqual(served.exit_code(), 0)


if __name__ == "__main__":
    unittest.main()
