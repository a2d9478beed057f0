// The `tokenize` command: JSON lines in, JSON lines out, one answer per line, in order.
//   {"text": "...", "add_special_tokens": true}  ->  {"ids": [...]}
//   {"ids": [...], "skip_special_tokens": true}  ->  {"text": "..."}
// Both flags default to true, as in the reference library. A line that cannot be answered gets
// {"error": {"code": "...", "message": "..."}}; blank lines are skipped.
#pragma once

#include <istream>
#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace bulkhead {

// Needs only MODEL_DIR/tokenizer.json. Fails with exit code 3 if that is refused and, after all
// lines were answered, with exit code 2 if reading standard input failed, and 1 if a line could not
// be answered.
absl::Status RunTokenize(const std::string& model_dir, std::istream& in, std::ostream& out);

}  // namespace bulkhead
