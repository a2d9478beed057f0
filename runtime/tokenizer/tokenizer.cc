#include "runtime/tokenizer/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/wrong_file.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/encode_budget.h"
#include "runtime/tokenizer/json_part.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/post_processor.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace bulkhead {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

// A Tokenizer that interprets the parts of its file.
class InterpretedTokenizer : public Tokenizer {
 public:
  // The folder's other files may be null.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Read(const JsonPart& file,
                                                         const JsonPart& config,
                                                         const JsonPart& older);

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

  std::optional<std::string> BytesOf(int32_t id) const override;
  std::string TokenOf(int32_t id) const override;

  // Passes the token to `chain`, if it exists.
  void Feed(int32_t id, bool skip_special_tokens, Decoder::Chain& chain) const;

 private:
  struct Entry {
    const std::string* decoded = nullptr;  // null: no such token
    bool is_special = false;
  };

  std::optional<int32_t> IdOf(absl::string_view token) const;
  void IndexEntries();
  size_t MaxBytesOfToken() const;
  absl::Status CheckTokenTexts(const JsonPart& decoder) const;
  absl::Status EncodeText(AlignedText text, EncodeBudget& budget, BpeModel::Scratch& scratch,
                          std::vector<int32_t>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  std::vector<Entry> entries_;      // by id
  size_t most_bytes_of_token_ = 0;  // maximum bytes of text per token; 0: unbounded
};

