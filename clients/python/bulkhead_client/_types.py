"""What goes in and comes out of a client, and how it is said in the protocol."""
from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Collection, Mapping, Optional, Sequence, Tuple, Union

from bulkhead.v1 import generation_pb2 as pb

# Text, token ids, or a whole request of the protocol, which is sent as it is.
Prompt = Union[str, Sequence[int], pb.GenerateRequest]


@dataclass(frozen=True)
class SamplingParams:
    """How to generate. What is None is the model's generation_config.json's, else the server's default."""
    max_tokens: Optional[int] = None
    min_tokens: Optional[int] = None
    temperature: Optional[float] = None  # 0 is greedy
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    seed: Optional[int] = None  # the server draws one and tells it
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] = ()
    bad_words: Sequence[str] = ()
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: Optional[bool] = None
    include_stop_in_output: Optional[bool] = None
    text: Optional[bool] = None  # False: token ids alone
    skip_special_tokens: Optional[bool] = None
    logprobs: Optional[int] = None  # of the drawn token and the N likeliest
    prompt_logprobs: Optional[int] = None
    prompt_token_ids: Optional[bool] = None  # return them
    embedding: Optional[bool] = None  # of the prompt, from a model that gives embeddings; nothing is generated
    add_special_tokens: Optional[bool] = None  # to a text
    truncate_prompt_tokens: Optional[int] = None
    time_limit_ms: Optional[int] = None
    priority: Optional[int] = None  # higher is more urgent
    cache_salt: Optional[str] = None
    model: Optional[str] = None  # the served name, or a LoRA adapter's
    request_id: Optional[str] = None  # of one request at a time; the server makes one


# The message that has each field; the request itself has the others.
_GROUPS = {name: group for group, message in (("sampling", pb.Sampling), ("stopping", pb.Stopping), ("output", pb.Output))
           for name in message.DESCRIPTOR.fields_by_name}


def request_of(prompt: Prompt, params: Optional[SamplingParams]) -> pb.GenerateRequest:
    if isinstance(prompt, pb.GenerateRequest):
        if params is not None:
            raise ValueError("a GenerateRequest has its own parameters: give it without SamplingParams")
        return prompt
    request = pb.GenerateRequest()
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()  # an empty list is the server's to refuse
    for each in fields(SamplingParams):
        value = getattr(params, each.name) if params is not None else None
        group = _GROUPS.get(each.name)
        target = getattr(request, group) if group is not None else request
        if value is None:
            continue
        now = getattr(target, each.name)
        if hasattr(now, "update"):
            now.update(value)
        elif not hasattr(now, "extend"):
            setattr(target, each.name, value)
        elif isinstance(value, Collection) and not isinstance(value, (str, bytes)):  # which are collections, too
            now.extend(value)
        else:
            raise TypeError(f"{each.name}: a list, not {value!r}")
    return request


class FinishReason(enum.Enum):
    EOS = pb.FINISH_REASON_EOS
    STOP_TOKEN = pb.FINISH_REASON_STOP_TOKEN
    STOP_STRING = pb.FINISH_REASON_STOP_STRING
    MAX_TOKENS = pb.FINISH_REASON_MAX_TOKENS
    MODEL_LENGTH = pb.FINISH_REASON_MODEL_LENGTH
    TIME_LIMIT = pb.FINISH_REASON_TIME_LIMIT
    OTHER = pb.FINISH_REASON_UNSPECIFIED  # of a newer server


@dataclass(frozen=True)
class TokenLogprob:
    id: int
    logprob: float


@dataclass(frozen=True)
class Token:
    id: int
    logprob: Optional[float] = None
    rank: Optional[int] = None  # 1: the likeliest
    top: Tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Delta:
    """What a stream says next: some tokens, and the text that they complete, which may be empty."""
    text: str
    tokens: Tuple[Token, ...]
    position: int  # of its first token in the answer


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_prompt_tokens: int


@dataclass(frozen=True)
class Completion:
    text: str
    tokens: Tuple[Token, ...]
    finish_reason: FinishReason
    stop_string: Optional[str]
    stop_token_id: Optional[int]
    seed: int
    usage: Usage
    request_id: str
    prompt_token_ids: Tuple[int, ...] = ()
    prompt_logprobs: Tuple[Token, ...] = ()
    embedding: Tuple[float, ...] = ()
    raw: pb.Finished = field(default_factory=pb.Finished, repr=False, compare=False)  # and everything else, as `timings`

    @property
    def token_ids(self) -> Tuple[int, ...]:
        return tuple(token.id for token in self.tokens)


@dataclass(frozen=True)
class Score:
    token_ids: Tuple[int, ...]
    token_logprobs: Tuple[float, ...]  # of every token but the first
    nll: float
    perplexity: float


