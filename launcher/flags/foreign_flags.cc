#include "launcher/flags/foreign_flags.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace bulkhead {
namespace {

// docs/serving.md has the same table.
constexpr struct {
  absl::string_view names;
  absl::string_view hint;
} kHints[] = {
    {"-a,--alias", "write --served-model-name"},
    {"-b,--batch-size,-ub,--ubatch-size,--chunked-prefill-size,--max-prefill-tokens",
     "write --max-num-batched-tokens, the tokens of one step"},
    {"-c,--ctx-size", "write --max-model-len, the limit of each sequence, not of all together"},
    {"-ctk,-ctv,--cache-type-k,--cache-type-v",
     "write --kv-cache-dtype, for keys and values together"},
    {"-cb,--cont-batching,-fa,--flash-attn,--jinja", "always on; leave it out"},
    {"-hf,-hfr,--hf-repo", "nothing is downloaded; 'hf download' brings a folder for --model"},
    {"-md,--draft-max,--draft-min,--model-draft,--num-speculative-tokens,--speculative-model",
     "write --speculative-config"},
    {"-m,--model-path", "write --model, or the model without a flag"},
    {"-n,--predict,--n-predict", "write --max-tokens"},  // of one prompt, else of a server:
    {"-n,--predict,--n-predict", "write --default-max-tokens, for requests without max_tokens"},
    {"-ngl,--gpu-layers,--n-gpu-layers",
     "all layers are on one device; write --device cuda or --device cpu"},
    {"-np,--parallel,--max-running-requests", "write --max-num-seqs"},
    {"-t,-tb,--threads-batch", "write --threads"},
    {"-ts,--tensor-split", "write --tp-shares"},
    {"--allow-credentials", "browsers send API keys without it; leave it out"},
    {"--allowed-headers,--allowed-methods", "all are allowed to --allowed-origins; leave it out"},
    {"--backend,--endpoint", "the server at --target is measured over gRPC; leave it out"},
    {"--base-url,--host,--port,--url", "write --target HOST:PORT"},  // of chat:
    {"--base-url,--host,--port,--url", "write --http HOST:PORT"},
    {"--model", "the server at --target has one model; leave it out"},
    {"--async-scheduling,--enable-server-load-tracking", "always on; leave it out"},
    {"--attention-backend", "the device and the KV cache decide; leave it out"},
    {"--api-key", "keys are read from a file: --api-key-file FILE"},
    {"--chat-template-file", "write --chat-template"},
    {"--chat-template-content-format", "the template's form is recognised; leave it out"},
    {"-O,--compilation-config", "nothing is compiled at start; leave it out"},
    {"--context-length,--context-len", "write --max-model-len"},
    {"--cpu-offload-gb", "nothing is offloaded; use more ranks, or --weight-dtype int8"},
    {"-dp,--data-parallel-size,--dp,--dp-size", "start one group for each replica"},
    {"--disable-custom-all-reduce", "BULKHEAD_ONE_SHOT=0 in the environment does that"},
    {"--disable-log-requests", "requests are logged only with --log-requests; leave it out"},
    {"--disable-log-stats", "a busy server logs its load every 10 s; leave it out"},
    {"--disable-radix-cache", "write --no-enable-prefix-caching"},
    {"--distributed-executor-backend", "ranks are started by mpirun or srun; leave it out"},
    {"--download-dir", "nothing is downloaded; HF_HOME names the local cache"},
    {"--enable-auto-tool-choice", "always on if the chat template has tools; leave it out"},
    {"--enable-chunked-prefill", "always on: --max-num-batched-tokens is the chunk"},
    {"-ep,--enable-expert-parallel,--ep,--ep-size",
     "each expert is split over all ranks; leave it out"},
    {"--enable-lora,--lora-dtype,--max-cpu-loras,--max-loaded-loras,--max-lora-rank,--max-loras,"
     "--max-loras-per-batch",
     "all --lora-modules are loaded at start, with any LoRA rank; leave it out"},
    {"--enable-metrics", "always on, at --metrics-port; leave it out"},
    {"--enforce-eager,--disable-cuda-graph", "there is no such mode; leave it out"},
    {"--generation-config,--override-generation-config",
     "generation_config.json of the model's folder is used; leave it out"},
    {"--guided-decoding-backend,--structured-outputs-config",
     "there is only one backend; leave it out"},
    {"--hf-overrides,--rope-scaling", "change config.json in a copy of the model's folder"},
    {"--hf-token", "nothing is downloaded; leave it out"},
    {"--kv-cache-memory", "write --kv-cache-bytes"},
    {"--kv-events-config", "write --enable-kv-cache-events"},
    {"--kv-dtype", "write --kv-cache-dtype"},
    {"--kv-transfer-config", "prefill and decode are not split over servers; leave it out"},
    {"--limit-mm-per-prompt", "only text is served; leave it out"},
    {"--lora,--lora-paths", "write --lora-modules NAME=DIR,..."},
    {"--log-level,--uvicorn-log-level", "write --verbose for a longer log"},
    {"--max-logprobs", "a request can ask for up to 20; leave it out"},
    {"--load-format", "only safetensors are read; leave it out"},
    {"--max-new-tokens", "write --max-tokens"},
    {"--max-queued-requests", "write --max-num-queued-reqs"},
    {"--max-total-tokens,--num-gpu-blocks-override", "write --cache-max-entry-count, in blocks"},
    {"--mem-fraction-static", "write --gpu-memory-utilization, which includes activations"},
    {"--mlock,--no-mmap", "weights are read into memory, never mapped; leave it out"},
    {"--page-size", "write --block-size"},
    {"--percentile-metrics",
     "all metrics are reported; --metric-percentiles selects the percentiles"},
    {"-pp,--pipeline-parallel-size,--pp,--pp-size",
     "each layer is split over all ranks; write --tensor-parallel-size"},
    {"-q,--quantization", "config.json says it; --weight-dtype quantises at load"},
    {"--repeat-penalty", "write --repetition-penalty"},
    {"--revision", "give the folder of the snapshot as --model"},
    {"--root-path", "leave it to a proxy before the server"},
    {"--schedule-policy", "write --scheduling-policy"},
    {"--random-seed,--seed",
     "each request has its own seed, generated if it gives none; leave it out"},
    {"-sm,--split-mode,-mg,--main-gpu", "each rank has one GPU and a shard of every layer"},
    {"--swap-space", "nothing is swapped; --admission optimistic recomputes instead"},
    {"--task,--runner", "the checkpoint says whether it embeds or generates; leave it out"},
    {"--temp", "write --temperature"},  // of one prompt, else of a server:
    {"--temp", "each request has its own temperature; leave it out"},
    {"--tokenizer,--tokenizer-mode", "tokenizer.json of the model's folder is used; leave it out"},
    {"--tp-size", "write --tensor-parallel-size"},
    {"--trust-remote-code", "a checkpoint's code is never run; leave it out"},
};

bool NamesOnly(absl::string_view hint, absl::Span<const std::string> flags) {
  for (const absl::string_view word : absl::StrSplit(hint, absl::ByAnyChar(" ,:;"))) {
    if (absl::StartsWith(word, "--") && !absl::c_linear_search(flags, word)) return false;
  }
  return true;
}

}  // namespace

absl::string_view HintOfForeignFlag(absl::string_view name, absl::Span<const std::string> flags) {
  for (const auto& [names, hint] : kHints) {
    for (const absl::string_view one : absl::StrSplit(names, ',')) {
      if (name == one && NamesOnly(hint, flags)) return hint;
    }
  }
  return "";
}

}  // namespace bulkhead