JsonPart FieldOrNull(const JsonPart& file, absl::string_view name) {
  static const nlohmann::json* const null = new nlohmann::json();
  return file.Find(name).value_or(JsonPart(*null, std::string(name)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> InterpretedTokenizer::Read(const JsonPart& file,
                                                                      const JsonPart& config,
                                                                      const JsonPart& older) {
  if (!file.is_object()) return file.Invalid("is not an object");
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
  BH_ASSIGN_OR_RETURN(std::optional<PostProcessor> of_flags,
                      PostProcessor::OfFlags(config, older, [&](absl::string_view token) {
                        return tokenizer->IdOf(token);
                      }));
  if (of_flags.has_value()) tokenizer->post_processor_ = *std::move(of_flags);
  const JsonPart decoder = FieldOrNull(file, "decoder");
  BH_ASSIGN_OR_RETURN(tokenizer->decoder_, Decoder::Read(decoder));
  BH_RETURN_IF_ERROR(tokenizer->CheckTokenTexts(decoder));
  tokenizer->decoder_.LearnBytes();
  tokenizer->most_bytes_of_token_ = tokenizer->MaxBytesOfToken();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

std::optional<int32_t> InterpretedTokenizer::IdOf(absl::string_view token) const {
  for (const AddedToken& added : added_.tokens()) {
    if (added.content == token) return added.id;
  }
  return model_->Id(token);
}

// As in the reference, a token is special if its spelling for the decoder is a special token's
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

// If no step shortens a text, a token covers at most its own length.
size_t InterpretedTokenizer::MaxBytesOfToken() const {
  const bool keeps_all =
      normalizer_.keeps_length() && !pre_tokenizer_.removes_text() && post_processor_.keeps_text();
  size_t most = keeps_all ? model_->MaxBytesOfToken(pre_tokenizer_.makes_byte_characters()) : 0;
  if (most == 0) return 0;
  for (const AddedToken& token : added_.tokens()) {
    if (token.lstrip || token.rstrip) return 0;  // absorbs all adjacent spaces
    most = std::max({most, token.content.size(), token.matched.size()});
  }
  return most;
}

// Decoding cannot fail, so tokens that would expand to too much text are refused here.
absl::Status InterpretedTokenizer::CheckTokenTexts(const JsonPart& decoder) const {
  constexpr double kMaxTextOfToken = 1 << 20;
  size_t longest = 0;
  for (const Entry& entry : entries_) {
    if (entry.decoded != nullptr) longest = std::max(longest, entry.decoded->size());
  }
  if (static_cast<double>(longest) * decoder_.growth() <= kMaxTextOfToken) return absl::OkStatus();
  return decoder.Unsupported(absl::StrCat("making as much as ", decoder_.growth(),
                                          " bytes of each byte of a token of ", longest, " bytes"));
}

absl::Status InterpretedTokenizer::EncodeText(AlignedText text, EncodeBudget& budget,
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
      BH_RETURN_IF_ERROR(model_->Tokenize(pieces.View(piece), budget.tokens, scratch, ids));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> InterpretedTokenizer::Encode(absl::string_view text,
                                                                  bool add_special_tokens) const {
  if (text.size() > kMaxTextBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("text of ", text.size(), " bytes, more than the tokenizer's ", kMaxTextBytes));
  }
  if (!IsValidUtf8(text)) return absl::InvalidArgumentError("the text is not valid UTF-8");
  std::vector<int32_t> ids;
  EncodeBudget budget(text.size());
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
  return post_processor_.Process(std::move(ids), add_special_tokens, budget.tokens);
}

class ChainDecoder : public TextDecoder {
 public:
  ChainDecoder(const InterpretedTokenizer* tokenizer, std::unique_ptr<Decoder::Chain> chain,
               bool skip_special_tokens)
      : tokenizer_(tokenizer),
        chain_(std::move(chain)),
        skip_special_tokens_(skip_special_tokens) {}
  std::string Add(int32_t id) override {
    tokenizer_->Feed(id, skip_special_tokens_, *chain_);
    return chain_->TakeText();
  }
  std::string Finish() override {
    chain_->front().EndText();
    return chain_->TakeText();
  }

 private:
  const InterpretedTokenizer* const tokenizer_;
  const std::unique_ptr<Decoder::Chain> chain_;
  const bool skip_special_tokens_;
};

void InterpretedTokenizer::Feed(int32_t id, bool skip_special_tokens, Decoder::Chain& chain) const {
  if (id < 0 || id >= vocab_size()) return;
  const Entry& entry = entries_[id];
  if (entry.decoded == nullptr || (skip_special_tokens && entry.is_special)) return;
  chain.front().Token(*entry.decoded);
}

std::unique_ptr<TextDecoder> InterpretedTokenizer::NewTextDecoder(absl::Span<const int32_t> prompt,
                                                                  bool skip_special_tokens) const {
  // Usually one or two tokens suffice. A run of byte tokens must be processed completely, and the
  // earlier attempts add little to that.
  constexpr size_t kShortestTail = 16, kTimesLonger = 32;
  std::unique_ptr<Decoder::Chain> chain;
  size_t tail = kShortestTail;
  do {
    const bool is_whole = tail >= prompt.size();
    chain = decoder_.NewChain();
    if (!is_whole) chain->Join();
    for (const int32_t id : is_whole ? prompt : prompt.last(tail)) {
      Feed(id, skip_special_tokens, *chain);
      chain->TakeText();
    }
    if (is_whole) break;
    tail *= kTimesLonger;
  } while (!chain->joined());
  return std::make_unique<ChainDecoder>(this, std::move(chain), skip_special_tokens);
}

std::string InterpretedTokenizer::Decode(absl::Span<const int32_t> ids,
                                         bool skip_special_tokens) const {
  const std::unique_ptr<Decoder::Chain> chain = decoder_.NewChain();
  for (const int32_t id : ids) Feed(id, skip_special_tokens, *chain);
  chain->front().EndText();
  return chain->TakeText();
}

std::optional<std::string> InterpretedTokenizer::BytesOf(int32_t id) const {
  const bool has_any =
      id >= 0 && id < vocab_size() && entries_[id].decoded != nullptr && !entries_[id].is_special;
  return has_any ? decoder_.BytesOf(*entries_[id].decoded) : "";
}

std::string InterpretedTokenizer::TokenOf(int32_t id) const {
  const bool has_any = id >= 0 && id < vocab_size() && entries_[id].decoded != nullptr;
  return has_any ? *entries_[id].decoded : "";
}

// Decodes each token separately.
class SingleTokenDecoder : public TextDecoder {
 public:
  SingleTokenDecoder(const Tokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string Add(int32_t id) override { return tokenizer_->Decode({id}, skip_special_tokens_); }
  std::string Finish() override { return {}; }

 private:
  const Tokenizer* const tokenizer_;
  const bool skip_special_tokens_;
};

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  BH_ASSIGN_OR_RETURN(const LocalFile file, LocalFile::Open(path));
  if (file.bytes() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.bytes(), " bytes, more than ", kMaxFileBytes));
  }
  std::string bytes(file.bytes(), '\0');
  BH_RETURN_IF_ERROR(file.ReadAt(0, file.bytes(), reinterpret_cast<std::byte*>(bytes.data())));
  return bytes;
}

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text) {
  BH_RETURN_IF_ERROR(CheckJsonBounds(text));
  nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not valid JSON");
  return json;
}

// An object, or null if DIR has no such file.
absl::StatusOr<nlohmann::json> ReadJsonIfThere(const std::string& dir, absl::string_view name) {
  const std::string path = absl::StrCat(dir, "/", name);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return nlohmann::json();
  BH_RETURN_IF_ERROR(text.status());
  absl::StatusOr<nlohmann::json> json = ParseJson(*text);
  if (json.ok() && !json->is_object()) json = absl::InvalidArgumentError("not an object");
  if (json.ok()) return json;
  const std::string wrong = WrongFileText(*text, static_cast<int64_t>(text->size()));
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", wrong.empty() ? json.status().message() : wrong));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseFiles(absl::string_view text,
                                                      absl::string_view source,
                                                      const nlohmann::json& config,
                                                      const nlohmann::json& older) {
  const absl::StatusOr<nlohmann::json> file = ParseJson(text);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      file.ok() ? InterpretedTokenizer::Read({*file, "file"}, {config, "tokenizer_config.json"},
                                             {older, "special_tokens_map.json"})
                : file.status();
  if (tokenizer.ok()) return tokenizer;
  absl::Status why = tokenizer.status();
  const std::string wrong = WrongFileText(text, static_cast<int64_t>(text.size()));
  if (!wrong.empty()) why = absl::InvalidArgumentError(wrong);
  return WithExitCode(absl::Status(why.code(), absl::StrCat(source, ": ", why.message())),
                      ExitCode::kModelRefused);
}

}  // namespace

