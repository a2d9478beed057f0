#include "launcher/planning/startup_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/local/local_group.h"
#include "launcher/gather_messages.h"
#include "tests/support/run_ranks.h"

namespace bulkhead {
namespace {

TEST(StartupMessagesTest, WhatRanksTellEachOtherArrivesUnchanged) {
  const DeviceBudget budget{3, "node 7", "cpu", "0-3,8", "1", 1000, 10, 20, 30, 40, true};
  const auto& [rank, host, device, cores, nodes, total, others, driver, reserve, transient,
               probed] = FromProto(ToProto(budget));
  EXPECT_EQ(rank, 3);
  EXPECT_EQ(host + device + cores + nodes, "node 7cpu0-3,81");
  EXPECT_THAT(std::vector({total, others, driver, reserve, transient}),
              testing::ElementsAre(1000, 10, 20, 30, 40));
  EXPECT_TRUE(probed);

  const HostLimit limit =
      FromProto(ToProto(HostLimit{"7:cgroup:1:2", "the cgroup /a b/c", 1000, 10, true}));
  EXPECT_EQ(limit.id, "7:cgroup:1:2");
  EXPECT_EQ(limit.name, "the cgroup /a b/c");
  EXPECT_THAT(std::vector({limit.total_bytes, limit.available_bytes}),
              testing::ElementsAre(1000, 10));
  EXPECT_TRUE(limit.cgroup);

  const HostRequest request = FromProto(ToProto(HostRequest{7, 1 << 20, 12, false, 2, true, true}));
  EXPECT_EQ(request.max_num_queued_reqs, 7);
  EXPECT_EQ(request.host_memory, 1 << 20);
  EXPECT_EQ(request.tokenizer_file_bytes, 12);
  EXPECT_FALSE(request.prefix_caching);
  EXPECT_EQ(request.ranks_on_host, 2);
  EXPECT_TRUE(request.http);
  EXPECT_TRUE(request.metrics_port);
  EXPECT_EQ(FromProto(ToProto(HostRequest())).host_memory, std::nullopt);
}

TEST(StartupMessagesTest, WhatIsNoMessageIsRefusedWithItsRank) {
  RunRanks(2, [](Group& group) {
    GroupExchange& exchange = group.exchange();
    if (exchange.topology().rank == 1) {
      EXPECT_TRUE(exchange.AllGather("12 no message", absl::Seconds(60)).ok());
      return;
    }
    const auto ranks = GatherMessages(exchange, internal::DeviceBudget(), absl::Seconds(60));
    EXPECT_EQ(ranks.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(ranks.status().message(), "what rank 1 sent is no DeviceBudget");
  });
}

}  // namespace
}  // namespace bulkhead
