#include "tests/support/emulator/bank_conflicts.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace bulkhead::emulator {
namespace {

constexpr int kBanks = 32;
constexpr size_t kBankBytes = 4;
constexpr int kLanes = 32;

// Distinct words of one bank; a lane may touch several banks.
class BankWords {
 public:
  void Add(size_t offset, size_t bytes) {
    for (size_t word = offset / kBankBytes; word <= (offset + bytes - 1) / kBankBytes; ++word) {
      std::vector<size_t>& words = words_[word % kBanks];
      if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    }
  }
  int Take() {
    size_t turns = 0;
    for (std::vector<size_t>& words : words_) {
      turns = std::max(turns, words.size());
      words.clear();
    }
    return static_cast<int>(turns);
  }

 private:
  std::array<std::vector<size_t>, kBanks> words_;
};

}  // namespace

void BankConflicts::Note(int thread, int meetings, const void* code, size_t offset, size_t bytes) {
  if (accesses_.size() == kMaxAccesses) return;
  accesses_.push_back({code, meetings, 0, static_cast<uint16_t>(thread),
                       static_cast<uint16_t>(bytes), static_cast<uint32_t>(offset)});
}

int BankConflicts::Turns() {
  const auto place = [](const Access& a) { return std::tie(a.code, a.meetings, a.thread); };
  // A thread's accesses are in order and stay so.
  std::stable_sort(accesses_.begin(), accesses_.end(),
                   [&](const Access& a, const Access& b) { return place(a) < place(b); });
  for (size_t i = 1; i < accesses_.size(); ++i) {
    const Access& before = accesses_[i - 1];
    if (place(before) == place(accesses_[i])) accesses_[i].round = before.round + 1;
  }
  const auto together = [](const Access& a) {
    const int lanes = a.bytes <= kBankBytes ? kLanes : a.bytes <= 8 ? kLanes / 2 : kLanes / 4;
    return std::make_tuple(a.code, a.meetings, a.round, a.bytes, a.thread / lanes);
  };
  std::sort(accesses_.begin(), accesses_.end(),
            [&](const Access& a, const Access& b) { return together(a) < together(b); });
  int most = 0;
  BankWords words;
  for (size_t i = 0; i < accesses_.size(); ++i) {
    words.Add(accesses_[i].offset, accesses_[i].bytes);
    const bool last =
        i + 1 == accesses_.size() || together(accesses_[i]) != together(accesses_[i + 1]);
    if (last) most = std::max(most, words.Take());
  }
  return most;
}

}  // namespace bulkhead::emulator