std::optional<std::string> Tokenizer::BytesOf(int32_t /*id*/) const { return std::nullopt; }

absl::StatusOr<std::vector<std::string>> Tokenizer::TokenBytes() const {
  std::vector<std::string> all;
  for (int id = 0; id < vocab_size(); ++id) {
    std::optional<std::string> bytes = BytesOf(id);
    if (!bytes.has_value()) {
      return absl::UnimplementedError(absl::StrCat(
          "the text of token ", id, " of tokenizer.json depends on the tokens around it"));
    }
    all.push_back(*std::move(bytes));
  }
  return all;
}

std::unique_ptr<TextDecoder> Tokenizer::NewTextDecoder(absl::Span<const int32_t> /*prompt*/,
                                                       bool skip_special_tokens) const {
  return std::make_unique<SingleTokenDecoder>(this, skip_special_tokens);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view json_text,
                                                            absl::string_view source) {
  return ParseFiles(json_text, source, nullptr, nullptr);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& dir) {
  const std::string path = absl::StrCat(dir, "/tokenizer.json");
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kModelRefused);
  const auto config = ReadJsonIfThere(dir, "tokenizer_config.json");
  if (!config.ok()) return WithExitCode(config.status(), ExitCode::kModelRefused);
  const auto older = ReadJsonIfThere(dir, "special_tokens_map.json").value_or(nlohmann::json());
  return ParseFiles(*text, path, *config, older);
}

}  // namespace bulkhead
