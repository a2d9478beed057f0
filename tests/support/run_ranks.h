// RunRanks: a rank is a thread. Runs body(group) for every rank of a local group concurrently and
// waits for all of them. A failed rank ends the waits of the others, which might otherwise hang.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "comm/local/local_group.h"

namespace bulkhead {

template <typename Body>
void RunRanksOf(const std::vector<std::unique_ptr<Group>>& groups, const Body& body) {
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&body, &group] {
      body(*group);
      if (testing::Test::HasFailure()) group->liveness().Abort(absl::AbortedError("a test failed"));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <typename Body>
void RunRanks(int size, const Body& body) {
  RunRanksOf(NewLocalGroups(size), body);
}

}  // namespace bulkhead
