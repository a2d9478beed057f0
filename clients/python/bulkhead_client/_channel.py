"""What both clients know of connections."""
from __future__ import annotations

import os
import time
from typing import List, Optional, Tuple, Union

import grpc

from bulkhead_client import details_pb2 as details_pb

# Answers of many tokens with log probabilities are longer than gRPC's default of 4 MiB. Without a limit on pings a call
# that waits in silence detects that the server's machine has vanished.
OPTIONS = [("grpc.max_receive_message_length", 256 << 20), ("grpc.keepalive_time_ms", 30_000),
           ("grpc.keepalive_timeout_ms", 10_000), ("grpc.http2.max_pings_without_data", 0),
           ("grpc.enable_http_proxy", 0)]  # as `bulkhead generate`
HEALTH = {"method": "/grpc.health.v1.Health/Check", "request_serializer": details_pb.HealthCheckRequest.SerializeToString,
          "response_deserializer": details_pb.HealthCheckResponse.FromString}
SERVING = 1

Pem = Union[str, bytes, None]  # a file's name, or its bytes


def deadline_of(timeout_s: Optional[float]) -> Optional[float]:
    return None if timeout_s is None else time.monotonic() + timeout_s


def time_left(deadline: Optional[float]) -> Optional[float]:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _bytes_of(pem: Pem) -> Optional[bytes]:
    if pem is None or isinstance(pem, bytes):
        return pem
    with open(pem, "rb") as file:
        return file.read()


def credentials_of(tls_ca: Pem, tls_cert: Pem, tls_key: Pem) -> Optional[grpc.ChannelCredentials]:
    if tls_ca is None and tls_cert is None and tls_key is None:
        return None
    if (tls_cert is None) != (tls_key is None):
        raise ValueError("tls_cert and tls_key belong together: give both")
    return grpc.ssl_channel_credentials(_bytes_of(tls_ca), _bytes_of(tls_key), _bytes_of(tls_cert))


def metadata_of(api_key: Optional[str]) -> List[Tuple[str, str]]:
    key = os.environ.get("BULKHEAD_API_KEY") if api_key is None else api_key
    if not key:
        return []
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise ValueError("an API key is a word of visible ASCII characters")
    return [("authorization", f"Bearer {key}")]
