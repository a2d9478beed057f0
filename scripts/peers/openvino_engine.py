"""OpenVINO GenAI's part of compare.py; runs in an environment that has openvino_genai, and prints one line of JSON.

The model is a folder of OpenVINO's format (optimum-cli export openvino).
"""
import json
import sys

import numpy
import openvino
import openvino_genai
from two_runs import figures_of


def main():
    work = json.loads(sys.argv[1])
    with open(f"{work['model']}/config.json", encoding="utf-8") as f:
        vocab_size = json.load(f)["vocab_size"]
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 4
    scheduler.max_num_seqs = max(work["batch_size"])
    scheduler.max_num_batched_tokens = 2048
    scheduler.enable_prefix_caching = False
    pipe = openvino_genai.ContinuousBatchingPipeline(work["model"], scheduler, "CPU",
                                                     {"INFERENCE_NUM_THREADS": work["threads"]})

    def generate(prompts, tokens):
        config = openvino_genai.GenerationConfig(max_new_tokens=tokens, ignore_eos=True, do_sample=False)
        pipe.generate([openvino.Tensor(numpy.array([prompt], dtype=numpy.int64)) for prompt in prompts],
                      [config] * len(prompts))

    figures = figures_of(work, vocab_size, generate)
    print(json.dumps({**figures, "version": openvino_genai.__version__}))


if __name__ == "__main__":
    main()
