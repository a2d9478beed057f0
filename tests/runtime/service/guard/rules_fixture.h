// Rules with small quotas, a clock of their own, and clients that begin as clients do.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/service/guard/connection_rules.h"
#include "tests/runtime/service/guard/frames.h"

namespace bulkhead {

inline HostQuotas SmallQuotas() {
  HostQuotas quotas;
  quotas.message_bytes = 1 << 20;
  quotas.max_open_calls = 16;
  quotas.request_bytes = 4 << 20;
  return quotas;
}

class ConnectionRulesTest : public testing::Test {
 protected:
  // What reaches the server of `bytes`, which are all taken.
  std::string Sent(ConnectionRules& rules, const std::string& bytes) {
    std::string out;
    EXPECT_EQ(rules.FromClient(bytes, now_, &out), bytes.size());
    return out;
  }
  // Begun as clients do, with a first call that is done.
  void Begin(ConnectionRules& rules) {
    Sent(rules, std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0) +
                    Frame(FrameType::kSettings, frame_flag::kAck, 0) + Headers(1, true));
    Answer(rules, 1);
  }
  void Answer(ConnectionRules& rules, uint32_t stream) {
    rules.FromServer(Headers(stream) + Message(stream, 3, 3) + Headers(stream, true), now_);
  }
  // What the client gets of the guard's own.
  std::string ToClient(ConnectionRules& rules) { return rules.FromServer({}, now_); }
  // One server tick after `time`, with all that it sends to the server.
  std::string After(ConnectionRules& rules, absl::Duration time, bool reading = true) {
    now_ += time;
    totals_.ReturnSlots(now_);
    std::string out;
    rules.Tick(now_, reading, &out);
    return out;
  }
  int64_t open_calls() const { return counters_.open_calls.now(); }
  int64_t request_bytes() const { return counters_.request_bytes.now(); }

  HostCounters counters_;
  ErrorCounts errors_;
  GuardTotals totals_{SmallQuotas(), &counters_, &errors_};
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
};

}  // namespace bulkhead
