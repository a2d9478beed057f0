#include "base/message_json.h"

#include "bulkhead/v1/report.pb.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

v1::Report SmallReport() {
  v1::Report report;
  report.set_kv_tokens(uint64_t{1} << 63);
  report.mutable_binding()->set_term("kv");
  v1::RankRow& rank = *report.add_ranks();
  for (const char* term : {"weights", "kv"}) {
    v1::Arena& arena = *rank.add_arenas();
    arena.set_term(term);
    arena.set_bytes(7);
  }
  v1::Remedy& remedy = *report.add_remedies();
  remedy.add_flags("--max-num-seqs");
  remedy.add_flags("2");
  return report;
}

TEST(MessageJsonTest, NumbersAreNumbersZerosAreWrittenAndWhatIsUnsetIsNot) {
  const ordered_json json = MessageToJson(SmallReport());
  EXPECT_EQ(json["kv_tokens"], uint64_t{1} << 63);
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["max_num_seqs"], 0);
  EXPECT_EQ(json["binding"].dump(), R"({"rank":0,"term":"kv"})");
  EXPECT_FALSE(json.contains("lost"));
  EXPECT_FALSE(json.contains("host"));
  EXPECT_EQ(json.begin().key(), "fits") << "the order of the .proto file";
}

TEST(MessageJsonTest, AListOfNamedNumbersIsAnObjectInItsOrder) {
  const ordered_json json = MessageToJson(SmallReport());
  EXPECT_EQ(json["ranks"][0]["arenas"].dump(), R"({"weights":7,"kv":7})");
  EXPECT_EQ(json["remedies"][0].dump(), R"({"flags":["--max-num-seqs","2"],"text":""})");
  v1::LoadInfo load;
  (*load.mutable_num_errors_by_reason())["QUEUE_FULL"] = 3;
  EXPECT_EQ(MessageToJson(load)["num_errors_by_reason"].dump(), R"({"QUEUE_FULL":3})");
}

TEST(MessageJsonTest, WhatIsWrittenIsReadBack) {
  const v1::Report written = SmallReport();
  v1::Report read;
  EXPECT_EQ(JsonToMessage(MessageToJson(written), &read), "");
  EXPECT_EQ(read.SerializeAsString(), written.SerializeAsString());
}

TEST(MessageJsonTest, TheFirstFieldThatIsWrongIsNamed) {
  struct Case {
    const char* pointer;
    ordered_json value;
    const char* path;
  };
  for (const Case& wrong :
       {Case{"/kv_tokens", -1, "kv_tokens"},
        Case{"/max_num_seqs", uint64_t{1} << 32, "max_num_seqs"}, Case{"/fits", 1, "fits"},
        Case{"/binding", "kv", "binding"}, Case{"/binding/term", 1, "binding.term"},
        Case{"/ranks", 7, "ranks"}, Case{"/ranks/0/rank", "0", "ranks[0].rank"},
        Case{"/ranks/0/arenas/kv", "much", "ranks[0].arenas[1].bytes"},
        Case{"/remedies/0/flags/1", 2, "remedies[0].flags[1]"}}) {
    ordered_json json = MessageToJson(SmallReport());
    json[ordered_json::json_pointer(wrong.pointer)] = wrong.value;
    v1::Report read;
    EXPECT_EQ(JsonToMessage(json, &read), wrong.path);
  }
  ordered_json json = MessageToJson(SmallReport());
  json.erase("fits");
  v1::Report read;
  EXPECT_EQ(JsonToMessage(json, &read), "fits");
}

}  // namespace
}  // namespace bulkhead
