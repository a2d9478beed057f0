#include "launcher/clients/diagnosis.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ServerSnapshot Calm() {
  ServerSnapshot seen;
  seen.now.set_max_num_seqs(8);
  seen.now.set_max_model_len(2048);
  seen.now.set_max_num_queued_reqs(100);
  seen.sealed = seen.now;
  seen.load.set_num_kv_blocks(1000);
  seen.load.set_num_kv_blocks_used_peak(200);
  seen.ranks.set_kv_cache_dtype("bfloat16");
  v1::RankRow& row = *seen.ranks.add_ranks();
  row.set_total_bytes(1000);
  row.set_reserve_bytes(30);
  for (const auto& [term, bytes] :
       std::initializer_list<std::pair<const char*, uint64_t>>{{"weights", 400},
                                                               {"kv", 300},
                                                               {"block_tables", 10},
                                                               {"logits", 20},
                                                               {"activations", 100},
                                                               {"communication", 50},
                                                               {"workspace", 70}}) {
    v1::Arena& arena = *row.add_arenas();
    arena.set_term(term);
    arena.set_bytes(bytes);
  }
  return seen;
}

TEST(DiagnosisTest, NothingIsToBeChangedWhereNothingPresses) {
  EXPECT_THAT(Diagnose(Calm()), IsEmpty());
}

// A server whose clients may make it grow by 100 MiB beyond its size at READY.
ServerSnapshot WithHost(uint64_t grown_mib, uint64_t peak_mib) {
  ServerSnapshot seen = Calm();
  v1::HostBudget& budget = *seen.ranks.mutable_host();
  for (const auto& [term, mib] : std::initializer_list<std::pair<const char*, uint64_t>>{
           {"grpc", 60}, {"answers", 40}, {"tokenizer", 8}, {"heap_slack", 30}}) {
    v1::Arena& part = *budget.add_terms();
    part.set_term(term);
    part.set_bytes(mib << 20);
  }
  budget.set_total_bytes(138 << 20);
  budget.set_max_connections(64);
  budget.set_max_open_calls(256);
  budget.set_answer_bytes(20 << 20);
  seen.load.set_resident_bytes((1000 + grown_mib) << 20);
  v1::HostLoad& host = *seen.load.mutable_host();
  host.set_resident_bytes_at_ready(1000 << 20);
  host.set_resident_bytes_peak((1000 + peak_mib) << 20);
  host.mutable_connections()->set_peak(3);
  host.mutable_answer_bytes()->set_peak(19 << 20);
  return seen;
}

TEST(DiagnosisTest, ResidentMemoryBelowTheHostsBoundPressesNothing) {
  EXPECT_THAT(Diagnose(WithHost(20, 84)), IsEmpty());
  EXPECT_THAT(ConsumersTable(WithHost(20, 84).ranks, nullptr), HasSubstr("138.0 MiB"));
  const ServerSnapshot seen = WithHost(20, 84);
  EXPECT_THAT(ConsumersTable(seen.ranks, &seen),
              AllOf(HasSubstr("20.0 MiB"), HasSubstr("84.0 MiB")));
}

TEST(DiagnosisTest, ResidentMemoryNearTheHostsBoundNamesTheQuotaThatIsUsedMost) {
  for (const ServerSnapshot& seen : {WithHost(86, 86), WithHost(0, 86)}) {
    const std::vector<Finding> findings = Diagnose(seen);
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_THAT(findings[0].what, AllOf(HasSubstr("86.0 MiB"), HasSubstr("100.0 MiB"),
                                        HasSubstr("answers, 19.0 MiB of 20.0 MiB")));
    EXPECT_THAT(findings[0].setting, HasSubstr("--host-memory"));
  }
}

TEST(DiagnosisTest, ACgroupThatHasLessLeftThanClientsMayTakePresses) {
  ServerSnapshot seen = WithHost(20, 20);
  seen.load.mutable_host()->set_cgroup_limit_bytes(2000 << 20);
  seen.load.mutable_host()->set_cgroup_used_bytes(1900 << 20);
  EXPECT_THAT(Diagnose(seen), IsEmpty());  // 100 left, 80 expected
  seen.load.mutable_host()->set_cgroup_used_bytes(1930 << 20);
  const std::vector<Finding> findings = Diagnose(seen);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].what, AllOf(HasSubstr("cgroup"), HasSubstr("70.0 MiB left")));
}

