// ByteBudget: a limited number of bytes, parts of which are taken and returned by holds.
// Thread-safe; a hold is used by one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/service/host_counters.h"

namespace bulkhead {

class ByteBudget {
 public:
  // Which work may use the last eighth of the budget: only accepted work.
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
    // False, with no change, if the budget lacks the difference. True if it is already that large.
    bool GrowTo(int64_t bytes, Use use);
    // No effect if it is already smaller.
    void ShrinkTo(int64_t bytes);

   private:
    friend class ByteBudget;
    explicit Hold(ByteBudget* budget) : budget_(budget) {}

    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  // `counter` holds the bytes in use, modified only by the budget; it outlives the budget, which
  // outlives its holds.
  ByteBudget(int64_t limit_bytes, PeakCounter* counter)
      : limit_bytes_(limit_bytes), counter_(counter) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  // For new work. Nullopt if the budget does not have that much.
  std::optional<Hold> Take(int64_t bytes);

  int64_t limit_bytes(Use use) const {
    return use == Use::kAcceptedWork ? limit_bytes_ : limit_bytes_ - limit_bytes_ / 8;
  }

 private:
  const int64_t limit_bytes_;
  PeakCounter* const counter_;
};

}  // namespace bulkhead
