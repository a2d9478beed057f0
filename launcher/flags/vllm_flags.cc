#include "launcher/flags/vllm_flags.h"

namespace bulkhead {
namespace {

// docs/serving.md has the same table.
constexpr struct {
  absl::string_view name;
  absl::string_view hint;
} kHints[] = {
    {"-m", "write --model, or the model alone"},
    {"--api-key", "keys are read from a file: --api-key-file FILE"},
    {"--chat-template-content-format", "the template's form is recognised; leave it out"},
    {"--cpu-offload-gb", "nothing is offloaded; more ranks, or --weight-dtype int8"},
    {"--data-parallel-size", "start one group for each replica, behind a gateway"},
    {"--disable-log-requests", "requests are logged with --log-requests alone; leave it out"},
    {"--distributed-executor-backend", "ranks are started by mpirun or srun; leave it out"},
    {"--download-dir", "nothing is downloaded; HF_HOME names the local cache"},
    {"--enable-auto-tool-choice", "on where the chat template has tools; leave it out"},
    {"--enable-chunked-prefill", "always on: --max-num-batched-tokens is the chunk"},
    {"--enable-expert-parallel", "every rank has a part of each expert; leave it out"},
    {"--enable-lora", "LoRA adapters are not supported; merge them into the checkpoint"},
    {"--enforce-eager", "there is no such mode; leave it out"},
    {"--load-format", "safetensors alone are read; leave it out"},
    {"--lora-modules", "LoRA adapters are not supported; merge them into the checkpoint"},
    {"--pipeline-parallel-size", "layers are split over all ranks: --tensor-parallel-size"},
    {"--quantization", "read from config.json; --weight-dtype quantises at load"},
    {"--revision", "give the folder of the snapshot as --model"},
    {"--root-path", "leave it to a proxy before the server"},
    {"--seed", "a request has a seed of its own, generated where it gives none"},
    {"--swap-space", "nothing is swapped; --admission optimistic recomputes"},
    {"--tokenizer", "tokenizer.json of the model's folder is read"},
    {"--trust-remote-code", "a checkpoint's code is never run; leave it out"},
};

}  // namespace

absl::string_view HintOfVllmFlag(absl::string_view name) {
  for (const auto& [flag, hint] : kHints) {
    if (name == flag) return hint;
  }
  return "";
}

}  // namespace bulkhead
