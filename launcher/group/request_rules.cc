#include "launcher/group/request_rules.h"

#include <memory>
#include <utility>
#include <vector>

namespace bulkhead {
namespace {

std::shared_ptr<structured::GrammarCache> GrammarsOf(const RankEngine& engine) {
  if (engine.tokenizer == nullptr) return nullptr;
  constexpr int64_t kRunBytes = int64_t{128} << 20;
  const int64_t bytes = engine.host.has_value() ? engine.host->quotas.structured_bytes : kRunBytes;
  return std::make_shared<structured::GrammarCache>(
      [tokenizer = engine.tokenizer.get()] { return tokenizer->TokenBytes(); },
      engine.source.config.model.vocab_size, static_cast<size_t>(bytes));
}

}  // namespace

RequestRules RequestRulesOf(const RankEngine& engine, const EngineOptions& options) {
  std::vector<ServedAdapter> adapters;
  for (const LoraModule& module : options.lora_modules)
    adapters.push_back({module.name, module.dir});
  return {.tokenizer = engine.tokenizer.get(),
          .model = options.model,
          .served_model_names = {options.model},
          .adapters = std::move(adapters),
          .vocab_size = engine.source.config.model.vocab_size,
          .max_model_len = engine.limits.max_model_len,
          .default_max_tokens = options.default_max_tokens,
          .has_priorities = options.scheduling_policy == SchedulingPolicy::kPriority,
          .defaults = engine.source.config.generation,
          .embedding = engine.source.embedding,
          .grammars = GrammarsOf(engine)};
}

}  // namespace bulkhead
