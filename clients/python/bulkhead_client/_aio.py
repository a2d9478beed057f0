"""The client for asyncio: the methods of Client, awaited."""
from __future__ import annotations

import asyncio
import time
import weakref
from typing import AsyncIterator, Awaitable, Callable, Optional, Sequence, Tuple, Union

import grpc
import grpc.aio

from bulkhead.v1 import generation_pb2 as pb
from bulkhead.v1 import generation_pb2_grpc as rpc
from bulkhead_client import details_pb2 as details_pb

from ._channel import HEALTH, OPTIONS, SERVING, Pem, credentials_of, deadline_of, metadata_of, time_left
from ._errors import NO_RETRIES, BulkheadError, RetryPolicy, error_of
from ._types import (Completion, Delta, Load, Prompt, SamplingParams, Score, StreamState, load_of, request_of, score_of,
                     score_request_of, whole_of)


class AsyncStream(StreamState):
    """As Stream: an asynchronous iterator of Delta, cancelled when it is left."""

    def __init__(self, start: Callable, retry: RetryPolicy, deadline: Optional[float]) -> None:
        super().__init__()
        self._start, self._retry, self._deadline = start, retry, deadline
        self._call = None
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    async def __anext__(self) -> Delta:
        if self._closed:
            raise StopAsyncIteration
        while True:
            try:
                event = await (self._read() if self._call is not None else self._first())
            except grpc.RpcError as error:
                raise error_of(error) from error
            if event is grpc.aio.EOF:
                if self.completion is None:
                    raise BulkheadError(grpc.StatusCode.DATA_LOSS, "the stream ended before the answer was whole")
                raise StopAsyncIteration
            delta = self._reader.read(event)
            if delta is not None:
                return delta

    async def _read(self):
        return await _unless_closed(self._call.read(), self._check_open)

    async def _first(self):
        async def try_once():
            self._check_open()  # before another try
            self._call = self._start()
            return await self._read()
        return await _retried(try_once, self._retry, self._deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise BulkheadError(grpc.StatusCode.CANCELLED, "the stream was closed")


async def _unless_closed(answer: Awaitable, check_open: Callable[[], None]):
    """gRPC cancels whoever waits for a call that is closed, as if it had been cancelled itself."""
    try:
        return await answer
    except asyncio.CancelledError:
        cancelling = getattr(asyncio.current_task(), "cancelling", None)  # Python 3.11
        if cancelling is None or cancelling() == 0:
            check_open()
        raise


async def _retried(call: Callable, retry: RetryPolicy, deadline: Optional[float]):
    begin = time.monotonic()
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call()
        except grpc.RpcError as error:
            typed = error_of(error)
            delay = retry.delay_s(typed, attempt, time.monotonic() - begin)
            if delay is None or (deadline is not None and time.monotonic() + delay >= deadline):
                raise typed from error
        await asyncio.sleep(delay)


class AsyncClient:
    """As Client. Made and used in one event loop."""

    def __init__(self, target: str = "127.0.0.1:50051", *, api_key: Optional[str] = None, tls_ca: Pem = None,
                 tls_cert: Pem = None, tls_key: Pem = None, timeout_s: Optional[float] = None,
                 retry: Optional[RetryPolicy] = RetryPolicy()) -> None:
        credentials = credentials_of(tls_ca, tls_cert, tls_key)
        self._metadata = metadata_of(api_key)
        self._timeout_s, self._retry = timeout_s, retry or NO_RETRIES
        self.channel = (grpc.aio.insecure_channel(target, options=OPTIONS) if credentials is None else
                        grpc.aio.secure_channel(target, credentials, options=OPTIONS))
        self._generation, self._control = rpc.GenerationStub(self.channel), rpc.ControlStub(self.channel)
        self._health = self.channel.unary_unary(**HEALTH)
        self._closed = False
        self._streams: weakref.WeakSet[AsyncStream] = weakref.WeakSet()

    async def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):  # which the channel leaves open
            stream.close()
        await self.channel.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def generate(self, prompt: Prompt, params: Optional[SamplingParams] = None, *,
                       timeout_s: Optional[float] = None) -> Completion:
        return whole_of(await self._call(self._generation.Generate, request_of(prompt, params), timeout_s))

    def stream(self, prompt: Prompt, params: Optional[SamplingParams] = None, *,
               timeout_s: Optional[float] = None) -> AsyncStream:
        self._check_open()
        request, deadline = request_of(prompt, params), self._deadline(timeout_s)
        stream = AsyncStream(lambda: self._generation.GenerateStream(request, timeout=time_left(deadline), metadata=self._metadata),
                             self._retry, deadline)
        self._streams.add(stream)
        return stream

    async def score(self, prompt: Union[str, Sequence[int]], *, add_special_tokens: Optional[bool] = None,
                    timeout_s: Optional[float] = None) -> Score:
        return score_of(await self._call(self._generation.Score, score_request_of(prompt, add_special_tokens), timeout_s))

    async def tokenize(self, text: str, *, add_special_tokens: Optional[bool] = None,
                       timeout_s: Optional[float] = None) -> Tuple[int, ...]:
        request = pb.TokenizeRequest(text=text, add_special_tokens=add_special_tokens)
        return tuple((await self._call(self._generation.Tokenize, request, timeout_s)).token_ids.ids)

    async def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: Optional[bool] = None,
                         timeout_s: Optional[float] = None) -> str:
        request = pb.DetokenizeRequest(token_ids=pb.TokenIds(ids=token_ids), skip_special_tokens=skip_special_tokens)
        return (await self._call(self._generation.Detokenize, request, timeout_s)).text

    async def health(self, *, timeout_s: Optional[float] = None) -> bool:
        return (await self._call(self._health, details_pb.HealthCheckRequest(), timeout_s)).status == SERVING

    async def load(self, *, timeout_s: Optional[float] = None) -> Load:
        return load_of(await self._call(self._control.GetLoad, pb.GetLoadRequest(), timeout_s))

    async def model_info(self, *, timeout_s: Optional[float] = None) -> pb.ModelInfo:
        return await self._call(self._control.GetModelInfo, pb.GetModelInfoRequest(), timeout_s)

    def _deadline(self, timeout_s: Optional[float]) -> Optional[float]:
        return deadline_of(self._timeout_s if timeout_s is None else timeout_s)

    async def _call(self, method: Callable, request: object, timeout_s: Optional[float]):
        deadline = self._deadline(timeout_s)

        async def try_once():
            self._check_open()  # before another try
            return await _unless_closed(method(request, timeout=time_left(deadline), metadata=self._metadata), self._check_open)
        return await _retried(try_once, self._retry, deadline)

    def _check_open(self) -> None:
        if self._closed:
            raise BulkheadError(grpc.StatusCode.CANCELLED, "the client was closed")
