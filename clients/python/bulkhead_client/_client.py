"""The client that blocks."""
from __future__ import annotations

import time
from typing import Callable, Iterator, Optional, Sequence, Tuple, TypeVar, Union

import grpc

from bulkhead.v1 import generation_pb2 as pb
from bulkhead.v1 import generation_pb2_grpc as rpc
from bulkhead_client import details_pb2 as details_pb

from ._channel import HEALTH, OPTIONS, SERVING, Pem, credentials_of, deadline_of, metadata_of, time_left
from ._errors import NO_RETRIES, BulkheadError, RetryPolicy, error_of
from ._types import (Completion, Delta, Load, Prompt, SamplingParams, Score, StreamState, load_of, request_of, score_of,
                     score_request_of, whole_of)

T = TypeVar("T")


class Stream(StreamState):
    """An answer as it is generated: an iterator of Delta. Leaving it before its end (close(), `with`, or when it is
    collected) cancels the request, and the server frees what it held."""

    def __init__(self, start: Callable[[], grpc.Call], retry: RetryPolicy, deadline: Optional[float]) -> None:
        super().__init__()
        self._start, self._retry, self._deadline = start, retry, deadline
        self._call: Optional[grpc.Call] = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __iter__(self) -> Iterator[Delta]:
        return self

    def __next__(self) -> Delta:
        if self._closed:
            raise StopIteration
        while True:
            try:
                event = next(self._call) if self._call is not None else self._first()
            except StopIteration:
                if self.completion is None:
                    raise BulkheadError(grpc.StatusCode.DATA_LOSS, "the stream ended before the answer was whole") from None
                raise
            except grpc.RpcError as error:
                raise error_of(error) from error
            delta = self._reader.read(event)
            if delta is not None:
                return delta

    def _first(self) -> pb.GenerateEvent:
        """The first event. Until it comes the server has not taken the request, and a refusal may be retried."""
        def try_once() -> pb.GenerateEvent:
            if self._closed:  # before another try
                raise BulkheadError(grpc.StatusCode.CANCELLED, "the stream was closed")
            self._call = self._start()
            if self._closed:  # by another thread, which did not see the call
                self._call.cancel()
            return next(self._call)
        return _retried(try_once, self._retry, self._deadline)


def _retried(call: Callable[[], T], retry: RetryPolicy, deadline: Optional[float]) -> T:
    begin = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        try:
            return call()
        except grpc.RpcError as error:
            typed = error_of(error)
            delay = retry.delay_s(typed, attempt, time.monotonic() - begin)
            if delay is None or (deadline is not None and time.monotonic() + delay >= deadline):
                raise typed from error
        time.sleep(delay)


class Client:
    """Calls a server at `target`. Any number of threads.

    `api_key` is sent with every call; None takes BULKHEAD_API_KEY of the environment. TLS is used where one of the tls_
    arguments is there (names of PEM files, or their bytes). `timeout_s` of a call includes all its tries."""

    def __init__(self, target: str = "127.0.0.1:50051", *, api_key: Optional[str] = None, tls_ca: Pem = None,
                 tls_cert: Pem = None, tls_key: Pem = None, timeout_s: Optional[float] = None,
                 retry: Optional[RetryPolicy] = RetryPolicy()) -> None:
        credentials = credentials_of(tls_ca, tls_cert, tls_key)
        self._metadata = metadata_of(api_key)
        self._timeout_s, self._retry = timeout_s, retry or NO_RETRIES
        self.channel = (grpc.insecure_channel(target, options=OPTIONS) if credentials is None else
                        grpc.secure_channel(target, credentials, options=OPTIONS))
        self._generation, self._control = rpc.GenerationStub(self.channel), rpc.ControlStub(self.channel)
        self._health = self.channel.unary_unary(**HEALTH)

    def close(self) -> None:
        self.channel.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def generate(self, prompt: Prompt, params: Optional[SamplingParams] = None, *,
                 timeout_s: Optional[float] = None) -> Completion:
        """The whole answer."""
        return whole_of(self._call(self._generation.Generate, request_of(prompt, params), timeout_s))

    def stream(self, prompt: Prompt, params: Optional[SamplingParams] = None, *, timeout_s: Optional[float] = None) -> Stream:
        """The answer as it is generated. Nothing is sent before the first delta is asked for."""
        request, deadline = request_of(prompt, params), self._deadline(timeout_s)
        return Stream(lambda: self._generation.GenerateStream(request, timeout=time_left(deadline), metadata=self._metadata),
                      self._retry, deadline)

    def score(self, prompt: Union[str, Sequence[int]], *, add_special_tokens: Optional[bool] = None,
              timeout_s: Optional[float] = None) -> Score:
        """The log probability of each token of a text."""
        return score_of(self._call(self._generation.Score, score_request_of(prompt, add_special_tokens), timeout_s))

    def tokenize(self, text: str, *, add_special_tokens: Optional[bool] = None,
                 timeout_s: Optional[float] = None) -> Tuple[int, ...]:
        request = pb.TokenizeRequest(text=text, add_special_tokens=add_special_tokens)
        return tuple(self._call(self._generation.Tokenize, request, timeout_s).token_ids.ids)

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: Optional[bool] = None,
                   timeout_s: Optional[float] = None) -> str:
        request = pb.DetokenizeRequest(token_ids=pb.TokenIds(ids=token_ids), skip_special_tokens=skip_special_tokens)
        return self._call(self._generation.Detokenize, request, timeout_s).text

    def health(self, *, timeout_s: Optional[float] = None) -> bool:
        """Whether the server takes requests now."""
        return self._call(self._health, details_pb.HealthCheckRequest(), timeout_s).status == SERVING

    def load(self, *, timeout_s: Optional[float] = None) -> Load:
        return load_of(self._call(self._control.GetLoad, pb.GetLoadRequest(), timeout_s))

    def model_info(self, *, timeout_s: Optional[float] = None) -> pb.ModelInfo:
        return self._call(self._control.GetModelInfo, pb.GetModelInfoRequest(), timeout_s)

    def _deadline(self, timeout_s: Optional[float]) -> Optional[float]:
        return deadline_of(self._timeout_s if timeout_s is None else timeout_s)

    def _call(self, method: Callable, request: object, timeout_s: Optional[float]):
        deadline = self._deadline(timeout_s)
        return _retried(lambda: method(request, timeout=time_left(deadline), metadata=self._metadata), self._retry, deadline)

