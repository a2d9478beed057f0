#include "runtime/service/text_worker.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/service/refusal.h"

namespace bulkhead {

TextWorker::TextWorker(int64_t most_waiting_bytes)
    : most_waiting_bytes_(static_cast<size_t>(most_waiting_bytes)), thread_([this] { Loop(); }) {}

TextWorker::~TextWorker() {
  {
    const absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status TextWorker::Post(size_t bytes, std::function<void()> work, size_t grammar) {
  const absl::MutexLock lock(&mutex_);
  if (grammar != 0 && !num_of_grammar_.contains(grammar)) bytes = std::max(bytes, kGrammarBytes);
  const bool is_own = std::this_thread::get_id() == thread_.get_id();
  const size_t others = waiting_bytes_ - (is_own ? running_bytes_ : 0);
  if (others > 0 && others + bytes > most_waiting_bytes_) {
    return WithRetryAfter(
        WithReason(
            absl::ResourceExhaustedError(absl::StrCat(
                others,
                " bytes of long texts wait to be tokenised (a grammar that is not compiled yet, "
                "or of a resumed answer, counts as ",
                kGrammarBytes, "), ", bytes, " more would pass the limit of ", most_waiting_bytes_,
                "; try again later, or send token ids")),
            reason::kQueueFull,
            {{"value", absl::StrCat(others + bytes)},
             {"limit", absl::StrCat(most_waiting_bytes_)}}),
        absl::Seconds(1));
  }
  waiting_bytes_ += bytes;
  if (grammar != 0) ++num_of_grammar_[grammar];
  queue_.push_back({bytes, grammar, std::move(work)});
  return absl::OkStatus();
}

void TextWorker::Loop() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !queue_.empty();
  };
  mutex_.Lock();
  while (true) {
    mutex_.Await(absl::Condition(&has_work));
    if (queue_.empty()) break;
    Waiting next = std::move(queue_.front());
    queue_.pop_front();
    running_bytes_ = next.bytes;
    mutex_.Unlock();
    next.work();
    next.work = nullptr;  // destroyed without the lock, with everything it owns
    mutex_.Lock();
    waiting_bytes_ -= next.bytes;
    if (next.grammar != 0 && --num_of_grammar_[next.grammar] == 0)
      num_of_grammar_.erase(next.grammar);
  }
  mutex_.Unlock();
}

}  // namespace bulkhead
