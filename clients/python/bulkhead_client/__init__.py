"""Client of a Bulkhead server over gRPC: typed, streaming, retrying what the server says may be retried."""
from ._aio import AsyncClient, AsyncStream
from ._client import Client, Stream
from ._errors import BulkheadError, RetryPolicy
from ._types import (Completion, Delta, FinishReason, Load, SamplingParams, Score, Token, TokenLogprob, Usage)

__all__ = ["AsyncClient", "AsyncStream", "BulkheadError", "Client", "Completion", "Delta", "FinishReason", "Load",
           "RetryPolicy", "SamplingParams", "Score", "Stream", "Token", "TokenLogprob", "Usage"]
