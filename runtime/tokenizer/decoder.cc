#include "runtime/tokenizer/decoder.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace bulkhead {
namespace {

class TextSink : public TokenSink {
 public:
  TextSink(std::string* text, bool* joined) : text_(text), joined_(joined) {}
  void Append(absl::string_view fragment) override { absl::StrAppend(text_, fragment); }
  void EndToken() override {}
  void EndText() override {}
  void JoinAt(Place) override { *joined_ = true; }

 private:
  std::string* const text_;
  bool* const joined_;
};

}  // namespace

absl::StatusOr<Decoder> Decoder::Read(const JsonPart& part) {
  Decoder decoder;
  if (part.is_null()) {
    decoder.steps_.push_back(NewJoinWithSpaces());
  } else {
    BH_RETURN_IF_ERROR(ReadDecoderSteps(part, 0, &decoder.steps_, &decoder.growth_));
  }
  return decoder;
}

std::unique_ptr<Decoder::Chain> Decoder::NewChain() const {
  auto chain = std::make_unique<Chain>();
  chain->sinks_.push_back(std::make_unique<TextSink>(&chain->text_, &chain->joined_));
  for (size_t i = steps_.size(); i-- > 0;) {
    chain->sinks_.push_back(steps_[i]->NewSink(chain->sinks_.back().get()));
  }
  chain->front_ = chain->sinks_.back().get();
  return chain;
}

}  // namespace bulkhead
