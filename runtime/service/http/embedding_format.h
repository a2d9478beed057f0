// The answer of /v1/embeddings: a vector for each input, as numbers or in base64.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/service/http/answer_format.h"

namespace bulkhead {

struct EmbeddingOptions {
  bool base64 = false;            // base64 of little-endian float32
  std::optional<int> dimensions;  // the first N
  bool normalizes = true;         // normalises the remaining ones
};

class EmbeddingFormat final : public AnswerFormat {
 public:
  EmbeddingFormat(const std::string& id, int64_t created_unix_s, const std::string& model,
                  const EmbeddingOptions& options);

  BodyParts Whole(const std::vector<PackedMessage>& responses, const UsageCounts& usage) override;
  // There are no events.
  absl::StatusOr<BodyParts> Delta(int choice, PackedMessage delta,
                                  const UsageCounts& usage) override;
  BodyParts Finished(int choice, const v1::Finished& finished, const UsageCounts& usage) override;
  BodyParts Usage(const UsageCounts& usage) override;

 private:
  std::string head_;
  const EmbeddingOptions options_;
};

}  // namespace bulkhead
