#include "runtime/service/grpc/vllm_engine_messages.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/service/open_calls.h"
#include "runtime/service/packed_reader.h"
#include "runtime/service/prompt_builder.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;

constexpr int kLength = 64;  // max_model_len

vllm_api::GenerateRequest RequestOfIds() {
  vllm_api::GenerateRequest request;
  request.set_request_id("r");
  request.mutable_tokenized()->set_original_text("abc");
  for (const uint32_t id : {3, 1, 2}) request.mutable_tokenized()->add_input_ids(id);
  return request;
}

TEST(VllmRequestTest, WhatIsUnsetStaysUnset) {
  vllm_api::GenerateRequest request = RequestOfIds();
  const auto made = TakeGeneration(request, kLength);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->n, 1);
  EXPECT_FALSE(made->stream);
  EXPECT_EQ(made->request.request_id(), "r");
  EXPECT_THAT(made->request.token_ids().ids(), ElementsAre(3, 1, 2));
  const v1::Sampling& sampling = made->request.sampling();
  EXPECT_FALSE(sampling.has_temperature() || sampling.has_top_p() || sampling.has_top_k() ||
               sampling.has_min_p() || sampling.has_repetition_penalty() ||
               sampling.has_frequency_penalty() || sampling.has_presence_penalty() ||
               sampling.has_seed());
  EXPECT_FALSE(made->request.stopping().has_max_tokens());
  EXPECT_FALSE(made->request.output().has_logprobs());
  EXPECT_FALSE(made->request.output().text());
}

TEST(VllmRequestTest, WhatIsSetIsTaken) {
  vllm_api::GenerateRequest request = RequestOfIds();
  request.set_stream(true);
  vllm_api::SamplingParams& params = *request.mutable_sampling_params();
  params.set_temperature(0);
  params.set_top_p(0.5);
  params.set_top_k(7);
  params.set_min_p(0.25);
  params.set_frequency_penalty(1);
  params.set_presence_penalty(-1);
  params.set_repetition_penalty(1.5);
  params.set_max_tokens(9);
  params.set_min_tokens(2);
  params.add_stop("x");
  params.add_stop_token_ids(5);
  params.set_ignore_eos(true);
  params.set_n(3);
  params.set_logprobs(4);
  params.set_seed(-1);
  params.set_include_stop_str_in_output(true);
  params.set_skip_special_tokens(true);
  params.set_truncate_prompt_tokens(2);
  (*params.mutable_logit_bias())[6] = 2.5;
  const auto made = TakeGeneration(request, kLength);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->n, 3);
  EXPECT_TRUE(made->stream);
  const v1::Sampling& sampling = made->request.sampling();
  EXPECT_TRUE(sampling.has_temperature());
  EXPECT_EQ(sampling.temperature(), 0);
  EXPECT_EQ(sampling.top_p(), 0.5);
  EXPECT_EQ(sampling.top_k(), 7);
  EXPECT_EQ(sampling.min_p(), 0.25);
  EXPECT_EQ(sampling.frequency_penalty(), 1);
  EXPECT_EQ(sampling.presence_penalty(), -1);
  EXPECT_EQ(sampling.repetition_penalty(), 1.5);
  EXPECT_EQ(sampling.seed(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(sampling.logit_bias().at(6), 2.5);
  const v1::Stopping& stopping = made->request.stopping();
  EXPECT_EQ(stopping.max_tokens(), 9);
  EXPECT_EQ(stopping.min_tokens(), 2);
  EXPECT_THAT(stopping.stop(), ElementsAre("x"));
  EXPECT_THAT(stopping.stop_token_ids(), ElementsAre(5));
  EXPECT_TRUE(stopping.ignore_eos());
  EXPECT_TRUE(stopping.include_stop_in_output());
  EXPECT_EQ(made->request.output().logprobs(), 4);
  EXPECT_TRUE(made->request.output().skip_special_tokens());
  EXPECT_EQ(made->request.truncate_prompt_tokens(), 2);
}

TEST(VllmRequestTest, MinusOneTruncatesThePromptToWhatFits) {
  vllm_api::GenerateRequest request = RequestOfIds();
  request.mutable_sampling_params()->set_truncate_prompt_tokens(-1);
  const auto made = TakeGeneration(request, kLength);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->request.truncate_prompt_tokens(), kTruncateToFit);
}

