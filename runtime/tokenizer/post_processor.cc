#include "runtime/tokenizer/post_processor.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"

namespace bulkhead {

absl::Status PostProcessor::ReadTemplate(const JsonPart& part, int32_t end_id) {
  constexpr size_t kMaxTokens = 4096;
  size_t num_tokens = 0;
  is_template_ = true;
  BH_ASSIGN_OR_RETURN(const JsonPart single, part.Get("single"));
  BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, single.Elements());
  for (const JsonPart& element : elements) {
    Piece piece;
    if (const std::optional<JsonPart> sequence = element.Find("Sequence"); sequence.has_value()) {
      BH_ASSIGN_OR_RETURN(const std::string id, sequence->GetString("id"));
      if (id != "A") return sequence->Unsupported(absl::StrCat("sequence \"", id, "\""));
      piece.is_text = true;
    } else {
      BH_ASSIGN_OR_RETURN(const JsonPart special, element.Get("SpecialToken"));
      BH_ASSIGN_OR_RETURN(const std::string id, special.GetString("id"));
      BH_ASSIGN_OR_RETURN(const JsonPart tokens, part.Get("special_tokens"));
      BH_ASSIGN_OR_RETURN(const JsonPart token, tokens.Get(id));
      BH_ASSIGN_OR_RETURN(const JsonPart list, token.Get("ids"));
      BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> ids, list.Elements());
      num_tokens += ids.size();
      if (num_tokens > kMaxTokens) {
        return single.Invalid(absl::StrCat("has more than ", kMaxTokens, " special tokens"));
      }
      for (const JsonPart& one : ids) {
        BH_ASSIGN_OR_RETURN(const int64_t value, one.AsCount(end_id - 1));
        piece.ids.push_back(static_cast<int32_t>(value));
      }
    }
    pieces_.push_back(std::move(piece));
  }
  if (pieces_.empty()) return single.Unsupported("an empty template");
  return absl::OkStatus();
}

// BertProcessing and RobertaProcessing: cls, the text, sep; each is ["token", id].
absl::Status PostProcessor::ReadFrame(const JsonPart& part, int32_t end_id) {
  int32_t ids[2];
  for (int i = 0; i < 2; ++i) {
    BH_ASSIGN_OR_RETURN(const JsonPart field, part.Get(i == 0 ? "cls" : "sep"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> pair, field.Elements());
    if (pair.size() != 2) return field.Invalid("is not a token and its id");
    BH_ASSIGN_OR_RETURN(const int64_t id, pair[1].AsCount(end_id - 1));
    ids[i] = static_cast<int32_t>(id);
  }
  pieces_ = {{false, {ids[0]}}, {true, {}}, {false, {ids[1]}}};
  return absl::OkStatus();
}

absl::Status PostProcessor::ReadStep(const JsonPart& part, int depth, int32_t end_id) {
  if (depth > kMaxSequenceDepth) return part.Invalid("is nested too deep");
  BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
  if (type == "ByteLevel") return absl::OkStatus();  // it only trims offsets, which are not used
  if (type == "Sequence") {
    BH_ASSIGN_OR_RETURN(const JsonPart list, part.Get("processors"));
    BH_ASSIGN_OR_RETURN(const std::vector<JsonPart> elements, list.Elements());
    for (const JsonPart& element : elements) {
      BH_RETURN_IF_ERROR(ReadStep(element, depth + 1, end_id));
    }
    return absl::OkStatus();
  }
  const bool is_template = type == "TemplateProcessing";
  if (!is_template && type != "BertProcessing" && type != "RobertaProcessing") {
    return part.Unsupported(type);
  }
  if (!pieces_.empty()) return part.Unsupported(absl::StrCat(type, " after another processor"));
  return is_template ? ReadTemplate(part, end_id) : ReadFrame(part, end_id);
}

absl::StatusOr<PostProcessor> PostProcessor::Read(const JsonPart& part, int32_t end_id) {
  PostProcessor processor;
  if (!part.is_null()) BH_RETURN_IF_ERROR(processor.ReadStep(part, 0, end_id));
  return processor;
}

absl::StatusOr<std::optional<PostProcessor>> PostProcessor::OfFlags(
    const JsonPart& config, const JsonPart& older,
    const std::function<std::optional<int32_t>(absl::string_view)>& id_of) {
  if (!config.Find("add_bos_token").has_value() && !config.Find("add_eos_token").has_value()) {
    return std::nullopt;
  }
  if (!config.Find("tokenizer_class").has_value()) return std::nullopt;
  BH_ASSIGN_OR_RETURN(const std::string name, config.GetString("tokenizer_class"));
  constexpr absl::string_view kOfFlags[] = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                            "GemmaTokenizer", "CohereTokenizer"};
  const absl::string_view plain = absl::StripSuffix(name, "Fast");
  if (std::find(std::begin(kOfFlags), std::end(kOfFlags), plain) == std::end(kOfFlags)) {
    return std::nullopt;
  }
  PostProcessor processor;
  processor.is_template_ = true;
  for (const char* side : {"bos_token", "eos_token"}) {
    const bool is_eos = side[0] == 'e';
    if (is_eos) processor.pieces_.push_back({true, {}});
    BH_ASSIGN_OR_RETURN(const bool adds, config.GetBool(absl::StrCat("add_", side), !is_eos));
    std::optional<JsonPart> token = config.Find(side);
    if (!token.has_value()) token = older.Find(side);
    if (!adds || !token.has_value()) continue;  // a flag without its token is off
    if (token->is_object()) {
      BH_ASSIGN_OR_RETURN(token, token->Get("content"));
    }
    BH_ASSIGN_OR_RETURN(const std::string text, token->AsString());
    const std::optional<int32_t> id = id_of(text);
    if (!id.has_value()) {
      return token->Invalid(
          absl::StrCat("is \"", text.substr(0, 64), "\", which tokenizer.json lacks"));
    }
    processor.pieces_.push_back({false, {*id}});
  }
  return processor;
}

bool PostProcessor::keeps_text() const {
  return pieces_.empty() || std::any_of(pieces_.begin(), pieces_.end(),
                                        [](const Piece& piece) { return piece.is_text; });
}

absl::StatusOr<std::vector<int32_t>> PostProcessor::Process(std::vector<int32_t> ids,
                                                            bool add_special_tokens,
                                                            const Allowance& allowance) const {
  if (pieces_.empty() || (!add_special_tokens && !is_template_)) return ids;
  size_t size = 0;
  for (const Piece& piece : pieces_) {
    if (piece.is_text) {
      size += ids.size();
    } else if (add_special_tokens) {
      size += piece.ids.size();
    }
  }
  BH_RETURN_IF_ERROR(allowance.Check(size));
  std::vector<int32_t> all;
  all.reserve(size);
  for (const Piece& piece : pieces_) {
    if (piece.is_text) {
      all.insert(all.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      all.insert(all.end(), piece.ids.begin(), piece.ids.end());
    }
  }
  return all;
}

}  // namespace bulkhead
