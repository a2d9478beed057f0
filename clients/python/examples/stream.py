"""Streams an answer: stream.py [HOST:PORT [PROMPT]]."""
import sys

from bulkhead_client import BulkheadError, Client, SamplingParams

target = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"
prompt = sys.argv[2] if len(sys.argv) > 2 else "Once upon a time"
try:
    with Client(target) as client, client.stream(prompt, SamplingParams(max_tokens=64, temperature=0.8)) as stream:
        for delta in stream:
            print(delta.text, end="", flush=True)
        done = stream.completion
        print(f"\n[{done.finish_reason.name}, {done.usage.completion_tokens} tokens, seed {done.seed}]")
except BulkheadError as error:
    sys.exit(f"{target}: {error}")
