// The flags of serve and plan for ports and clients' memory.
#include "launcher/flags/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ServeOptionsTest, HostMemoryThatIsNoneIsRefusedWithTheLeastAndARemedy) {
  for (const char* command : {"serve", "plan"}) {
    for (const char* value : {"0", "-5", "abc", "10EiB", "9e30", "1 GiB "}) {
      const std::string refusal = Refusal({command, "m", "--host-memory", value});
      EXPECT_THAT(refusal, HasSubstr(absl::StrCat("--host-memory: '", value, "'")));
      EXPECT_THAT(refusal, HasSubstr(absl::StrCat("at least ", kMinHostMiB, "MiB")));
      EXPECT_THAT(refusal, HasSubstr("leave the flag out"));
    }
  }
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--host-memory", "auto"})).host_memory, std::nullopt);
  // The plan reports that this is too little.
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--host-memory", "1"})).host_memory, 1);
}

TEST(ServeOptionsTest, APortThatIsNoneOrTakenIsRefusedWithTheLimitsAndARemedy) {
  for (const char* value : {"99999", "-1", "65536", "http"}) {
    EXPECT_THAT(Refusal(Serve({"--control-port", value})),
                AllOf(HasSubstr(absl::StrCat("--control-port: '", value, "'")),
                      HasSubstr("from 0 to 65535"), HasSubstr("0 takes any free one")));
  }
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "::"}) {
    EXPECT_THAT(
        Refusal(Serve({"--host", host, "--insecure", "--port", "7", "--control-port", "7"})),
        AllOf(HasSubstr("--control-port: port 7 is taken by --port"), HasSubstr("1 to 65535"),
              HasSubstr("or 0 for any free one")));
  }
}

TEST(ServeOptionsTest, APortIsGivenOnce) {
  EXPECT_THAT(Refusal(Serve({"--port", "7", "--http-port", "7"})),
              HasSubstr("--http-port: port 7 is taken by --port"));
  EXPECT_THAT(Refusal(Serve({"--http-port", "7", "--metrics-port", "7"})),
              HasSubstr("--metrics-port: port 7 is taken by --http-port"));
  Parsed<ServeOptions>(Serve({"--port", "0", "--http-port", "0", "--metrics-port", "0"}));
}

