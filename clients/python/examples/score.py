"""Prints how likely a model finds each line: score.py HOST:PORT < LINES."""
import sys

from bulkhead_client import Client

with Client(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051") as client:
    for line in sys.stdin:
        score = client.score(line.rstrip("\n"))
        print(f"{score.perplexity:10.2f} {len(score.token_ids):5} tokens  {line.rstrip()}")