TEST(VllmRequestTest, ConstraintsAreFormsOfTheAnswer) {
  const auto form_of = [](const std::function<void(vllm_api::SamplingParams&)>& change) {
    vllm_api::GenerateRequest message;
    change(*message.mutable_sampling_params());
    const auto made = TakeGeneration(message, kLength);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? made->request.structured() : v1::StructuredOutput();
  };
  EXPECT_EQ(form_of([](auto& p) { p.set_json_schema("{}"); }).json_schema(), "{}");
  EXPECT_EQ(form_of([](auto& p) { p.set_regex("a*"); }).regex(), "a*");
  EXPECT_TRUE(form_of([](auto& p) { p.set_json_object(true); }).json_object());
  EXPECT_THAT(form_of([](auto& p) { p.mutable_choice()->add_choices("b"); }).choice().texts(),
              ElementsAre("b"));
  // A choice without texts is refused with the request, as it has none.
  EXPECT_TRUE(form_of([](auto& p) { p.mutable_choice(); }).has_choice());
  EXPECT_EQ(form_of([](auto& p) { p.set_json_object(false); }).form_case(),
            v1::StructuredOutput::FORM_NOT_SET);
}

TEST(VllmRequestTest, WhatIsNotServedIsRefusedByName) {
  using Change = std::function<void(vllm_api::GenerateRequest&, vllm_api::SamplingParams&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"sampling_params.grammar", [](auto&, auto& p) { p.set_grammar("root ::= 1"); }},
      {"sampling_params.structural_tag", [](auto&, auto& p) { p.set_structural_tag("{}"); }},
      {"mm_inputs", [](auto& r, auto&) { r.mutable_mm_inputs(); }},
      {"extra_mm_inputs", [](auto& r, auto&) { r.add_extra_mm_inputs(); }},
      {"media_refs", [](auto& r, auto&) { r.mutable_media_refs(); }},
      {"kv_transfer_params", [](auto& r, auto&) { r.mutable_kv_transfer_params(); }},
      {"kv_transfer_params_json", [](auto& r, auto&) { r.set_kv_transfer_params_json("{}"); }},
      {"data_parallel_rank", [](auto& r, auto&) { r.set_data_parallel_rank(1); }},
      {"sampling_params.n", [](auto&, auto& p) { p.set_n(kMaxChoices + 1); }},
      {"sampling_params.max_tokens", [](auto&, auto& p) { p.set_max_tokens(kLength + 1); }},
      {"sampling_params.logprobs", [](auto&, auto& p) { p.set_logprobs(-1); }},
      {"sampling_params.prompt_logprobs", [](auto&, auto& p) { p.set_prompt_logprobs(-1); }},
      {"sampling_params.prompt_logprobs",
       [](auto& r, auto& p) {
         r.set_stream(true);
         p.set_prompt_logprobs(1);
       }},
      {"sampling_params.truncate_prompt_tokens",
       [](auto&, auto& p) { p.set_truncate_prompt_tokens(-2); }},
      {"sampling_params.logit_bias", [](auto&, auto& p) { (*p.mutable_logit_bias())[-1] = 1; }},
      {"text",
       [](auto& r, auto& p) {
         r.set_text(std::string(size_t{64} << 10, 'a'));
         p.set_n(2);
       }},
  };
  for (const auto& [field, change] : changes) {
    vllm_api::GenerateRequest request = RequestOfIds();
    change(request, *request.mutable_sampling_params());
    const auto made = TakeGeneration(request, kLength);
    ASSERT_FALSE(made.ok()) << field;
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), testing::StartsWith(field + ": "));
  }
}

