// ByteBudget: a bounded number of bytes, of which holds take parts and give them back. Thread-safe;
// a hold is used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/service/host_counters.h"

namespace bulkhead {

class ByteBudget {
 public:
  // What may take the last of the budget: an eighth of it is left to work that was accepted.
  enum class Use { kNewWork, kAcceptedWork };

  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() { ShrinkTo(0); }

    int64_t bytes() const { return bytes_; }
    // False, and as it was, when the budget does not have the rest. True when it is as large
    // already.
    bool GrowTo(int64_t bytes, Use use);
    // No effect when it is smaller already.
    void ShrinkTo(int64_t bytes);

   private:
    friend class ByteBudget;
    explicit Hold(ByteBudget* budget) : budget_(budget) {}

    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  // `counter` has what is held, and is changed by the budget alone; it outlives the budget, which
  // outlives its holds.
  ByteBudget(int64_t limit_bytes, PeakCounter* counter)
      : limit_bytes_(limit_bytes), counter_(counter) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // For new work. Nullopt when the budget does not have so much.
  std::optional<Hold> Take(int64_t bytes);

  int64_t limit_bytes(Use use) const {
    return use == Use::kAcceptedWork ? limit_bytes_ : limit_bytes_ - limit_bytes_ / 8;
  }

 private:
  const int64_t limit_bytes_;
  PeakCounter* const counter_;
};

}  // namespace bulkhead
