// PostProcessor: adds the tokens that the "post_processor" of a tokenizer.json puts around a text's
// tokens. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

class PostProcessor {
 public:
  // `part` may be null: then tokens are unchanged. Every id must be below `end_id`.
  static absl::StatusOr<PostProcessor> Read(const JsonPart& part, int32_t end_id);

  // The post-processor of "add_bos_token" and "add_eos_token" in a tokenizer_config.json, if one is
  // present and transformers builds the post-processor of this "tokenizer_class" from them (Llama,
  // Code Llama, Gemma, Cohere; default: BOS, no EOS): it replaces the file's. Else nullopt.
  // `older`, special_tokens_map.json, has the tokens that `config` lacks. `id_of` finds a token's
  // id.
  static absl::StatusOr<std::optional<PostProcessor>> OfFlags(
      const JsonPart& config, const JsonPart& older,
      const std::function<std::optional<int32_t>(absl::string_view)>& id_of);

  // RESOURCE_EXHAUSTED for more ids than `allowance` allows: a template may repeat the text.
  absl::StatusOr<std::vector<int32_t>> Process(std::vector<int32_t> ids, bool add_special_tokens,
                                               const Allowance& allowance) const;

  bool keeps_text() const;  // a template may omit it

 private:
  struct Piece {
    bool is_text = false;      // the text's tokens
    std::vector<int32_t> ids;  // otherwise these
  };
  absl::Status ReadStep(const JsonPart& part, int depth, int32_t end_id);
  absl::Status ReadTemplate(const JsonPart& part, int32_t end_id);
  absl::Status ReadFrame(const JsonPart& part, int32_t end_id);

  std::vector<Piece> pieces_;  // empty: the text's tokens only
  // Bert's and Roberta's tokens are omitted entirely without special tokens; a template is always
  // applied.
  bool is_template_ = false;
};

}  // namespace bulkhead
