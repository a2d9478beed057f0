#include "launcher/planning/model_source.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "launcher/model_path.h"
#include "launcher/planning/embedding_config.h"
#include "launcher/wire.h"
#include "memory/kv_format_name.h"
#include "runtime/model/family.h"

namespace bulkhead {
namespace {

absl::Status CheckLength(const EngineOptions& options, const ModelConfig& model) {
  const int asked = options.limits.max_model_len.value_or(model.max_position_embeddings);
  if (asked > model.max_position_embeddings) {
    return WithExitCode(
        absl::InvalidArgumentError(
            absl::StrCat(options.length_flags, ": ", asked, " is more than the model's ",
                         model.max_position_embeddings, " (max_position_embeddings); give less")),
        ExitCode::kUsage);
  }
  if (asked >= 2) return absl::OkStatus();
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          "config.json: max_position_embeddings is ", asked,
                          ", and must be at least 2: one token of prompt and one generated")),
                      ExitCode::kModelRefused);
}

// Rejects quantisation flags that do not apply.
absl::Status CheckQuantization(const EngineOptions& options, const ModelConfig& model) {
  const bool stored = model.quantization.method != QuantizationConfig::Method::kNone;
  absl::Status status;
  if (options.weight_group_size > 0 && !options.weight_dtype.has_value()) {
    status = absl::InvalidArgumentError(
        "--weight-group-size is for --weight-dtype; give both, or neither");
  } else if (stored && options.weight_dtype.has_value()) {
    status = absl::InvalidArgumentError(
        "--weight-dtype: the checkpoint's weights are quantised already; leave it out");
  } else if (options.activation_dtype == ActivationDType::kInt8 && !stored &&
             !options.weight_dtype.has_value()) {
    status = absl::InvalidArgumentError(
        "--activation-dtype int8 needs quantised weights; add --weight-dtype int8 or int4");
  }
  return status.ok() ? status : WithExitCode(status, ExitCode::kUsage);
}

// As transformers does for a checkpoint with both tensors but different values.
absl::Status UntieDifferentLmHead(ModelSource& source) {
  ModelConfig& model = source.config.model;
  if (!model.tie_word_embeddings) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const bool own, source.checkpoint->HasOwnLmHead(model));
  if (!own) return absl::OkStatus();
  model.tie_word_embeddings = false;
  source.config.warnings.push_back(
      "config.json says tie_word_embeddings, but the checkpoint has an lm_head that is not its "
      "embedding: they are not tied, and both are loaded");
  return absl::OkStatus();
}

// An embedding model is often saved without its head, which is then not required.
void DoWithoutLmHead(ModelSource& source) {
  ModelConfig& model = source.config.model;
  source.embedding = ReadEmbeddingRules(source.dir, model.hidden_size);
  if (model.tie_word_embeddings || source.embedding.size == 0) return;
  if (source.checkpoint->HasLmHead(model)) return;
  source.embedding.alone = true;
  model.tie_word_embeddings = true;
  source.config.warnings.push_back(
      "the checkpoint has no lm_head: it is served only for embeddings");
}

// "auto": the dtype in config.json, or if absent the stored tensors' dtype.
DType StatedDType(const ModelSource& source) {
  const DType stored = source.checkpoint != nullptr ? source.checkpoint->MainDType() : DType::kF32;
  return source.config.model.dtype.value_or(stored);
}

// Options to read a draft model with: as a separate model, with the flags that apply to both.
EngineOptions DraftOptionsOf(const EngineOptions& options) {
  EngineOptions own = options;
  own.model = options.speculative.model;
  own.speculative = {};
  own.lora_modules.clear();
  own.limits.max_model_len.reset();  // beyond its own length there are no drafts
  own.weight_dtype.reset();
  own.weight_group_size = 0;
  own.activation_dtype.reset();
  own.attention_dtype.reset();
  return own;
}

// What is wrong with the draft model, with its exit code.
absl::Status OfDraft(const EngineOptions& options, const absl::Status& status) {
  return WithExitCode(
      absl::Status(status.code(), absl::StrCat("--speculative-config: the draft model ",
                                               options.speculative.model, ": ", status.message())),
      ExitCodeOf(status));
}