TEST(DiagnosisTest, ConnectionsThatWereClosedForTheHostsSakeAreTold) {
  ServerSnapshot seen = WithHost(20, 20);
  (*seen.load.mutable_host()->mutable_num_connections_closed_by_reason())["IDLE"] = 3;
  EXPECT_THAT(Diagnose(seen), IsEmpty());
  (*seen.load.mutable_host()->mutable_num_connections_closed_by_reason())["OVERLOADED"] = 3;
  EXPECT_THAT(Diagnose(seen)[0].what, HasSubstr("3 connections were closed (OVERLOADED)"));
}

TEST(DiagnosisTest, FullPoolMeansWaitingAndIsNeverCalledOutOfMemory) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_blocks(7);
  seen.load.set_num_kv_blocks_used_peak(990);
  const std::vector<Finding> findings = Diagnose(seen);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].what, AllOf(HasSubstr("pool full"), HasSubstr("not out of memory")));
  EXPECT_THAT(findings[0].setting, HasSubstr("--kv-cache-dtype int8"));
}

TEST(DiagnosisTest, QuantisedPoolIsMadeLargerByWhatLiesStrandedElseByMemory) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_blocks(7);
  seen.ranks.set_kv_cache_dtype("fp8");
  EXPECT_THAT(Diagnose(seen)[0].setting, HasSubstr("more memory for rank 0"));
  seen.ranks.add_ranks()->set_stranded_bytes(4096);
  EXPECT_THAT(Diagnose(seen)[0].setting, HasSubstr("--tp-shares auto"));
}

TEST(DiagnosisTest, APoolThatMemoryDoesNotLimitIsMadeLargerByWhatDoes) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_slots(9);
  seen.load.set_num_kv_blocks_used_peak(1000);
  const auto setting_of = [&](const char* rule) {
    seen.ranks.mutable_ranks(0)->set_kv_rule(rule);
    return Diagnose(seen)[0].setting;
  };
  EXPECT_EQ(setting_of("max_num_seqs x max_model_len takes 4.0 MiB of 9.0 GiB"),
            "--max-num-seqs 16 (the KV cache grows with it)");
  EXPECT_THAT(setting_of("40 blocks of 1.0 KiB = 40.0 KiB by --cache-max-entry-count"),
              HasSubstr("a larger --cache-max-entry-count"));
  EXPECT_THAT(setting_of("1.0 MiB by --kv-cache-bytes"), HasSubstr("--kv-cache-dtype int8"));
  seen.ranks.set_kv_cache_dtype("int8");
  EXPECT_EQ(setting_of("1.0 MiB by --kv-cache-bytes"), "more --kv-cache-bytes");
}

TEST(DiagnosisTest, SlotsAreRaisedOnlyWhileThePoolHasRoom) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_slots(9);
  EXPECT_THAT(Diagnose(seen)[0].setting, HasSubstr("--max-num-seqs 32"));  // 8 x 0.8 / 0.2
  seen.load.set_num_kv_blocks_used_peak(900);
  EXPECT_THAT(Diagnose(seen)[0].setting, HasSubstr("--kv-cache-dtype int8"));
}

TEST(DiagnosisTest, WhatAnOperatorTightenedIsToBeWidenedFirst) {
  ServerSnapshot seen = Calm();
  seen.now.set_max_num_seqs(2);
  seen.now.set_max_model_len(64);
  seen.now.set_max_num_queued_reqs(1);
  seen.load.set_num_steps_short_of_slots(9);
  (*seen.load.mutable_num_errors_by_reason())["QUEUE_FULL"] = 3;
  (*seen.load.mutable_num_errors_by_reason())["PROMPT_TOO_LONG"] = 4;
  const std::vector<Finding> findings = Diagnose(seen);
  ASSERT_EQ(findings.size(), 3U);
  EXPECT_THAT(findings[0].setting, HasSubstr("bulkhead limits --max-num-seqs 8"));
  EXPECT_THAT(findings[1].setting, HasSubstr("bulkhead limits --max-num-queued-reqs 100"));
  EXPECT_THAT(findings[2].setting, HasSubstr("bulkhead limits --max-model-len 2048"));
}

