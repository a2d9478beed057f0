// Requests of clients, and the rules of a model of letters that they are checked by.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {

inline constexpr int kModelLen = 64;
inline const LetterTokenizer kTokenizer;

inline RequestRules Rules() {
  RequestRules rules;
  rules.tokenizer = &kTokenizer;
  rules.served_model_names = {"letters", "alphabet"};
  rules.vocab_size = LetterTokenizer::kVocabSize;
  rules.max_model_len = kModelLen;
  return rules;
}

inline v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

inline v1::GenerateRequest Ids(const std::vector<uint32_t>& ids) {
  v1::GenerateRequest request;
  request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  return request;
}

// The request, which must be valid.
inline Request Built(const v1::GenerateRequest& message, const RequestRules& rules = Rules()) {
  absl::StatusOr<Request> request = BuildRequest(message, rules);
  EXPECT_TRUE(request.ok()) << request.status() << " for " << message.ShortDebugString();
  return request.ok() ? *std::move(request) : Request();
}

// Refused as INVALID_ARGUMENT in `field`, with every text of `says` in the message.
inline void ExpectRefused(const v1::GenerateRequest& message, const std::string& field,
                          const std::vector<std::string>& says,
                          const RequestRules& rules = Rules()) {
  const absl::Status status = BuildRequest(message, rules).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message.ShortDebugString();
  EXPECT_NE(ReasonOf(status), "");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(field));
  for (const std::string& text : says)
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
  google::rpc::BadRequest bad;
  const google::rpc::Status rpc = ToRpcStatus(status);
  for (const auto& detail : rpc.details()) detail.UnpackTo(&bad);
  ASSERT_EQ(bad.field_violations_size(), 1);
  EXPECT_EQ(bad.field_violations(0).field(), field);
}

}  // namespace bulkhead
