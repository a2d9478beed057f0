// A model before loading: its config, its tensors' headers, and the number formats that follow from
// them and the command line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/flags/options.h"
#include "launcher/planning/model_capacity.h"
#include "runtime/model/footprint.h"
#include "runtime/service/request_builder.h"
#include "shard/model_config.h"
#include "shard/weight_loader.h"

namespace bulkhead {

struct ModelSource {
  std::string dir;
  ParsedConfig config;                                // with its warnings and those of this reader
  std::shared_ptr<Checkpoint> checkpoint;             // may be null under Weights::kOptional
  std::vector<std::shared_ptr<Checkpoint>> adapters;  // config's, in --lora-modules order
  EmbeddingRules embedding;                           // embedding models; `alone`: no lm_head
  ModelLimits formats;  // weights, activation, kv_format, block_tokens
  // The draft model, if --speculative-config has one, or the MTP layer, of the same checkpoint.
  std::unique_ptr<ModelSource> draft;

  std::optional<ModelShape> draft_shape() const;
};

enum class Weights { kRequired, kOptional };

// "LoRA adapters: sql 84 MiB": the rank's adapter bytes, part of its weights. "": no adapters.
std::string AdaptersText(const RankShard& shard, const WeightFormats& held_as,
                         const BackendSizes& sizes);

// As given, otherwise int8 where it makes a difference.
ActivationDType ActivationOf(const EngineOptions& options, const WeightFormats& weights);

// Reads `options.model`, and checks the headers against the config if weights are required. Errors
// carry exit code 2 (a --max-model-len below 2 or beyond the model's, drafts of a model with
// states, a draft model with another vocabulary, drafts by an MTP layer that it lacks) or 3.
absl::StatusOr<ModelSource> ReadModelSource(const EngineOptions& options, Weights weights);

// An answer's default length, if one is given, is within what was planned. Exit code 2.
absl::Status CheckDefaultMaxTokens(const EngineOptions& options, const ModelConfig& model,
                                   int max_model_len);

// For callers that need logits: UNIMPLEMENTED with exit code 3 if the checkpoint has no lm_head.
absl::Status CheckHasLmHead(const ModelSource& source);

// If the device is a GPU, --numa must not be a list of nodes. Exit code 2.
absl::Status CheckFlagsOnGpu(const EngineOptions& options);
// Checks that the GPU supports the draft model's formats, if there is one, with this much shared
// memory per block. Exit code 2.
absl::Status CheckDraftOnGpu(const ModelSource& source, int64_t max_shared_bytes);

// The formats that other flags select for an already read model; its `formats` are ignored. The
// same errors.
absl::StatusOr<ModelLimits> FormatsOf(const EngineOptions& options, const ModelSource& source);
// Formats of a draft model that runs with a model with the formats `beside`: quantisation flags
// only apply to the model, and the same backend computes for both. An MTP layer has the model's.
absl::StatusOr<ModelLimits> DraftFormatsOf(const EngineOptions& options, const ModelSource& draft,
                                           const ModelLimits& beside);

}  // namespace bulkhead
