// PostProcessor: what the "post_processor" of a tokenizer.json puts around a text's tokens.
// Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/json_part.h"

namespace bulkhead {

class PostProcessor {
 public:
  // `part` may be null: then tokens stay as they are. Every id must be below `end_id`.
  static absl::StatusOr<PostProcessor> Read(const JsonPart& part, int32_t end_id);

  std::vector<int32_t> Process(std::vector<int32_t> ids, bool add_special_tokens) const;

 private:
  struct Piece {
    bool is_text = false;      // the text's tokens
    std::vector<int32_t> ids;  // else these
  };
  absl::Status ReadStep(const JsonPart& part, int32_t end_id);
  absl::Status ReadTemplate(const JsonPart& part, int32_t end_id);
  absl::Status ReadFrame(const JsonPart& part, int32_t end_id);

  std::vector<Piece> pieces_;  // none: the text's tokens alone
  // Bert's and Roberta's frames are left out whole without special tokens; a template is gone
  // through.
  bool is_template_ = false;
};

}  // namespace bulkhead