absl::Status CheckDraftModel(const ModelConfig& draft, const ModelConfig& model) {
  if (draft.vocab_size == model.vocab_size) return absl::OkStatus();
  return WithExitCode(absl::InvalidArgumentError(
                          absl::StrCat("its vocab_size is ", draft.vocab_size, ", and the model's ",
                                       model.vocab_size, "; choose one of the same vocabulary")),
                      ExitCode::kUsage);
}

absl::Status ReadDraftModel(const EngineOptions& options, Weights weights, ModelSource& source) {
  absl::StatusOr<ModelSource> draft = ReadModelSource(DraftOptionsOf(options), weights);
  if (!draft.ok()) return OfDraft(options, draft.status());
  absl::Status fits = CheckDraftModel(draft->config.model, source.config.model);
  if (fits.ok()) fits = CheckHasLmHead(*draft);
  if (!fits.ok()) return OfDraft(options, fits);
  source.draft = std::make_unique<ModelSource>(*std::move(draft));
  absl::StatusOr<ModelLimits> formats = DraftFormatsOf(options, *source.draft, source.formats);
  if (!formats.ok()) return OfDraft(options, formats.status());
  source.draft->formats = *std::move(formats);
  return absl::OkStatus();
}

absl::Status ReadMtpLayer(ModelSource& source) {
  constexpr char kRemedy[] =
      "; choose the method \"ngram\" or \"draft_model\", or leave --speculative-config out";
  const ModelConfig& model = source.config.model;
  if (model.num_mtp_layers == 0) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            "--speculative-config: the method mtp needs a checkpoint with a layer for multi-token "
            "prediction, and this ",
            model.architecture, " has none, as its config.json says", kRemedy)),
        ExitCode::kUsage);
  }
  source.draft = std::make_unique<ModelSource>();
  ModelSource& layer = *source.draft;
  layer.dir = source.dir;
  layer.config.model = MtpConfigOf(model);
  layer.checkpoint = source.checkpoint;
  layer.formats = source.formats;
  layer.formats.max_drafts = 0;
  if (layer.checkpoint == nullptr) return absl::OkStatus();
  const absl::Status found = layer.checkpoint->CheckAgainst(layer.config.model);
  if (found.ok()) return found;
  return WithExitCode(
      absl::Status(found.code(), absl::StrCat("--speculative-config: the layer for multi-token "
                                              "prediction: ",
                                              found.message(), kRemedy)),
      ExitCodeOf(found));
}

absl::Status ReadAdapters(const EngineOptions& options, ModelSource& source) {
  if (options.lora_modules.empty()) return absl::OkStatus();
  const std::vector<std::vector<TensorRow>> layers = AdaptableRows(source.config.model);
  for (const LoraModule& module : options.lora_modules) {
    const absl::StatusOr<std::string> dir = ResolveModelPath(module.dir);
    if (!dir.ok()) {
      return WithExitCode(
          absl::Status(dir.status().code(), absl::StrCat("--lora-modules: adapter '", module.name,
                                                         "': ", dir.status().message())),
          ExitCodeOf(dir.status()));
    }
    BH_ASSIGN_OR_RETURN(AdapterConfig adapter,
                        ReadAdapter(module.name, *dir, source.config.model, layers));
    for (const std::string& field : adapter.unknown_fields) {
      const std::string what =
          absl::StrCat("adapter '", adapter.name, "': adapter_config.json: unknown field ", field);
      if (options.strict_config) {
        return WithExitCode(absl::UnimplementedError(what), ExitCode::kModelRefused);
      }
      source.config.warnings.push_back(what);
    }
    BH_ASSIGN_OR_RETURN(source.adapters.emplace_back(), Checkpoint::OpenAdapter(*dir));
    source.config.model.adapters.push_back(std::move(adapter));
  }
  return absl::OkStatus();
}

void WarnOfDType(const EngineOptions& options, ModelSource& source) {
  if (source.checkpoint == nullptr || options.dtype.has_value()) return;
  const DType stated = StatedDType(source);
  const DType stored = source.checkpoint->MainDType();
  if (stated == stored) return;
  source.config.warnings.push_back(absl::StrCat(
      "config.json says ", DTypeName(stated), " but most tensors are ", DTypeName(stored),
      ": weights are stored as ", DTypeName(stated), "; --dtype chooses"));
}

}  // namespace

