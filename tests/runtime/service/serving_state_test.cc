#include "runtime/service/serving_state.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

// A drain during the "serving" notification: "not serving" must be the last one.
TEST(ServingStateTest, ServingIsNeverToldAfterNotServing) {
  ServingState state("epoch");
  std::mutex mutex;
  std::condition_variable told_not_serving;
  std::vector<bool> told;
  std::thread drain;
  state.SetListener([&](bool serving) {
    std::unique_lock<std::mutex> lock(mutex);
    if (serving) {
      drain = std::thread([&] { state.SetDraining(); });
      // Enough time for the other thread to overtake, if it could.
      told_not_serving.wait_for(lock, std::chrono::milliseconds(300),
                                [&] { return !told.empty(); });
    }
    told.push_back(serving);
    told_not_serving.notify_all();
  });
  state.SetReady(ServingParts());
  drain.join();
  EXPECT_EQ(told, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace bulkhead
