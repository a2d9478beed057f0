"""Prefill and decode rates of an engine that answers whole batches: from the time of one token, and of many."""
import random
import time


def figures_of(work, vocab_size, generate):
    """`generate(prompts, tokens)` returns when each prompt has its tokens. {case: tokens/s}"""
    draw = random.Random(1)

    def seconds(batch, inputs, outputs):
        prompts = [[draw.randrange(vocab_size // 2) for _ in range(inputs)] for _ in range(batch)]
        begin = time.perf_counter()
        generate(prompts, outputs)
        return time.perf_counter() - begin

    figures = {}
    seconds(1, 16, 4)
    for batch in work["batch_size"]:
        first = seconds(batch, work["context"], 1)
        whole = seconds(batch, work["context"], work["output_len"])
        if whole > first:  # else something interrupted the first one, and there is no figure
            figures[f"decode {batch}"] = batch * (work["output_len"] - 1) / (whole - first)
    for inputs in work["input_len"]:
        figures[f"prefill {inputs}"] = inputs / seconds(1, inputs, 1)
    return figures
