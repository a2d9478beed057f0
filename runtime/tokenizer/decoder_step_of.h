// StepOf: a decoder step that consists only of its sink and the sink's settings.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "runtime/tokenizer/decoder.h"

namespace bulkhead {

// Makes a DecoderStep from a sink class whose constructor takes `next` and then `settings`.
template <typename Sink, typename... Settings>
class StepOf : public DecoderStep {
 public:
  explicit StepOf(Settings... settings) : settings_(std::move(settings)...) {}
  std::unique_ptr<TokenSink> NewSink(TokenSink* next) const override {
    return std::apply(
        [next](const Settings&... settings) { return std::make_unique<Sink>(next, settings...); },
        settings_);
  }

 private:
  const std::tuple<Settings...> settings_;
};

template <typename Sink, typename... Settings>
std::unique_ptr<DecoderStep> MakeStep(Settings... settings) {
  return std::make_unique<StepOf<Sink, Settings...>>(std::move(settings)...);
}

}  // namespace bulkhead
