#include "runtime/service/grpc/raw_message.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "bulkhead/v1/generation.pb.h"
#include "google/protobuf/unknown_field_set.h"
#include "google/protobuf/util/message_differencer.h"
#include "runtime/service/refusal.h"
#include "runtime/service/request_builder.h"
#include "runtime/structured/grammar.h"

namespace bulkhead {
namespace {

v1::GenerateRequest Parsed(const std::string& bytes, absl::Status& status) {
  grpc::ByteBuffer buffer = BufferOf(bytes);
  v1::GenerateRequest message;
  status = ParseRequest(buffer, message);
  EXPECT_EQ(buffer.Length(), 0U);
  return message;
}

TEST(RawMessageTest, AWholeRequestParses) {
  v1::GenerateRequest request;
  request.set_text(std::string(100'000, 'x'));
  for (int i = 0; i < 16; ++i) request.mutable_stopping()->add_stop(std::string(256, 's'));
  for (int i = 0; i < 5000; ++i) request.mutable_resume()->add_emitted_token_ids(i);
  for (int i = 0; i < 256; ++i) request.mutable_stopping()->add_stop_token_ids(i);
  request.mutable_sampling()->set_seed(1);
  absl::Status status;
  const v1::GenerateRequest parsed = Parsed(request.SerializeAsString(), status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(parsed, request));
  Parsed("", status);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RawMessageTest, WhatWouldBecomeManyTimesItsSizeIsNotParsed) {
  v1::GenerateRequest strings, unknowns, unknown;
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddVarint(2047, 1);
  for (int i = 0; i < 6145; ++i) {
    strings.mutable_stopping()->add_stop("");
    unknowns.MergeFrom(unknown);
  }
  absl::Status status;
  for (const v1::GenerateRequest& many : {strings, unknowns}) {
    EXPECT_EQ(Parsed(many.SerializeAsString(), status).stopping().stop_size(), 0);
    EXPECT_EQ(ReasonOf(status), "MALFORMED_REQUEST");
    EXPECT_NE(status.message().find("6144"), std::string::npos);
  }
  // A few pass, up to the checks that name them.
  Parsed(unknown.SerializeAsString(), status);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(RawMessageTest, AsManyStringsAsARequestMayHaveParse) {
  v1::GenerateRequest request;
  for (size_t i = 0; i < structured::kMaxChoices; ++i) {
    request.mutable_structured()->mutable_choice()->add_texts(absl::StrCat("choice ", i));
  }
  for (int i = 0; i < kMaxLogitBiases; ++i)
    (*request.mutable_sampling()->mutable_logit_bias())[i] = 1;
  for (int i = 0; i < 64; ++i) request.mutable_sampling()->add_bad_words("w");
  for (int i = 0; i < 16; ++i) request.mutable_stopping()->add_stop("s");
  absl::Status status;
  const v1::GenerateRequest parsed = Parsed(request.SerializeAsString(), status);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(parsed, request));
}

TEST(RawMessageTest, AnythingElseIsRefusedOrParsesAsTheLibraryWould) {
  v1::GenerateRequest request;
  request.set_text("text");
  request.mutable_stopping()->add_stop("a");
  request.mutable_token_ids()->add_ids(300);
  const std::string good = request.SerializeAsString();
  std::mt19937 random(5);
  int parsed_count = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int n = random() % 3; n >= 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    v1::GenerateRequest want;
    const bool parses = want.ParseFromString(bytes);
    absl::Status status;
    const v1::GenerateRequest parsed = Parsed(bytes, status);
    if (!status.ok()) {
      EXPECT_EQ(ReasonOf(status), "MALFORMED_REQUEST");
      continue;
    }
    ASSERT_TRUE(parses);
    EXPECT_EQ(parsed.SerializeAsString(), want.SerializeAsString());
    ++parsed_count;
  }
  EXPECT_GT(parsed_count, 1000);
}

TEST(RawMessageTest, PiecesGoOutJoined) {
  const std::vector<std::string> pieces = {"a", std::string(5000, 'b'), "", std::string(20, 'c')};
  std::string want, got;
  for (const std::string& piece : pieces) want += piece;
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(BufferOf(pieces).Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) {
    got.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace bulkhead