std::string AdaptersText(const RankShard& shard, const WeightFormats& held_as,
                         const BackendSizes& sizes) {
  std::vector<std::string> adapters;
  for (const AdapterConfig& adapter : shard.model->adapters) {
    adapters.push_back(
        absl::StrCat(adapter.name, " ", FormatBytes(AdapterBytes(shard, held_as, sizes, adapter))));
  }
  if (adapters.empty()) return "";
  return absl::StrCat("LoRA adapters: ", absl::StrJoin(adapters, ", "));
}

absl::Status CheckDefaultMaxTokens(const EngineOptions& options, const ModelConfig& model,
                                   int max_model_len) {
  const int asked = options.default_max_tokens;
  if (asked == EngineOptions().default_max_tokens || asked <= max_model_len) {
    return absl::OkStatus();
  }
  return WithExitCode(
      absl::InvalidArgumentError(absl::StrCat(
          "--default-max-tokens: ", asked, " is more than max_model_len ", max_model_len, ", ",
          max_model_len == model.max_position_embeddings ? "the model's own"
                                                         : "which is what fits in memory",
          "; it holds prompt and answer: give less")),
      ExitCode::kUsage);
}

absl::Status CheckFlagsOnGpu(const EngineOptions& options) {
  if (options.numa.nodes.empty()) return absl::OkStatus();
  return WithExitCode(absl::InvalidArgumentError(
                          "--numa: a list of nodes is only for CPUs, since a rank with a GPU "
                          "runs on the cores next to it; leave it out, or add --device cpu"),
                      ExitCode::kUsage);
}

absl::Status CheckDraftOnGpu(const ModelSource& source, int64_t max_shared_bytes) {
  if (source.draft == nullptr) return absl::OkStatus();
  const absl::Status known =
      MakeGpuSizes(source.draft->formats, source.draft->config.model, false, max_shared_bytes)
          .status();
  if (known.ok()) return known;
  return WithExitCode(
      absl::Status(known.code(), absl::StrCat("--speculative-config: the draft model ",
                                              source.draft->dir, ": ", known.message())),
      ExitCodeOf(known));
}

ActivationDType ActivationOf(const EngineOptions& options, const WeightFormats& weights) {
  const bool fast =
      (HasIntegerCodes(weights.layers) && !weights.act_order) || HasIntegerCodes(weights.tables);
  return options.activation_dtype.value_or(fast ? ActivationDType::kInt8 : ActivationDType::kF32);
}

absl::Status CheckHasLmHead(const ModelSource& source) {
  if (!source.embedding.alone) return absl::OkStatus();
  return WithExitCode(
      absl::UnimplementedError(absl::StrCat("the checkpoint in ", source.dir,
                                            " has no lm_head: 'bulkhead serve' gives its "
                                            "embeddings, and nothing can be generated")),
      ExitCode::kModelRefused);
}

absl::StatusOr<ModelSource> ReadModelSource(const EngineOptions& options, Weights weights) {
  ModelSource source;
  BH_ASSIGN_OR_RETURN(source.dir, ResolveModelPath(options.model));
  const UnknownFields unknown =
      options.strict_config ? UnknownFields::kRefuse : UnknownFields::kWarn;
  BH_ASSIGN_OR_RETURN(source.config, ReadModelConfig(source.dir, unknown, AllFamilySpecs()));
  BH_RETURN_IF_ERROR(CheckLength(options, source.config.model));
  BH_RETURN_IF_ERROR(CheckQuantization(options, source.config.model));
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(source.dir);
  if (checkpoint.ok()) {
    source.checkpoint = *std::move(checkpoint);
    ModelConfig& model = source.config.model;
    model.family = source.checkpoint->FamilyOfNames(model, AllFamilySpecs());
    DoWithoutLmHead(source);
    BH_RETURN_IF_ERROR(UntieDifferentLmHead(source));
    BH_RETURN_IF_ERROR(source.checkpoint->CheckAgainst(source.config.model));
  } else if (weights == Weights::kRequired || !absl::IsNotFound(checkpoint.status())) {
    return checkpoint.status();
  } else if (std::error_code absent;
             std::filesystem::exists(source.dir + "/model.safetensors.index.json", absent)) {
    source.config.warnings.push_back(
        absl::StrCat("serve would not start: ", checkpoint.status().message(),
                     "; this plan is made from config.json only"));
  }
  BH_RETURN_IF_ERROR(ReadAdapters(options, source));
  WarnOfDType(options, source);
  BH_ASSIGN_OR_RETURN(source.formats, FormatsOf(options, source));
  if (!options.speculative.model.empty()) {
    BH_RETURN_IF_ERROR(ReadDraftModel(options, weights, source));
  }
  if (options.speculative.drafts.mtp) BH_RETURN_IF_ERROR(ReadMtpLayer(source));
  return source;
}

