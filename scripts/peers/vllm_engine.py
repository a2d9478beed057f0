"""vLLM's part of compare.py; runs in an environment that has vllm, and prints one line of JSON."""
import json
import os
import sys

from timed_steps import figures_of


def main():
    work = json.loads(sys.argv[1])
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{work['threads'] - 1}"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    batch = max(work["batch_size"])
    longest = max(max(work["input_len"]), work["context"] + work["output_len"]) + 8
    engine = vllm.LLM(model=work["model"], dtype="bfloat16", skip_tokenizer_init=True, max_model_len=longest,
                      max_num_seqs=batch, max_num_batched_tokens=max(2048, batch * work["context"]), enable_prefix_caching=False)
    vocab_size = engine.llm_engine.model_config.get_vocab_size()

    def submit(prompts, tokens):
        parameters = vllm.SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        for i, prompt in enumerate(prompts):
            engine.llm_engine.add_request(str(i), {"prompt_token_ids": prompt}, parameters)

    def step():
        engine.llm_engine.step()
        return engine.llm_engine.has_unfinished_requests()

    figures = figures_of(work, vocab_size, submit, step)
    print(json.dumps({**figures, "version": vllm.__version__}))


if __name__ == "__main__":
    main()