TEST(ServeOptionsTest, OriginsAreAListOrAJsonList) {
  const auto origins = [](const char* list) {
    return Parsed<ServeOptions>(Serve({"--allowed-origins", list})).security.allowed_origins;
  };
  EXPECT_THAT(origins("https://A.example, http://localhost:3000"),
              ElementsAre("https://a.example", "http://localhost:3000"));
  EXPECT_THAT(origins(R"(["https://a.example"])"), ElementsAre("https://a.example"));
  EXPECT_THAT(origins(R"(["*"])"), ElementsAre("*"));
  EXPECT_THAT(origins("*"), ElementsAre("*"));
  const char* const b = "https://b.example";
  EXPECT_THAT(Parsed<ServeOptions>(Serve({"--allowed-origins", "*", "--allowed-origins", b}))
                  .security.allowed_origins,
              ElementsAre("*", b));
  EXPECT_TRUE(Parsed<ServeOptions>(Serve({})).security.allowed_origins.empty());
  for (const char* wrong : {"a.example", "https://", "https://a/", "https://a b", "null",
                            "https://*.a", "[1]", "https://a\r\nX: y"}) {
    EXPECT_THAT(Refusal(Serve({"--allowed-origins", wrong})),
                AllOf(HasSubstr("--allowed-origins"), HasSubstr("SCHEME://HOST[:PORT]")))
        << wrong;
  }
  std::string many;
  for (int i = 0; i < 65; ++i) absl::StrAppend(&many, "http://a:", i, ",");
  EXPECT_THAT(Refusal(Serve({"--allowed-origins", many})),
              HasSubstr("65 origins are more than 64"));
}

TEST(ServeOptionsTest, AMissingValueIsNotTheNextFlag) {
  EXPECT_THAT(Refusal({"serve", "--model", "--startup-timeout", "5"}),
              HasSubstr("--model: the value is missing before --startup-timeout"));
}

TEST(ServeOptionsTest, AnAnswersDefaultLengthIsWithinTheLimit) {
  EXPECT_THAT(Refusal(Serve({"--default-max-tokens", "300", "--max-model-len", "200"})),
              HasSubstr("--default-max-tokens: 300 is more than --max-model-len 200"));
  Parsed<ServeOptions>(Serve({"--max-model-len", "200"}));
}

TEST(ServeOptionsTest, AServerMayHaveNoQueue) {
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--max-num-queued-reqs", "0"})).max_num_queued_reqs, 0);
  EXPECT_THAT(Refusal(Serve({"--max-num-queued-reqs", "-1"})), HasSubstr("at least 0"));
}

TEST(ServeOptionsTest, HostMemoryThatCannotBeIsRefusedWithItsLimits) {
  const std::pair<const char*, const char*> refused[] = {
      {"8EiB", "'8EiB' is not a valid number of bytes: "},
      {"9999999TiB", "'9999999TiB' is not a valid number of bytes: "},
      {"2000TiB", "'2000TiB' is too much: "},
      {"0", "'0' is too little: "},
      {"-1", "'-1' is too little: "}};
  for (const auto& [text, what] : refused) {
    EXPECT_THAT(Refusal(Serve({"--host-memory", text})),
                AllOf(HasSubstr(what), HasSubstr("at least 190MiB"), HasSubstr("at most 1024TiB"),
                      HasSubstr("leave the flag out to use what is left")));
  }
}

TEST(ServeOptionsTest, FlagsOfVllmThatAreNotOursSayWhatIs) {
  EXPECT_THAT(Refusal(Serve({"--api-key", "secret"})), HasSubstr("--api-key-file"));
  EXPECT_THAT(Refusal(Serve({"--pipeline-parallel-size", "2"})),
              HasSubstr("--tensor-parallel-size"));
  EXPECT_THAT(Refusal(Serve({"-m", "DIR"})), HasSubstr("--model"));
}

TEST(ServeOptionsTest, FlagsOfLlamaCppAndSglangSayWhichIsOurs) {
  for (const auto& [theirs, ours] : {std::pair("-c", "--max-model-len"),
                                     {"--ctx-size", "--max-model-len"},
                                     {"-np", "--max-num-seqs"},
                                     {"-ngl", "--device"},
                                     {"-t", "--threads"},
                                     {"-ub", "--max-num-batched-tokens"},
                                     {"-ctk", "--kv-cache-dtype"},
                                     {"-fa", "always on"},
                                     {"--model-path", "--model"},
                                     {"--tp-size", "--tensor-parallel-size"},
                                     {"--mem-fraction-static", "--gpu-memory-utilization"},
                                     {"--context-length", "--max-model-len"},
                                     {"--max-running-requests", "--max-num-seqs"},
                                     {"--chunked_prefill_size", "--max-num-batched-tokens"}}) {
    EXPECT_THAT(Refusal(Serve({theirs, "1"})), AllOf(HasSubstr("unknown flag -"), HasSubstr(ours)));
  }
}

TEST(ServeOptionsTest, HttpIsOffUnlessAPortIsGiven) {
  EXPECT_EQ(Parsed<ServeOptions>(Serve({})).http_port, std::nullopt);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--http-port", "0"})).http_port, 0);
  EXPECT_THAT(Refusal(Serve({"--http-port", "65536"})),
              HasSubstr("--http-port: 65536 is out of range"));
}

TEST(ServeOptionsTest, MetricsHaveNoPortOfTheirOwnUnlessItIsGiven) {
  EXPECT_EQ(Parsed<ServeOptions>(Serve({})).metrics_port, std::nullopt);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--metrics-port", "0"})).metrics_port, 0);
  EXPECT_THAT(Refusal(Serve({"--metrics-port", "-1"})),
              HasSubstr("--metrics-port: -1 is out of range"));
  EXPECT_FALSE(Parsed<ServeOptions>(Serve({})).log_requests);
  EXPECT_TRUE(Parsed<ServeOptions>(Serve({"--log-requests"})).log_requests);
}

TEST(ServeOptionsTest, KvEventsNeedAPrefixCache) {
  EXPECT_FALSE(Parsed<ServeOptions>(Serve({})).enable_kv_cache_events);
  EXPECT_TRUE(Parsed<ServeOptions>(Serve({"--enable-kv-cache-events"})).enable_kv_cache_events);
  EXPECT_THAT(Refusal(Serve({"--enable-kv-cache-events", "--no-enable-prefix-caching"})),
              HasSubstr("leave out --no-enable-prefix-caching"));
}

TEST(ServeOptionsTest, PortsOfTwoAddressesMayBeEqual) {
  const auto options =
      Parsed<ServeOptions>(Serve({"--host", "127.0.0.2", "--port", "7", "--control-port", "7"}));
  EXPECT_EQ(options.port, options.control_port);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--port", "0", "--control-port", "0"})).control_port, 0);
  EXPECT_THAT(Refusal({"plan", "m", "--port", "7", "--control-port", "7"}),
              HasSubstr("--control-port: port 7"));
}

}  // namespace
}  // namespace bulkhead
