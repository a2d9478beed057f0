#include "runtime/service/http/embedding_format.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace bulkhead {
namespace {

// The vector in a packed v1::GenerateResponse.
std::vector<float> VectorOf(const PackedMessage& response, const EmbeddingOptions& options) {
  const absl::string_view bytes =
      BytesOf(response.bytes, v1::GenerateResponse::kFinishedFieldNumber);
  v1::Finished finished;
  finished.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  std::vector<float> vector(finished.embedding().begin(), finished.embedding().end());
  if (!options.dimensions.has_value() ||
      vector.size() <= static_cast<size_t>(*options.dimensions)) {
    return vector;
  }
  vector.resize(*options.dimensions);
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  if (!options.normalizes || squares == 0) return vector;
  for (float& value : vector) value = static_cast<float>(value / std::sqrt(squares));
  return vector;
}

// The inside of a JSON list, from element `begin` on; returns the next element.
size_t AppendNumbers(const std::vector<float>& vector, size_t begin, std::string* out) {
  const size_t enough = out->size() + BodyParts::kSliceBytes;
  for (; begin < vector.size() && out->size() < enough; ++begin) {
    absl::StrAppendFormat(out, "%s%.9g", begin == 0 ? "" : ",", vector[begin]);
  }
  return begin;
}

size_t AppendBase64(const std::vector<float>& vector, size_t begin, std::string* out) {
  constexpr size_t kFloatsAtOnce = 3 * 512;  // whole groups of 3 bytes: no padding inside
  const size_t end = std::min(vector.size(), begin + kFloatsAtOnce);
  absl::StrAppend(out, absl::Base64Escape(
                           absl::string_view(reinterpret_cast<const char*>(vector.data() + begin),
                                             (end - begin) * sizeof(float))));
  return end;
}

}  // namespace

EmbeddingFormat::EmbeddingFormat(const std::string& id, int64_t created_unix_s,
                                 const std::string& model, const EmbeddingOptions& options)
    : head_(absl::StrCat("{\"id\":", JsonString(id), ",\"object\":\"list\",\"created\":",
                         created_unix_s, ",\"model\":", JsonString(model), ",\"data\":[")),
      options_(options) {}

BodyParts EmbeddingFormat::Whole(const std::vector<PackedMessage>& responses,
                                 const UsageCounts& usage) {
  BodyParts out(head_);
  for (size_t i = 0; i < responses.size(); ++i) {
    out.Add(absl::StrCat(i == 0 ? "" : ",", "{\"object\":\"embedding\",\"index\":", i,
                         ",\"embedding\":", options_.base64 ? "\"" : "["));
    // Each response is read in its turn, one at a time.
    out.AddPart([response = responses[i], options = options_, vector = std::vector<float>(),
                 next = size_t{0}](std::string* bytes) mutable {
      if (next == 0) vector = VectorOf(response, options);
      next =
          options.base64 ? AppendBase64(vector, next, bytes) : AppendNumbers(vector, next, bytes);
      return next == vector.size();
    });
    out.Add(options_.base64 ? "\"}" : "]}");
  }
  out.Add(absl::StrCat("],\"usage\":", UsageJson(usage), "}"));
  return out;
}

absl::StatusOr<BodyParts> EmbeddingFormat::Delta(int /*choice*/, PackedMessage /*delta*/,
                                                 const UsageCounts& /*usage*/) {
  return BodyParts();
}

BodyParts EmbeddingFormat::Finished(int /*choice*/, const v1::Finished& /*finished*/,
                                    const UsageCounts& /*usage*/) {
  return {};
}

BodyParts EmbeddingFormat::Usage(const UsageCounts& /*usage*/) { return {}; }

}  // namespace bulkhead
