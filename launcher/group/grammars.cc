#include "launcher/group/grammars.h"

namespace bulkhead {

std::shared_ptr<structured::GrammarCache> GrammarsOf(const RankEngine& engine) {
  if (engine.tokenizer == nullptr) return nullptr;
  constexpr int64_t kRunBytes = int64_t{128} << 20;
  const int64_t bytes = engine.host.has_value() ? engine.host->quotas.structured_bytes : kRunBytes;
  return std::make_shared<structured::GrammarCache>(
      [tokenizer = engine.tokenizer.get()] { return tokenizer->TokenBytes(); },
      engine.source.config.model.vocab_size, static_cast<size_t>(bytes));
}

}  // namespace bulkhead
