#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/post_processor.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/unicode.h"

namespace bulkhead {
namespace {

// A Tokenizer that works through the parts of its file.
class InterpretedTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Read(const JsonPart& file);

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special_tokens) const override;
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<TextDecoder> NewTextDecoder(absl::Span<const int32_t> prompt,
                                              bool skip_special_tokens) const override;

  int vocab_size() const override { return static_cast<int>(entries_.size()); }
  size_t MinTokenCount(size_t text_bytes) const override {
    if (most_bytes_of_token_ == 0) return 0;
    return (text_bytes + most_bytes_of_token_ - 1) / most_bytes_of_token_;
  }

  const Decoder& decoder() const { return decoder_; }
  // What the decoder makes text of; null when the id adds nothing.
  const std::string* Spelling(int32_t id, bool skip_special_tokens) const {
    if (id < 0 || id >= vocab_size()) return nullptr;
    return skip_special_tokens && entries_[id].is_special ? nullptr : entries_[id].decoded;
  }

 private:
  struct Entry {
    const std::string* decoded = nullptr;  // null: no such token
    bool is_special = false;
  };

  void IndexEntries();
  size_t MaxBytesOfToken() const;
  absl::Status EncodeText(AlignedText text, RegexBudget& budget, BpeModel::Scratch& scratch,
                          std::vector<int32_t>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  std::vector<Entry> entries_;      // by id
  size_t most_bytes_of_token_ = 0;  // of a text, that one token stands for; 0: any number
};

JsonPart FieldOrNull(const JsonPart& file, absl::string_view name) {
  static const nlohmann::json* const null = new nlohmann::json();
  return file.Find(name).value_or(JsonPart(*null, std::string(name)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> InterpretedTokenizer::Read(const JsonPart& file) {
  if (file.Find("version").has_value()) {
    BH_ASSIGN_OR_RETURN(const std::string version, file.GetString("version"));
    if (version != "1.0") return file.Unsupported(absl::StrCat("version \"", version, "\""));
  }
  auto tokenizer = std::make_unique<InterpretedTokenizer>();
  BH_ASSIGN_OR_RETURN(const JsonPart model, file.Get("model"));
  BH_ASSIGN_OR_RETURN(tokenizer->model_, BpeModel::Read(model));
  BH_ASSIGN_OR_RETURN(tokenizer->normalizer_, Normalizer::Read(FieldOrNull(file, "normalizer")));
  BH_ASSIGN_OR_RETURN(tokenizer->pre_tokenizer_,
                      PreTokenizer::Read(FieldOrNull(file, "pre_tokenizer")));
  const BpeModel& bpe = *tokenizer->model_;
  BH_ASSIGN_OR_RETURN(
      tokenizer->added_,
      AddedTokens::Read(
          FieldOrNull(file, "added_tokens"), bpe.size(),
          [&bpe](absl::string_view token) { return bpe.Id(token); }, tokenizer->normalizer_));
  tokenizer->IndexEntries();
  BH_ASSIGN_OR_RETURN(
      tokenizer->post_processor_,
      PostProcessor::Read(FieldOrNull(file, "post_processor"), tokenizer->vocab_size()));
  BH_ASSIGN_OR_RETURN(tokenizer->decoder_, Decoder::Read(FieldOrNull(file, "decoder")));
  tokenizer->most_bytes_of_token_ = tokenizer->MaxBytesOfToken();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

// As in the reference, a token is special when the decoder's spelling of it is a special token's
// content.
void InterpretedTokenizer::IndexEntries() {
  int32_t end_id = model_->end_id();
  for (const AddedToken& token : added_.tokens()) end_id = std::max(end_id, token.id + 1);
  entries_.resize(end_id);
  for (int32_t id = 0; id < model_->end_id(); ++id) entries_[id].decoded = model_->Token(id);
  absl::flat_hash_set<absl::string_view> special;
  for (const AddedToken& token : added_.tokens()) {
    entries_[token.id].decoded = &token.matched;
    if (token.special) special.insert(token.content);
  }
  for (Entry& entry : entries_) {
    entry.is_special = entry.decoded != nullptr && special.contains(*entry.decoded);
  }
}

// Where no step makes a text shorter, a token stands for no more of it than the token itself has.
size_t InterpretedTokenizer::MaxBytesOfToken() const {
  const bool keeps_all = normalizer_.keeps_length() && !pre_tokenizer_.removes_text();
  size_t most = keeps_all ? model_->MaxBytesOfToken(pre_tokenizer_.makes_byte_characters()) : 0;
  if (most == 0) return 0;
  for (const AddedToken& token : added_.tokens()) {
    if (token.lstrip || token.rstrip) return 0;  // with all the spaces beside it
    most = std::max({most, token.content.size(), token.matched.size()});
  }
  return most;
}

absl::Status InterpretedTokenizer::EncodeText(AlignedText text, RegexBudget& budget,
                                              BpeModel::Scratch& scratch,
                                              std::vector<int32_t>* ids) const {
  BH_RETURN_IF_ERROR(normalizer_.Normalize(budget, &text));
  const auto segments = added_.Cut(AddedTokens::Stage::kNormalized, text.text);
  for (const AddedTokens::Segment& segment : segments) {
    if (segment.token != nullptr) {
      ids->push_back(segment.token->id);
      continue;
    }
    AlignedText part{text.text.substr(segment.begin, segment.end - segment.begin),
                     CutOrigin(text.origin, segment.begin, segment.end)};
    TextPieces pieces(std::move(part));
    BH_RETURN_IF_ERROR(pre_tokenizer_.PreTokenize(budget, &pieces));
    for (const TextPieces::Piece& piece : pieces.pieces()) {
      BH_RETURN_IF_ERROR(model_->Tokenize(pieces.View(piece), scratch, ids));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> InterpretedTokenizer::Encode(absl::string_view text,
                                                                  bool add_special_tokens) const {
  BH_RETURN_IF_ERROR(CheckTextBytes(text.size()));
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("the text is not valid UTF-8");
  std::vector<int32_t> ids;
  RegexBudget budget;
  BpeModel::Scratch scratch;
  const Origin whole{true, text.empty() ? 0 : CharBytes(text[0])};
  for (const AddedTokens::Segment& segment : added_.Cut(AddedTokens::Stage::kRaw, text)) {
    if (segment.token != nullptr) {
      ids.push_back(segment.token->id);
      continue;
    }
    AlignedText part{std::string(text.substr(segment.begin, segment.end - segment.begin)),
                     CutOrigin(whole, segment.begin, segment.end)};
    BH_RETURN_IF_ERROR(EncodeText(std::move(part), budget, scratch, &ids));
  }
  return post_processor_.Process(std::move(ids), add_special_tokens);
}

// Decodes part by part (Decoder::decodes_in_parts), and gives out all of a part's text but a U+FFFD
// at its end. A part is decoded again with each token; it is one or two tokens long, a run of bytes
// and the token after it, or the few tokens of a character.
class PartDecoder : public TextDecoder {
 public:
  PartDecoder(const InterpretedTokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  std::string Add(int32_t id) override {
    const std::string* const token = tokenizer_->Spelling(id, skip_special_tokens_);
    if (token == nullptr) return {};
    part_.push_back(token);
    const Decoder& decoder = tokenizer_->decoder();
    if (!decoder.decodes_in_parts() || decoder.EndsOpen(*token)) return {};
    std::string text = Text();
    const bool unfinished = absl::EndsWith(text, kReplacementChar);
    if (unfinished) text.resize(text.size() - kReplacementChar.size());
    std::string ready = text.substr(given_);
    if (unfinished) {
      given_ = text.size();
      KeepOneCharacter();
    } else if (!text.empty() || !first_) {
      part_.clear();
      given_ = 0;
      first_ = false;
    }
    return ready;
  }
  std::string Finish() const override { return Text().substr(given_); }

  // Whether tokens before the first would make no difference to what is to come.
  bool settled() const { return !first_; }

 private:
  std::string Text() const {
    Decoder::Tokens tokens;
    for (const std::string* token : part_) tokens.push_back(*token);
    return tokenizer_->decoder().Decode(std::move(tokens), first_);
  }

  // Tokens that end in U+FFFD one after the other are no longer of one character when they are
  // more than 4 bytes, or 8 where each is written as a character. Runs of bytes stay whole.
  void KeepOneCharacter() {
    constexpr size_t kMostBytes = 8;
    size_t begin = part_.size(), bytes = 0;
    while (begin > 0 && bytes < kMostBytes) {
      const std::string& token = *part_[--begin];
      if (!tokenizer_->decoder().EndsOpen(token)) bytes += token.size();
    }
    if (begin == 0) return;
    part_.erase(part_.begin(), part_.begin() + static_cast<ptrdiff_t>(begin));
    first_ = false;
    given_ = Text().size() - kReplacementChar.size();
  }

  const InterpretedTokenizer* const tokenizer_;
  const bool skip_special_tokens_;
  std::vector<const std::string*> part_;
  bool first_ = true;  // the part is the first of the text
  size_t given_ = 0;   // bytes of the part's text that were given out
};

std::unique_ptr<TextDecoder> InterpretedTokenizer::NewTextDecoder(absl::Span<const int32_t> prompt,
                                                                  bool skip_special_tokens) const {
  // As a rule a token or two tell. All of a run of bytes has to be gone over, and the few tries
  // before cost little of that.
  constexpr size_t kShortestTail = 16, kTimesLonger = 32;
  for (size_t tail = kShortestTail;; tail *= kTimesLonger) {
    auto decoder = std::make_unique<PartDecoder>(this, skip_special_tokens);
    const bool is_whole = tail >= prompt.size() || !decoder_.decodes_in_parts();
    for (const int32_t id : is_whole ? prompt : prompt.last(tail)) decoder->Add(id);
    if (is_whole || decoder->settled()) return decoder;
  }
}

std::string InterpretedTokenizer::Decode(absl::Span<const int32_t> ids,
                                         bool skip_special_tokens) const {
  Decoder::Tokens tokens;
  for (const int32_t id : ids) {
    const std::string* const token = Spelling(id, skip_special_tokens);
    if (token != nullptr) tokens.push_back(*token);
  }
  return decoder_.Decode(std::move(tokens));
}

// Decodes each token alone.
class SingleTokenDecoder : public TextDecoder {
 public:
  SingleTokenDecoder(const Tokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string Add(int32_t id) override { return tokenizer_->Decode({id}, skip_special_tokens_); }
  std::string Finish() const override { return {}; }

 private:
  const Tokenizer* const tokenizer_;
  const bool skip_special_tokens_;
};

}  // namespace

std::unique_ptr<TextDecoder> Tokenizer::NewTextDecoder(absl::Span<const int32_t> /*prompt*/,
                                                       bool skip_special_tokens) const {
  return std::make_unique<SingleTokenDecoder>(this, skip_special_tokens);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view json_text,
                                                            absl::string_view source) {
  // Ten times as many values as the largest vocabularies have.
  constexpr JsonLimits kLimits{.max_values = 20'000'000};
  const absl::StatusOr<nlohmann::json> json = ParseJsonObject(json_text, source, kLimits);
  if (!json.ok()) return WithExitCode(json.status(), ExitCode::kModelRefused);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      InterpretedTokenizer::Read(JsonPart(*json, "file"));
  if (tokenizer.ok()) return tokenizer;
  const absl::Status& why = tokenizer.status();
  return WithExitCode(absl::Status(why.code(), absl::StrCat(source, ": ", why.message())),
                      ExitCode::kModelRefused);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/tokenizer.json");
  if (!std::filesystem::exists(path)) {
    return WithExitCode(absl::NotFoundError(absl::StrCat(path, ": no such file")),
                        ExitCode::kModelRefused);
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kModelRefused);
  return Parse(*text, path);
}

}  // namespace bulkhead
