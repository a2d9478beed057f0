// Reading a BPE model: everything in the file is validated before it is used.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/utf8.h"
#include "runtime/tokenizer/bpe.h"

namespace bulkhead {
namespace {

// The beginning of `value`, for a message.
std::string Shown(const nlohmann::json& value) {
  constexpr size_t kShownBytes = 80;
  std::string text = value.dump();
  if (text.size() > kShownBytes) text = absl::StrCat(WholeCharacters(text, kShownBytes), "...");
  return text;
}

// Limited in length, because it is added to every character.
absl::StatusOr<std::string> ReadAffix(const JsonPart& part, absl::string_view name) {
  constexpr size_t kMaxAffixBytes = 256;
  const std::optional<JsonPart> field = part.Find(name);
  if (!field.has_value()) return std::string();
  BH_ASSIGN_OR_RETURN(std::string affix, field->AsString());
  if (affix.size() > kMaxAffixBytes) {
    return field->Invalid(absl::StrCat("is ", affix.size(), " bytes, more than ", kMaxAffixBytes));
  }
  return affix;
}

}  // namespace

absl::Status BpeModel::ReadVocabulary(const JsonPart& part) {
  const nlohmann::json& vocabulary = part.json();
  if (!vocabulary.is_object()) return part.Unsupported("a vocabulary that is not an object");
  if (vocabulary.size() >= static_cast<size_t>(kMaxTokenId)) {
    return part.Invalid(
        absl::StrCat("has ", vocabulary.size(), " entries, more than ", kMaxTokenId));
  }
  int64_t largest = -1;
  for (auto entry = vocabulary.begin(); entry != vocabulary.end(); ++entry) {
    const nlohmann::json& id = entry.value();
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(kMaxTokenId)) {
      return part.Invalid(absl::StrCat("gives \"", entry.key(), "\" the id ", Shown(id),
                                       ", not between 0 and ", kMaxTokenId - 1));
    }
    largest = std::max(largest, id.get<int64_t>());
  }
  tokens_.resize(largest + 1);
  has_token_.resize(largest + 1);
  ids_.reserve(vocabulary.size());
  for (auto entry = vocabulary.begin(); entry != vocabulary.end(); ++entry) {
    const int32_t id = entry.value().get<int32_t>();
    if (has_token_[id]) {
      return part.Invalid(
          absl::StrCat("gives \"", tokens_[id], "\" and \"", entry.key(), "\" the same id ", id));
    }
    has_token_[id] = true;
    tokens_[id] = entry.key();
    ids_.emplace(tokens_[id], id);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::AddMerge(const JsonPart& part, absl::string_view left,
                                absl::string_view right) {
  const auto missing = [&](absl::string_view token) {
    return part.Invalid(absl::StrCat("number ", num_merges_, " (\"", left, "\", \"", right,
                                     "\") names \"", token, "\", which the vocabulary lacks"));
  };
  const std::optional<int32_t> left_id = Id(left), right_id = Id(right);
  if (!left_id.has_value()) return missing(left);
  if (!right_id.has_value() || right.size() < prefix_.size()) return missing(right);
  const std::string merged = absl::StrCat(left, right.substr(prefix_.size()));
  const std::optional<int32_t> id = Id(merged);
  if (!id.has_value()) return missing(merged);
  merges_.insert_or_assign(PairKey(*left_id, *right_id), Rank{num_merges_++, *id});
  return absl::OkStatus();
}

// All as "a b" or all as ["a", "b"].
absl::Status BpeModel::ReadMerges(const JsonPart& part) {
  const nlohmann::json& merges = part.json();
  if (!merges.is_array()) return part.Invalid("is not an array");
  merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const nlohmann::json& merge = merges[i];
    if (merge.type() != merges[0].type()) {
      return part.Invalid(absl::StrCat("number ", i, " is written another way than the first"));
    }
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      BH_RETURN_IF_ERROR(AddMerge(part, merge[0].get_ref<const std::string&>(),
                                  merge[1].get_ref<const std::string&>()));
      continue;
    }
    if (!merge.is_string()) {
      return part.Invalid(absl::StrCat("number ", i, " is not two strings: ", Shown(merge)));
    }
    const absl::string_view text = merge.get_ref<const std::string&>();
    if (absl::StartsWith(text, "#version")) continue;
    const size_t space = text.find(' ');
    if (space == absl::string_view::npos || text.find(' ', space + 1) != absl::string_view::npos) {
      return part.Invalid(absl::StrCat("number ", i, " is not two parts: \"", text, "\""));
    }
    BH_RETURN_IF_ERROR(AddMerge(part, text.substr(0, space), text.substr(space + 1)));
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadOptions(const JsonPart& part) {
  if (const std::optional<JsonPart> dropout = part.Find("dropout"); dropout.has_value()) {
    if (!dropout->json().is_number() || dropout->json().get<double>() != 0) {
      return dropout->Unsupported("a dropout other than 0");
    }
  }
  if (part.Find("unk_token").has_value()) {
    BH_ASSIGN_OR_RETURN(unk_token_, part.GetString("unk_token"));
    unk_id_ = Id(*unk_token_);
  }
  BH_ASSIGN_OR_RETURN(prefix_, ReadAffix(part, "continuing_subword_prefix"));
  BH_ASSIGN_OR_RETURN(suffix_, ReadAffix(part, "end_of_word_suffix"));
  BH_ASSIGN_OR_RETURN(fuse_unk_, part.GetBool("fuse_unk", false));
  BH_ASSIGN_OR_RETURN(byte_fallback_, part.GetBool("byte_fallback", false));
  BH_ASSIGN_OR_RETURN(ignore_merges_, part.GetBool("ignore_merges", false));
  return absl::OkStatus();
}

void BpeModel::IndexCharacters() {
  low_character_ids_.fill(-1);
  byte_ids_.fill(-1);
  for (const auto& [token, id] : ids_) {
    if (token.empty() || CharBytes(token[0]) != token.size()) continue;
    size_t position = 0;
    const char32_t c = NextChar(token, &position);
    if (c < low_character_ids_.size()) {
      low_character_ids_[c] = id;
    } else {
      character_ids_[c] = id;
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = Id(absl::StrFormat("<0x%02X>", byte)).value_or(-1);
  }
}

absl::StatusOr<std::unique_ptr<const BpeModel>> BpeModel::Read(const JsonPart& part) {
  if (!part.is_object()) return part.Invalid("is not an object");
  // The oldest files have no type: a vocabulary with merges is BPE, a list of scored pieces
  // Unigram.
  if (part.json().contains("type")) {
    BH_ASSIGN_OR_RETURN(const std::string type, part.GetString("type"));
    if (type != "BPE") return part.Unsupported(type);
  } else if (part.Find("unk_id").has_value() ||
             (part.Find("vocab").has_value() && part.Find("vocab")->json().is_array())) {
    return part.Unsupported("Unigram");
  }
  auto model = std::make_unique<BpeModel>();
  BH_ASSIGN_OR_RETURN(const JsonPart merges, part.Get("merges"));
  BH_ASSIGN_OR_RETURN(const JsonPart vocabulary, part.Get("vocab"));
  BH_RETURN_IF_ERROR(model->ReadVocabulary(vocabulary));
  BH_RETURN_IF_ERROR(model->ReadOptions(part));
  BH_RETURN_IF_ERROR(model->ReadMerges(merges));
  model->IndexCharacters();
  return model;
}

}  // namespace bulkhead
