"""OpenVINO GenAI's part of compare.py; runs in an environment that has openvino_genai, and prints one line of JSON.

The model is a folder of OpenVINO's format (optimum-cli export openvino).
"""
import json
import sys

import numpy
import openvino
import openvino_genai
from timed_steps import figures_of


def main():
    work = json.loads(sys.argv[1])
    with open(f"{work['model']}/config.json", encoding="utf-8") as f:
        vocab_size = json.load(f)["vocab_size"]
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 4
    scheduler.max_num_seqs = max(work["batch_size"])
    # All prompts of a batch begin with the same step.
    scheduler.max_num_batched_tokens = max(2048, max(work["batch_size"]) * work["context"])
    scheduler.enable_prefix_caching = False
    # As wide a cache as the others': the CPU's default is 8 bits.
    pipe = openvino_genai.ContinuousBatchingPipeline(work["model"], scheduler, "CPU",
                                                     {"INFERENCE_NUM_THREADS": work["threads"], "KV_CACHE_PRECISION": "f16"})

    handles = []  # a request ends with its handle

    def submit(prompts, tokens):
        config = openvino_genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        handles[:] = [pipe.add_request(i, openvino.Tensor(numpy.array([prompt], dtype=numpy.int64)), config)
                      for i, prompt in enumerate(prompts)]

    def step():
        pipe.step()
        return pipe.has_non_finished_requests()

    figures = figures_of(work, vocab_size, submit, step)
    print(json.dumps({**figures, "version": openvino_genai.__version__}))


if __name__ == "__main__":
    main()