@dataclass(frozen=True)
class Load:
    running: int
    waiting: int
    kv_blocks: int
    kv_blocks_used: int
    draining: bool
    prompt_tokens_total: int
    generation_tokens_total: int
    raw: pb.LoadInfo  # and everything else


def token_of(token: pb.Token) -> Token:
    return Token(id=token.id, logprob=token.logprob if token.HasField("logprob") else None,
                 rank=token.rank if token.HasField("rank") else None,
                 top=tuple(TokenLogprob(each.id, each.logprob) for each in token.top))


def delta_of(delta: pb.Delta) -> Delta:
    return Delta(text=delta.text, tokens=tuple(map(token_of, delta.tokens)), position=delta.position)


def completion_of(text: str, tokens: Tuple[Token, ...], finished: pb.Finished, seed: int, request_id: str,
                  prompt_token_ids: Tuple[int, ...], prompt_logprobs: Tuple[Token, ...]) -> Completion:
    try:
        reason = FinishReason(finished.reason)
    except ValueError:
        reason = FinishReason.OTHER
    return Completion(
        text=text, tokens=tokens, finish_reason=reason,
        stop_string=finished.stop_string if finished.HasField("stop_string") else None,
        stop_token_id=finished.stop_token_id if finished.HasField("stop_token_id") else None, seed=seed,
        usage=Usage(finished.usage.prompt_tokens, finished.usage.completion_tokens, finished.usage.cached_prompt_tokens),
        request_id=request_id, prompt_token_ids=prompt_token_ids, prompt_logprobs=prompt_logprobs,
        embedding=tuple(finished.embedding), raw=finished)


def whole_of(response: pb.GenerateResponse) -> Completion:
    return completion_of(response.text, tuple(map(token_of, response.tokens)), response.finished, response.seed,
                         response.request_id, tuple(response.prompt_token_ids.ids),
                         tuple(map(token_of, response.prompt_logprobs)))


def score_request_of(prompt: Union[str, Sequence[int]], add_special_tokens: Optional[bool]) -> pb.ScoreRequest:
    request = pb.ScoreRequest(add_special_tokens=add_special_tokens)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
        request.token_ids.SetInParent()
    return request


def score_of(response: pb.ScoreResponse) -> Score:
    return Score(tuple(response.token_ids.ids), tuple(response.token_logprobs), response.nll, response.perplexity)


def load_of(load: pb.LoadInfo) -> Load:
    return Load(running=load.num_requests_running, waiting=load.num_requests_waiting, kv_blocks=load.num_kv_blocks,
                kv_blocks_used=load.num_kv_blocks_used, draining=load.draining,
                prompt_tokens_total=load.prompt_tokens_total, generation_tokens_total=load.generation_tokens_total, raw=load)


class StreamReader:
    """Collects the events of one stream."""

    def __init__(self) -> None:
        self.seed: Optional[int] = None
        self.request_id: Optional[str] = None
        self.prompt_token_ids: Tuple[int, ...] = ()
        self.completion: Optional[Completion] = None
        self._tokens: list[Token] = []
        self._texts: list[str] = []
        self._prompt_logprobs: list[Token] = []

    def read(self, event: pb.GenerateEvent) -> Optional[Delta]:
        kind = event.WhichOneof("event")
        if kind == "accepted":
            self.seed, self.request_id = event.accepted.seed, event.request_id
            self.prompt_token_ids = tuple(event.accepted.prompt_token_ids.ids)
        elif kind == "prompt_logprobs":
            self._prompt_logprobs.extend(map(token_of, event.prompt_logprobs.tokens))
        elif kind == "delta":
            delta = delta_of(event.delta)
            self._tokens.extend(delta.tokens)
            self._texts.append(delta.text)
            return delta
        elif kind == "finished":
            self.completion = completion_of("".join(self._texts), tuple(self._tokens), event.finished, self.seed or 0,
                                            event.request_id, self.prompt_token_ids, tuple(self._prompt_logprobs))
        return None


class StreamState:
    """What a stream knows of its answer so far."""

    def __init__(self) -> None:
        self._reader = StreamReader()

    @property
    def seed(self) -> Optional[int]:
        """The server's where the request has none. This and the next two are there with the first delta, also where the
        stream breaks later: a continued answer (`resume`) needs the seed."""
        return self._reader.seed

    @property
    def request_id(self) -> Optional[str]:
        return self._reader.request_id

    @property
    def prompt_token_ids(self) -> Tuple[int, ...]:
        """Empty unless they were asked for."""
        return self._reader.prompt_token_ids

    @property
    def completion(self) -> Optional[Completion]:
        """After the last delta."""
        return self._reader.completion
