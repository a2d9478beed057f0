#include "shard/field_policy.h"

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace bulkhead {
namespace {

// Names, training settings, or settings of other programs.
constexpr const char* kHarmless[] = {
    "_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_from_model_config",
    "_name_or_path", "attention_dropout", "attn_implementation", "begin_suppress_tokens",
    "bos_token_id", "cache_implementation", "chunk_size_feed_forward", "decoder_start_token_id",
    "finetuning_task", "forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing",
    "hidden_dropout", "id2label", "initializer_range", "is_decoder", "is_llama_config", "label2id",
    "max_sequence_length", "output_attentions", "output_hidden_states", "output_scores",
    "pad_token_id", "prefix", "problem_type", "return_dict", "return_dict_in_generate",
    "sep_token_id", "suppress_tokens", "task_specific_params", "tf_legacy_loss",
    "tie_encoder_decoder", "tokenizer_class", "torchscript", "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache",
    // Splits products into parts that are added again: the same product.
    "pretraining_tp",
    // Sampling defaults in old configs; only generation_config.json's are applied.
    "bad_words_ids", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "length_penalty",
    "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "remove_invalid_values", "repetition_penalty", "temperature", "top_k",
    "top_p", "typical_p"};

// Fields beside text_config in a multimodal config.
constexpr const char* kHarmlessOutsideText[] = {
    "audio_config", "audio_token_id", "boa_token_id", "eoa_token_id", "eoa_token_index",
    // Images and videos.
    "boi_token_id", "boi_token_index", "eoi_token_id", "eoi_token_index", "image_seq_length",
    "image_token_id", "image_token_index", "language_model_only", "mm_tokens_per_image",
    "multimodal_projector_bias", "projector_hidden_act", "spatial_merge_size", "video_token_id",
    "vision_config", "vision_end_token_id", "vision_feature_layer",
    "vision_feature_select_strategy", "vision_soft_tokens_per_image", "vision_start_token_id"};

constexpr const char* kMustBeOff[] = {"add_cross_attention",
                                      "alibi",
                                      "attention_chunk_size",
                                      "attention_multiplier",
                                      "attn_logit_softcapping",
                                      "attn_output_gate",
                                      "clip_qkv",
                                      "compression_config",
                                      "cross_attention_hidden_size",
                                      "final_logit_softcapping",
                                      "is_encoder_decoder",
                                      "moe_intermediate_size",
                                      "n_routed_experts",
                                      "no_rope_layers",
                                      "num_experts",
                                      "num_local_experts",
                                      "num_nextn_predict_layers",
                                      "parallel_attn",
                                      "per_layer_config",
                                      "pruned_heads",
                                      "qk_layernorm",
                                      "rope_interleave",
                                      "rope_interleaved",
                                      "sliding_window_pattern",
                                      "use_bidirectional_attention",
                                      "use_mrope",
                                      "use_parallel_residual",
                                      "use_qk_norm"};

constexpr const char* kMustBeOne[] = {"embedding_multiplier", "logit_scale", "logits_scaling",
                                      "residual_multiplier", "scale_emb"};

constexpr const char* kHarmlessInGeneration[] = {
    "_from_model_config", "bos_token_id",      "cache_implementation",    "decoder_start_token_id",
    "early_stopping",     "output_attentions", "output_hidden_states",    "output_logits",
    "output_scores",      "pad_token_id",      "return_dict_in_generate", "transformers_version",
    "trust_remote_code",  "use_cache"};

// These change answers; not implemented, so they must be off.
constexpr const char* kNotAppliedUnlessOff[] = {
    "bad_words_ids",         "begin_suppress_tokens", "constraints",
    "force_words_ids",       "forced_bos_token_id",   "forced_decoder_ids",
    "forced_eos_token_id",   "guidance_scale",        "max_time",
    "remove_invalid_values", "renormalize_logits",    "sequence_bias",
    "stop_strings",          "suppress_tokens",       "top_h",
    "watermarking_config"};

// Lengths, set by a request or a flag instead.
constexpr const char* kLengths[] = {"max_length", "max_new_tokens"};

// Generation fields of transformers that are not implemented here, and their neutral values.
struct NeutralValue {
  const char* name;
  double neutral;
};
constexpr NeutralValue kNotApplied[] = {{"diversity_penalty", 0},
                                        {"encoder_repetition_penalty", 1},
                                        {"epsilon_cutoff", 0},
                                        {"eta_cutoff", 0},
                                        {"length_penalty", 1},
                                        {"min_length", 0},
                                        {"min_new_tokens", 0},
                                        {"no_repeat_ngram_size", 0},
                                        {"num_beam_groups", 1},
                                        {"num_beams", 1},
                                        {"num_return_sequences", 1},
                                        {"penalty_alpha", 0},
                                        {"typical_p", 1}};

}  // namespace

void ApplyConfigFieldPolicy(ConfigFields& fields) {
  for (const char* name : kHarmless) fields.Ignore(name);
  for (const char* name : kMustBeOff) {
    if (!fields.WasAskedFor(name)) fields.RefuseUnlessOff(name);
  }
  for (const char* name : kMustBeOne) {
    if (!fields.WasAskedFor(name)) fields.RefuseUnlessOne(name);
  }
  // Embedding models may be trained to attend in both directions.
  if (!fields.Bool("is_causal").value_or(true)) {
    fields.Unsupported("is_causal", "it must be absent or true");
  }
}

void ApplyOuterFieldPolicy(ConfigFields& fields) {
  for (const char* name : kHarmless) fields.Ignore(name);
  for (const char* name : kHarmlessOutsideText) fields.Ignore(name);
}

std::vector<std::string> ApplyGenerationFieldPolicy(ConfigFields& fields) {
  for (const char* name : kHarmlessInGeneration) fields.Ignore(name);
  std::vector<std::string> warnings;
  for (const NeutralValue& field : kNotApplied) {
    const std::optional<double> value = fields.Number(field.name, -1e9, 1e9);
    if (!value.has_value() || *value == field.neutral) continue;
    warnings.push_back(absl::StrCat(fields.source(), ": ", field.name, " is ", *value,
                                    ", which is not supported and not applied"));
  }
  for (const char* name : kNotAppliedUnlessOff) {
    const std::optional<std::string> value = fields.ValueUnlessOff(name);
    if (!value.has_value()) continue;
    warnings.push_back(absl::StrCat(fields.source(), ": ", name, " is ", *value,
                                    ", which is not supported and not applied"));
  }
  for (const char* name : kLengths) {
    const std::optional<std::string> value = fields.ValueUnlessOff(name);
    if (!value.has_value()) continue;
    warnings.push_back(absl::StrCat(
        fields.source(), ": ", name, " is ", *value,
        ", which is not applied: a request's max_tokens, or --default-max-tokens, says how long "
        "answers are"));
  }
  return warnings;
}

}  // namespace bulkhead
