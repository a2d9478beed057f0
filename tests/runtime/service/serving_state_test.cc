#include "runtime/service/serving_state.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

using Phase = ServingPhase;

void Go(ServingState& state, Phase phase) {
  switch (phase) {
    case Phase::kStarting:
      return;
    case Phase::kServing:
      return state.SetReady(ServingParts());
    case Phase::kDraining:
      return state.SetDraining();
    case Phase::kLost:
      return state.SetLost(absl::UnavailableError("rank 1 was lost"), {});
    case Phase::kStopping:
      return state.SetStopping();
  }
}

constexpr Phase kPhases[] = {Phase::kStarting, Phase::kServing, Phase::kDraining, Phase::kLost,
                             Phase::kStopping};

TEST(ServingStateTest, LifeGoesForwardOnlyAndEveryPhaseIsToldOnce) {
  for (const Phase from : kPhases) {
    for (const Phase to : kPhases) {
      ServingState state;
      Go(state, from);
      std::vector<Phase> told;
      state.SetListener([&](Phase phase) { told.push_back(phase); });
      Go(state, to);
      const bool moves = to > from;
      EXPECT_EQ(state.phase(), moves ? to : from);
      EXPECT_EQ(told, moves ? std::vector<Phase>{to} : std::vector<Phase>{});
    }
  }
}

TEST(ServingStateTest, WhatIsRefusedNamesThePhaseAndALossEvenWhileStopping) {
  for (const bool lost : {false, true}) {
    ServingState state;
    EXPECT_EQ(ReasonOf(state.ForNewRequest().status()), "STARTING");
    Go(state, Phase::kServing);
    EXPECT_TRUE(state.ForNewRequest().ok());
    Go(state, Phase::kDraining);
    EXPECT_EQ(ReasonOf(state.ForNewRequest().status()), "DRAINING");
    EXPECT_TRUE(state.ForControl(v1::GetLoadRequest()).ok());
    if (lost) Go(state, Phase::kLost);
    Go(state, Phase::kStopping);
    const char* const why = lost ? "RANK_LOST" : "DRAINING";
    EXPECT_EQ(ReasonOf(state.ForNewRequest().status()), why);
    EXPECT_EQ(ReasonOf(state.Explain(absl::UnavailableError("ended"), "r")), why);
    EXPECT_EQ(state.ForControl(v1::GetLoadRequest()).ok(), !lost);
  }
}

// The drain comes, and has returned, while the listener is being told of "serving": whoever watches
// must not believe afterwards that the server serves.
TEST(ServingStateTest, TheLastPhaseThatIsToldIsTheLastOne) {
  ServingState state;
  std::vector<Phase> told;
  state.SetListener([&](Phase phase) {
    if (phase == Phase::kServing) std::thread([&] { state.SetDraining(); }).join();
    told.push_back(phase);
  });
  state.SetReady(ServingParts());
  EXPECT_EQ(told, (std::vector<Phase>{Phase::kServing, Phase::kDraining}));
}

}  // namespace
}  // namespace bulkhead