TEST(DiagnosisTest, ALargerLengthIsAdvisedUpToTheModelsOwn) {
  ServerSnapshot seen = Calm();
  (*seen.load.mutable_num_errors_by_reason())["PROMPT_TOO_LONG"] = 1;
  EXPECT_THAT(Diagnose(seen)[0].what, HasSubstr("1 prompt was longer"));
  EXPECT_THAT(Diagnose(seen)[0].setting, HasSubstr("where the model allows more"));
  seen.model.set_config_json(R"({"max_position_embeddings": 4096})");
  EXPECT_EQ(Diagnose(seen)[0].setting, "--max-model-len, up to the model's 4096");
  seen.model.set_config_json(R"({"text_config": {"max_position_embeddings": 2048}})");
  EXPECT_EQ(Diagnose(seen)[0].setting, "shorter prompts: the model takes at most 2048 tokens");
}

TEST(DiagnosisTest, WhatWasWaitedForMoreOftenComesFirst) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_slots(9);
  seen.load.set_num_steps_short_of_blocks(5);
  EXPECT_THAT(Diagnose(seen)[0].what, HasSubstr("slots full"));
  seen.load.set_num_steps_short_of_blocks(50);
  EXPECT_THAT(Diagnose(seen)[0].what, HasSubstr("pool full"));
}

TEST(DiagnosisTest, AllocationsAfterReadyAreABugAndComeBeforeEverything) {
  ServerSnapshot seen = Calm();
  seen.load.set_num_steps_short_of_blocks(5);
  seen.load.set_device_allocations_after_ready(1);
  EXPECT_THAT(Diagnose(seen)[0].what, HasSubstr("a bug; please report"));
  EXPECT_EQ(Diagnose(seen)[0].setting, "");
}

TEST(DiagnosisTest, ARankThatTheOthersWaitForIsNamed) {
  ServerSnapshot seen = Calm();
  seen.ranks.add_ranks()->set_host("b");
  for (const double compute_s : {10.0, 13.0}) {
    v1::RankSteps& steps = *seen.load.add_rank_steps();
    steps.set_decode_steps(320);
    steps.set_decode_compute_s(compute_s);
  }
  EXPECT_THAT(Diagnose(seen), IsEmpty());  // 13 % above the mean
  seen.load.mutable_rank_steps(1)->set_prefill_compute_s(7);
  const std::vector<Finding> findings = Diagnose(seen);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_THAT(findings[0].what, HasSubstr("rank 1 (host b) computes 33 % longer"));
  seen.load.mutable_rank_steps(0)->set_decode_steps(300);
  EXPECT_THAT(Diagnose(seen), IsEmpty());  // too few
  seen.load.mutable_rank_steps()->RemoveLast();
  EXPECT_THAT(Diagnose(seen), IsEmpty());  // alone
}

TEST(DiagnosisTest, EveryByteOfTheBindingRankHasAConsumer) {
  ServerSnapshot seen = Calm();
  const std::string table = ConsumersTable(seen.ranks, nullptr);
  EXPECT_THAT(table, HasSubstr("40 %"));   // static
  EXPECT_THAT(table, HasSubstr("30 B"));   // concurrency
  EXPECT_THAT(table, HasSubstr("150 B"));  // context
  EXPECT_THAT(table, HasSubstr("100 B"));  // overhead: workspace and reserve
  EXPECT_THAT(ConsumersTable(seen.ranks, &seen), HasSubstr("200 of 1,000"));
  EXPECT_THAT(table,
              AllOf(HasSubstr("--max-num-batched-tokens, --reserve"), Not(HasSubstr("draft"))));
  seen.ranks.mutable_ranks(0)->set_reserve_bytes(0);
  EXPECT_THAT(ConsumersTable(seen.ranks, nullptr), Not(HasSubstr("--reserve")));
}

TEST(DiagnosisTest, ADraftModelIsAConsumerOfItsOwn) {
  ServerSnapshot seen = Calm();
  v1::Arena& arena = *seen.ranks.mutable_ranks(0)->add_arenas();
  arena.set_term("draft_model");
  arena.set_bytes(45);
  EXPECT_THAT(ConsumersTable(seen.ranks, &seen), AllOf(HasSubstr("draft model"), HasSubstr("45 B"),
                                                       HasSubstr("--speculative-config")));
}

}  // namespace
}  // namespace bulkhead