std::string PackedTokens(int field, bool with_logprobs) {
  std::string out;
  for (const TokenId id : {5, 300}) {
    GeneratedToken token;
    token.id = id;
    if (with_logprobs) {
      token.logprob = -0.5F;
      token.rank = 2;
      token.top = {{7, -0.25F}, {id, -0.5F}};
    }
    PackToken(field, token, &out);
  }
  return out;
}

TEST(VllmAnswerTest, AChunkHasNewIdsAndTheCountSoFar) {
  VllmCounts counts{.index = 1, .prompt_tokens = 4, .completion_tokens = 10};
  PackedBytes ids;
  vllm_api::GenerateResponse response;
  ASSERT_TRUE(response.ParseFromString(
      PackChunk(PackedTokens(v1::Delta::kTokensFieldNumber, /*with_logprobs=*/true), counts, ids)));
  const vllm_api::GenerateStreamChunk& chunk = response.chunk();
  EXPECT_THAT(chunk.token_ids(), ElementsAre(5, 300));
  EXPECT_EQ(chunk.index(), 1);
  EXPECT_EQ(chunk.prompt_tokens(), 4);
  EXPECT_EQ(chunk.completion_tokens(), 12);
  EXPECT_THAT(chunk.output_logprobs().token_logprobs(), ElementsAre(-0.5F, -0.5F));
  EXPECT_THAT(chunk.output_logprobs().token_ids(), ElementsAre(5, 300));
  ASSERT_EQ(chunk.output_logprobs().top_logprobs_size(), 2);
  EXPECT_THAT(chunk.output_logprobs().top_logprobs(1).token_ids(), ElementsAre(7, 300));
  EXPECT_THAT(chunk.output_logprobs().top_logprobs(1).values(), ElementsAre(-0.25F, -0.5F));

  v1::Finished finished;
  finished.set_reason(v1::FINISH_REASON_STOP_STRING);
  finished.set_stop_string("x");
  finished.mutable_usage()->set_completion_tokens(12);
  ASSERT_TRUE(response.ParseFromString(Joined(PackComplete(finished, 1, ids))));
  EXPECT_THAT(response.complete().output_ids(), ElementsAre(5, 300));
  EXPECT_EQ(response.complete().finish_reason(), "stop");
  EXPECT_EQ(response.complete().matched_stop_str(), "x");
  EXPECT_EQ(response.complete().completion_tokens(), 12);
  EXPECT_EQ(response.complete().index(), 1);
}

TEST(VllmAnswerTest, AWholeAnswerIsNotMuchLongerThanOurs) {
  for (const bool with_logprobs : {false, true}) {
    std::string packed;
    for (int i = 0; i < 1000; ++i) {
      packed += PackedTokens(v1::GenerateResponse::kTokensFieldNumber, with_logprobs);
    }
    v1::GenerateResponse ours;
    ASSERT_TRUE(ours.ParseFromString(packed));
    ours.mutable_prompt_logprobs()->CopyFrom(ours.tokens());
    ours.mutable_prompt_logprobs(0)->clear_logprob();
    ours.mutable_finished()->set_reason(v1::FINISH_REASON_MAX_TOKENS);
    packed = ours.SerializeAsString();
    const std::string bytes = Joined(PackComplete(packed, 0));
    EXPECT_LE(bytes.size(), packed.size() + 512);
    vllm_api::GenerateResponse response;
    ASSERT_TRUE(response.ParseFromString(bytes));
    const vllm_api::GenerateComplete& complete = response.complete();
    EXPECT_EQ(complete.output_ids_size(), 2000);
    EXPECT_EQ(complete.finish_reason(), "length");
    EXPECT_EQ(complete.output_logprobs().token_logprobs_size(), with_logprobs ? 2000 : 0);
    EXPECT_EQ(complete.input_logprobs().token_ids_size(), 2000);
    EXPECT_FALSE(complete.input_logprobs().token_logprobs(0).has_value());
    EXPECT_EQ(complete.input_logprobs().token_logprobs(1).has_value(), with_logprobs);
    EXPECT_EQ(complete.input_logprobs().top_logprobs_size(), 2000);
  }
}

}  // namespace
}  // namespace bulkhead
