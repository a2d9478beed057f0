"""Errors of calls, and which of them are retried."""
from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Dict, Iterable, Optional, Tuple

import grpc

from bulkhead_client import details_pb2 as details_pb

# With these reasons another try can succeed by itself.
_RETRIED = {(grpc.StatusCode.UNAVAILABLE, reason) for reason in ("STARTING", "DRAINING", "TOO_MANY_CALLS")}


class BulkheadError(Exception):
    """A call that failed: `code` of gRPC, the server's typed `reason` ("QUEUE_FULL", "PROMPT_TOO_LONG" ...; empty if gRPC
    itself failed), what the reason is about in `metadata`, and `retry_after_s` where the server gives one."""

    def __init__(self, code: grpc.StatusCode, message: str, reason: str = "", metadata: Optional[Dict[str, str]] = None,
                 retry_after_s: Optional[float] = None) -> None:
        super().__init__(f"{reason or code.name}: {message}")
        self.code, self.message, self.reason = code, message, reason
        self.metadata, self.retry_after_s = metadata or {}, retry_after_s

    @property
    def is_retryable(self) -> bool:
        """Whether the refused call may succeed when it is sent again."""
        if self.code == grpc.StatusCode.RESOURCE_EXHAUSTED:
            return self.retry_after_s is not None
        return (self.code, self.reason) in _RETRIED


def error_of(error: grpc.RpcError) -> BulkheadError:
    """`error` is a failed call: it has a code, a text and metadata."""
    reason, metadata, retry_after_s = "", {}, None
    for key, value in _pairs(error.trailing_metadata()):
        if key != "grpc-status-details-bin":
            continue
        try:
            status = details_pb.Status.FromString(value)
            for packed in status.details:
                name = packed.type_url.rsplit("/", 1)[-1]
                if name == "google.rpc.ErrorInfo":
                    info = details_pb.ErrorInfo.FromString(packed.value)
                    reason, metadata = info.reason, dict(info.metadata)
                elif name == "google.rpc.RetryInfo":
                    delay = details_pb.RetryInfo.FromString(packed.value).retry_delay
                    retry_after_s = max(0.0, delay.seconds + delay.nanos / 1e9)
        except Exception:  # of a program between: the code and its text remain
            continue
    return BulkheadError(error.code(), error.details() or "", reason, metadata, retry_after_s)


def _pairs(metadata: Optional[Iterable]) -> Iterable[Tuple[str, bytes]]:
    return ((pair[0], pair[1]) for pair in metadata or ())


@dataclass(frozen=True)
class RetryPolicy:
    """Refusals that say so are tried again, until `max_wait_s` has passed since the first try."""
    max_attempts: int = 10
    max_wait_s: float = 60.0
    initial_s: float = 0.1  # doubles with each try; the server's hint is a lower bound
    longest_s: float = 10.0

    def delay_s(self, error: BulkheadError, attempt: int, waited_s: float) -> Optional[float]:
        """How long to wait before try `attempt` + 1 (the first is 1); None: give up."""
        if not error.is_retryable or attempt >= self.max_attempts:
            return None
        delay = min(self.longest_s, self.initial_s * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0)
        if error.retry_after_s is not None:  # and not all at once
            delay = max(delay, error.retry_after_s * random.uniform(1.0, 1.2))
        return delay if waited_s + delay <= self.max_wait_s else None


NO_RETRIES = RetryPolicy(max_attempts=1)
