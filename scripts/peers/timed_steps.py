"""Prefill and decode rates of an engine that computes step by step, as `bulkhead bench throughput` counts them."""
import random
import time


def figures_of(work, vocab_size, submit, step):
    """`submit(prompts, tokens)` queues a batch; `step()` computes once, and is false when all have their tokens.
    {case: tokens/s}"""
    draw = random.Random(1)

    def seconds_of_steps(batch, inputs, outputs):
        submit([[draw.randrange(vocab_size // 2) for _ in range(inputs)] for _ in range(batch)], outputs)
        ends, goes_on = [time.perf_counter()], True
        while goes_on:
            goes_on = step()
            ends.append(time.perf_counter())
        return [end - begin for begin, end in zip(ends, ends[1:])]

    figures = {}
    seconds_of_steps(1, 16, 4)
    for batch in work["batch_size"]:
        outputs = work["output_len"]
        seconds = seconds_of_steps(batch, work["context"], outputs)
        prefill_steps = len(seconds) - (outputs - 1)  # the last to begin takes one step for each further token
        decode = seconds[prefill_steps:outputs]  # while all generate: the first to begin ends with step `outputs`
        if decode:
            figures[f"decode {batch}"] = batch * len(decode) / sum(decode)
    for inputs in work["input_len"]:
        figures[f"prefill {inputs}"] = inputs / sum(seconds_of_steps(1, inputs, 1))
    return figures