std::optional<ModelShape> ModelSource::draft_shape() const {
  if (draft == nullptr) return std::nullopt;
  return ModelShape{draft->config.model, draft->formats};
}

absl::StatusOr<ModelLimits> DraftFormatsOf(const EngineOptions& options, const ModelSource& draft,
                                           const ModelLimits& beside) {
  if (draft.config.model.mtp_layer > 0) {
    ModelLimits formats = beside;
    formats.max_drafts = 0;
    return formats;
  }
  BH_ASSIGN_OR_RETURN(ModelLimits formats, FormatsOf(DraftOptionsOf(options), draft));
  formats.activation = beside.activation;
  formats.attention = beside.attention;
  formats.caches_states = false;  // its states are computed with each sequence
  formats.max_rejected = beside.max_rejected;
  return formats;
}

absl::StatusOr<ModelLimits> FormatsOf(const EngineOptions& options, const ModelSource& source) {
  const ModelConfig& model = source.config.model;
  BH_RETURN_IF_ERROR(CheckLength(options, model));
  BH_RETURN_IF_ERROR(CheckQuantization(options, model));
  const DType stated = StatedDType(source);
  ModelLimits formats;
  formats.weights = options.weight_dtype.has_value()
                        ? WeightFormats::AtLoad(*options.weight_dtype, options.weight_group_size)
                        : WeightFormats::StoredBy(model, options.dtype.value_or(stated));
  formats.activation = ActivationOf(options, formats.weights);
  if (formats.activation == ActivationDType::kFp8 && formats.weights.layers != WeightFormat::kFp8) {
    return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                            "--activation-dtype fp8 is for weights in fp8, and these are ",
                            WeightFormatsText(formats.weights), "; leave it out")),
                        ExitCode::kUsage);
  }
  const bool in_amx = formats.activation == ActivationDType::kBf16Amx;
  if ((in_amx || formats.activation == ActivationDType::kBf16) &&
      formats.weights.layers != WeightFormat::kBF16) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            "--activation-dtype ", in_amx ? "bf16-amx" : "bf16",
            " is for weights in bfloat16, and these are ", WeightFormatsText(formats.weights), "; ",
            IsQuantized(formats.weights.layers) ? "leave it out" : "also give --dtype bfloat16")),
        ExitCode::kUsage);
  }
  formats.kv_format = options.kv_cache_dtype.value_or(
      model.quantization.fp8_kv ? KvFormat::kFP8 : KvFormatOf(stated));
  const bool in_bf16 = formats.kv_format == KvFormat::kBF16;
  formats.attention = options.attention_dtype.value_or(in_bf16 ? AttentionOf(formats.activation)
                                                               : AttentionDType::kF32);
  if (formats.attention != AttentionDType::kF32 && !in_bf16) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            "--attention-dtype ",
            formats.attention == AttentionDType::kBf16Amx ? "bf16-amx" : "bf16",
            " is for a KV cache in bfloat16, and this one is ", KvFormatName(formats.kv_format),
            "; add --kv-cache-dtype bfloat16, or leave it out")),
        ExitCode::kUsage);
  }
  formats.sum_dtype = options.all_reduce_dtype;
  formats.block_tokens = options.block_size;
  formats.caches_states = options.enable_prefix_caching && model.keeps_states();
  formats.max_drafts = options.speculative.drafts.num_speculative_tokens;
  formats.max_rejected = formats.max_drafts;
  return formats;
}

}  // namespace bulkhead
