#include "runtime/tokenizer/tokenizer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "memory/exit_code.h"
#include "memory/status.h"
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

constexpr off_t kMaxFileBytes = off_t{256} << 20;

// A Tokenizer that works through the parts of its file.
class InterpretedTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Read(const JsonPart& file);

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              bool add_special_tokens) const override;
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special_tokens) const override;
  std::unique_ptr<TextDecoder> NewTextDecoder(bool skip_special_tokens) const override;

  int vocab_size() const override { return static_cast<int>(entries_.size()); }
  std::optional<int32_t> TokenToId(absl::string_view token) const override {
    const auto added = added_ids_.find(token);
    return added != added_ids_.end() ? added->second : model_->Id(token);
  }
  bool IsSpecial(int32_t id) const override {
    return id >= 0 && id < vocab_size() && entries_[id].is_special;
  }

  // What the decoder gets for `id`; null for nothing.
  const std::string* DecodedToken(int32_t id, bool skip_special_tokens) const {
    if (id < 0 || id >= vocab_size()) return nullptr;
    const Entry& entry = entries_[id];
    return skip_special_tokens && entry.is_special ? nullptr : entry.decoded;
  }

 private:
  struct Entry {
    const std::string* decoded = nullptr;  // null: no such token
    bool is_special = false;
  };

  void IndexEntries();
  absl::Status EncodeText(AlignedText text, RegexBudget& budget, BpeModel::Scratch& scratch,
                          std::vector<int32_t>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens added_;
  PostProcessor post_processor_;
  Decoder decoder_;
  absl::flat_hash_map<absl::string_view, int32_t> added_ids_;  // views of added_
  std::vector<Entry> entries_;                                 // by id
};

JsonPart FieldOrNull(const JsonPart& file, absl::string_view name) {
  static const nlohmann::json* const null = new nlohmann::json();
  return file.Find(name).value_or(JsonPart(*null, std::string(name)));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> InterpretedTokenizer::Read(const JsonPart& file) {
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
  BH_ASSIGN_OR_RETURN(tokenizer->decoder_, Decoder::Read(FieldOrNull(file, "decoder")));
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
    added_ids_[token.content] = token.id;
    if (token.special) special.insert(token.content);
  }
  for (Entry& entry : entries_) {
    entry.is_special = entry.decoded != nullptr && special.contains(*entry.decoded);
  }
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
  BH_RETURN_IF_ERROR(CheckTextSize(text.size()));
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

class ChainDecoder : public TextDecoder {
 public:
  ChainDecoder(const InterpretedTokenizer* tokenizer, std::unique_ptr<Decoder::Chain> chain,
               bool skip_special_tokens)
      : tokenizer_(tokenizer),
        chain_(std::move(chain)),
        skip_special_tokens_(skip_special_tokens) {}
  std::string Add(int32_t id) override {
    const std::string* const token = tokenizer_->DecodedToken(id, skip_special_tokens_);
    if (token != nullptr) chain_->front().Token(*token);
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

std::unique_ptr<TextDecoder> InterpretedTokenizer::NewTextDecoder(bool skip_special_tokens) const {
  return std::make_unique<ChainDecoder>(this, decoder_.NewChain(), skip_special_tokens);
}

std::string InterpretedTokenizer::Decode(absl::Span<const int32_t> ids,
                                         bool skip_special_tokens) const {
  const std::unique_ptr<Decoder::Chain> chain = decoder_.NewChain();
  for (const int32_t id : ids) {
    const std::string* const token = DecodedToken(id, skip_special_tokens);
    if (token != nullptr) chain->front().Token(*token);
  }
  chain->front().EndText();
  return chain->TakeText();
}

// Decodes each token alone.
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
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not hang it
  if (fd < 0) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT || errno == ENOTDIR ? absl::NotFoundError(why)
                                               : absl::InvalidArgumentError(why);
  }
  struct stat stat;
  absl::Status status;
  std::string bytes;
  if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  } else if (stat.st_size > kMaxFileBytes) {
    status = absl::InvalidArgumentError(
        absl::StrCat(path, ": ", stat.st_size, " bytes, more than ", kMaxFileBytes));
  } else {
    bytes.resize(stat.st_size);
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = read(fd, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      done += n;
    }
    if (done < bytes.size()) status = absl::DataLossError(absl::StrCat(path, ": cannot be read"));
  }
  close(fd);
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace

std::unique_ptr<TextDecoder> Tokenizer::NewTextDecoder(bool skip_special_tokens) const {
  return std::make_unique<SingleTokenDecoder>(this, skip_special_tokens);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view json_text) {
  const nlohmann::json json =
      nlohmann::json::parse(json_text.begin(), json_text.end(), nullptr, false);
  if (json.is_discarded()) {
    return WithExitCode(absl::InvalidArgumentError("tokenizer.json: not valid JSON"),
                        ExitCode::kModelRefused);
  }
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      InterpretedTokenizer::Read(JsonPart(json, "file"));
  if (!tokenizer.ok()) return WithExitCode(tokenizer.status(), ExitCode::kModelRefused);
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& dir) {
  const absl::StatusOr<std::string> text = ReadFile(absl::StrCat(dir, "/tokenizer.json"));
  if (!text.ok()) return WithExitCode(text.status(), ExitCode::kModelRefused);
  return Parse(*text);
}

}  // namespace bulkhead
