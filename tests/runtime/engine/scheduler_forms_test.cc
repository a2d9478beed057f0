// Many forms of answers that take much work.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/structured/matcher.h"
#include "tests/runtime/engine/toy_model.h"

namespace bulkhead {
namespace {

using structured::Automaton;
using ::testing::Each;
using ::testing::Ge;

// One of its own for each request.
std::shared_ptr<Automaton> NewForm(const std::string& pattern) {
  static const auto* const trie = [] {
    std::vector<std::string> tokens(kToyVocab);
    for (TokenId id = 1; id < kToyVocab; ++id) {
      for (int i = 0; i <= id % 40; ++i) tokens[id] += (id * (i + 3)) % 7 < 3 ? 'a' : 'b';
    }
    return new structured::TokenTrie(tokens);
  }();
  return std::make_shared<Automaton>(*structured::Grammar::Regex(pattern), trie, size_t{4} << 20);
}

class SchedulerFormsTest : public testing::Test {
 protected:
  static SchedulerLimits Limits() {
    SchedulerLimits limits = ToyLimits();
    limits.max_num_seqs = 32;
    limits.max_num_batched_tokens = 256;
    limits.num_kv_blocks = 1000;
    return limits;
  }

  // Of each the first mask takes most of a million units, and so does following a token.
  void SubmitCostly(int count, int max_tokens) {
    for (int i = 0; i < count; ++i) {
      Request request = ToyRequest(3, max_tokens, i);
      request.logits.form = NewForm(absl::StrCat("(([ab]{1,30}){1,30})+c", i));
      Submit(std::move(request));
    }
  }
  SequenceId Submit(Request request) {
    if (request.logits.form != nullptr) forms_.push_back(request.logits.form);
    requests_.push_back(request);
    ids_.push_back(*loop_.Submit(std::move(request)));
    return ids_.back();
  }
  int64_t Work() const {
    int64_t work = 0;
    for (const auto& form : forms_) work += form->total_work();
    return work;
  }

  ToyLoop loop_{Limits()};
  std::vector<std::shared_ptr<Automaton>> forms_;
  std::vector<Request> requests_;
  std::vector<SequenceId> ids_;
};

TEST_F(SchedulerFormsTest, AStepDoesLittleOfTheWorkOfManyAndOthersGoOn) {
  SubmitCostly(20, 4);
  const SequenceId plain = Submit(ToyRequest(3, 30, 100));
  int64_t most = 0;
  for (size_t step = 1; step <= 30; ++step) {
    const int64_t before = Work();
    loop_.Step();
    most = std::max(most, Work() - before);
    ASSERT_EQ(loop_.TokensOf(plain).size(), step);
  }
  EXPECT_GT(Work(), 50'000'000);
  EXPECT_LE(most, kFormWorkOfStep + Automaton::kMaxWork + kTokenWorkOfStep);
  loop_.RunToEnd();
  for (size_t i = 0; i < ids_.size(); ++i) {
    ASSERT_NE(loop_.EndOf(ids_[i]), nullptr);
    EXPECT_TRUE(loop_.EndOf(ids_[i])->status.ok()) << loop_.EndOf(ids_[i])->status;
    EXPECT_EQ(loop_.TokensOf(ids_[i]), ToyGenerate(requests_[i], {kToyEos}, 64).tokens);
  }
}

TEST_F(SchedulerFormsTest, AFormOfLittleWorkGoesBeforeCostlyOnes) {
  SubmitCostly(20, 20);
  Request request = ToyRequest(3, 20, 100);
  request.logits.form = NewForm("[ab]{500,900}c");
  const SequenceId light = Submit(std::move(request));
  for (int step = 0; step < 80; ++step) loop_.Step();
  EXPECT_NE(loop_.EndOf(light), nullptr);
  std::vector<size_t> tokens;
  for (size_t i = 0; i < 20; ++i) tokens.push_back(loop_.TokensOf(ids_[i]).size());
  EXPECT_THAT(tokens, Each(Ge(1)));
}

}  // namespace
}  // namespace bulkhead
