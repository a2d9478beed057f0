"""Sends many prompts at once, as many as the server takes: many.py HOST:PORT < LINES."""
import asyncio
import sys

from bulkhead_client import AsyncClient, RetryPolicy, SamplingParams


async def main(target):
    async with AsyncClient(target, retry=RetryPolicy(max_attempts=100, max_wait_s=600)) as client:
        places = asyncio.Semaphore(256)

        async def ask(line):
            async with places:
                return await client.generate(line, SamplingParams(max_tokens=32, temperature=0))
        lines = [line.rstrip("\n") for line in sys.stdin if line.strip()]
        for line, answer in zip(lines, await asyncio.gather(*map(ask, lines))):
            print(f"{line!r} -> {answer.text!r}")

asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:50051"))
