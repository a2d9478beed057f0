"""Callers with and without keys and certificates, for the tests of a server that wants them."""
import http.client
import json
import os
import ssl
import subprocess
import tempfile
import unittest

import certificates
import group
from group import grpc, pb, rpc, health_pb, health_rpc
from vllm.grpc.engine import vllm_engine_pb2 as vllm_pb
from vllm.grpc.engine import vllm_engine_pb2_grpc as vllm_rpc

GENERATE, CONTROL, METRICS, ALL = (f"{role}-key-0123456789abcdef" for role in ("generate", "control", "metrics", "all"))
KEYS = f"# of this test\ngenerate {GENERATE}\n\ncontrol {CONTROL}\nmetrics {METRICS}\n{ALL}\n"
COMPLETION = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


def content(path):
    with open(path, "rb") as f:
        return f.read()


def address(target):
    host, port = target.rsplit(":", 1)
    return host, int(port)


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


def ask(target, path, body=None, key=None, headers=None, context=None, method=None):
    """Status, JSON or text, and headers."""
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    more = {} if context is None else {"context": context}
    connection = kind(*address(target), timeout=group.LIMIT_S, **more)
    text = None if body is None else json.dumps(body)
    connection.request(method or ("GET" if text is None else "POST"), path, text,
                       {"Content-Type": "application/json", **bearer(key), **(headers or {})})
    response = connection.getresponse()
    data = response.read().decode()
    connection.close()
    is_json = response.getheader("Content-Type") == "application/json"
    return response.status, json.loads(data) if is_json else data, dict(response.getheaders())


def metadata(key):
    return [("authorization", f"Bearer {key}")] if key else None


def ended(call):
    """The code and the typed reason with which a call ended."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name, group.reason(error)
    return "OK", ""


def gate(channel):
    """Calls of every service by name, each with the key that it is given."""
    generation, control = rpc.GenerationStub(channel), rpc.ControlStub(channel)
    limit = {"timeout": group.LIMIT_S}
    return {
        "generate": lambda key: generation.Generate(group.greedy("Once", 4), metadata=metadata(key), **limit),
        "stream": lambda key: list(generation.GenerateStream(group.greedy("Once", 4), metadata=metadata(key), **limit)),
        "tokenize": lambda key: generation.Tokenize(pb.TokenizeRequest(text="Once"), metadata=metadata(key), **limit),
        "vllm": lambda key: vllm_rpc.VllmEngineStub(channel).GetModelInfo(vllm_pb.GetModelInfoRequest(),
                                                                         metadata=metadata(key), **limit),
        "load": lambda key: control.GetLoad(pb.GetLoadRequest(), metadata=metadata(key), **limit),
        "limits": lambda key: control.SetLimits(pb.SetLimitsRequest(), metadata=metadata(key), **limit),
        "model": lambda key: control.GetModelInfo(pb.GetModelInfoRequest(), metadata=metadata(key), **limit),
        "unknown": lambda key: channel.unary_unary("/bulkhead.v1.Nothing/Here", lambda _: b"", lambda _: None)(
            None, metadata=metadata(key), **limit),
    }


def probes(channel):
    """Calls that are open to all."""
    limit = {"timeout": group.LIMIT_S}
    return {
        "health": lambda: health_rpc.HealthStub(channel).Check(health_pb.HealthCheckRequest(), **limit),
        "vllm health": lambda: vllm_rpc.VllmEngineStub(channel).HealthCheck(vllm_pb.HealthCheckRequest(), **limit),
    }


NEEDS = {"generate": GENERATE, "stream": GENERATE, "tokenize": GENERATE, "vllm": GENERATE, "load": CONTROL,
         "limits": CONTROL}
UNAUTHENTICATED = ("UNAUTHENTICATED", "UNAUTHENTICATED")
DENIED = ("PERMISSION_DENIED", "PERMISSION_DENIED")


def bulkhead(*args, **environment):
    """The program's own client: exit code and all that it printed."""
    done = subprocess.run([group.BINARY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                          env=dict(group.ENVIRONMENT, **environment), timeout=group.LIMIT_S)
    return done.returncode, done.stdout


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def write(cls, name, text, mode=0o600):
        path = os.path.join(cls.folder.name, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)
        return path


class Tls(Folder):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.authority = certificates.Authority(cls.folder.name)
        cls.certificate, cls.key = cls.authority.sign("server")
        cls.root = content(cls.authority.certificate)

    @classmethod
    def context(cls, pair=None):
        context = ssl.create_default_context(cafile=cls.authority.certificate)
        if pair is not None:
            context.load_cert_chain(*pair)
        return context

    @classmethod
    def secure(cls, target, pair=None):
        key, chain = None, None
        if pair is not None:
            chain, key = map(content, pair)
        return grpc.secure_channel(target, grpc.ssl_channel_credentials(cls.root, key, chain),
                                   [("grpc.use_local_subchannel_pool", 1)])
