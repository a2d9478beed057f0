// Normalizer: the "normalizer" of a tokenizer.json, a chain of steps. Immutable; thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/text_pieces.h"

namespace bulkhead {

class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  virtual absl::Status Apply(EncodeBudget& budget, AlignedText* text) const = 0;
  // Whether it is known that no text becomes shorter.
  virtual bool keeps_length() const { return false; }
};

class Normalizer {
 public:
  // `part` may be null: then nothing is changed. UNIMPLEMENTED names an unsupported step.
  static absl::StatusOr<Normalizer> Read(const JsonPart& part);

  bool empty() const { return steps_.empty(); }
  bool keeps_length() const;  // for every text, as far as known
  // Normalises one part of a text. RESOURCE_EXHAUSTED when the result grows too long or a regular
  // expression exceeds its limits.
  absl::Status Normalize(EncodeBudget& budget, AlignedText* text) const;

 private:
  std::vector<std::unique_ptr<NormalizerStep>> steps_;
};

}  // namespace bulkhead
