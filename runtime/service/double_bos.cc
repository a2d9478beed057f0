#include "runtime/service/double_bos.h"

#include <atomic>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"

namespace bulkhead {

bool BeginsWithTwoBos(const Tokenizer& tokenizer, absl::Span<const TokenId> prompt) {
  if (prompt.size() < 2 || prompt[0] != prompt[1]) return false;
  const absl::StatusOr<std::vector<TokenId>> added = tokenizer.Encode("", true);
  return added.ok() && !added->empty() && added->front() == prompt[0];
}

void WarnOfTwoBos(int64_t now_ns) {
  constexpr int64_t kQuietNanos = 60'000'000'000;
  static std::atomic<int64_t> next_ns = 0;
  int64_t due_ns = next_ns.load();
  if (now_ns < due_ns || !next_ns.compare_exchange_strong(due_ns, now_ns + kQuietNanos)) return;
  BH_LOG(kWarning)
      << "a text prompt begins with the BOS token, and the tokenizer adds another: send "
         "texts that a chat template made with add_special_tokens false (generate "
         "--no-special-tokens)";
}

}  // namespace bulkhead
