#include "launcher/flags/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(OptionsTest, ServeHasTheDocumentedDefaults) {
  const auto options = Parsed<ServeOptions>({"serve", "--model", "m"});
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_EQ(options.host, "127.0.0.1");
  EXPECT_EQ(options.port, 50051);
  EXPECT_FALSE(options.insecure);
  EXPECT_EQ(options.max_num_queued_reqs, std::nullopt);
  EXPECT_EQ(options.host_memory, std::nullopt);
  EXPECT_EQ(options.drain_timeout, absl::Seconds(120));
  EXPECT_EQ(options.engine.step_timeout, std::nullopt);
  EXPECT_EQ(options.engine.limits.max_num_seqs, std::nullopt);
  EXPECT_EQ(options.engine.limits.max_num_batched_tokens, std::nullopt);
  EXPECT_EQ(options.engine.kv_rule.kind, KvRule::Kind::kNone);
  EXPECT_EQ(options.engine.default_max_tokens, 512);
  EXPECT_EQ(options.engine.block_size, 16);
  EXPECT_EQ(options.engine.dtype, std::nullopt);
  EXPECT_EQ(options.engine.threads, std::nullopt);
  EXPECT_EQ(options.engine.limits.max_model_len, std::nullopt);
  EXPECT_EQ(options.engine.admission, Admission::kReserve);
}

TEST(OptionsTest, PrefixCachingIsOnUnlessTurnedOff) {
  const auto enabled = [](const Args& flags) {
    return Parsed<ServeOptions>(Serve(flags)).engine.enable_prefix_caching;
  };
  EXPECT_TRUE(enabled({}));
  EXPECT_TRUE(enabled({"--enable-prefix-caching"}));
  EXPECT_FALSE(enabled({"--enable-prefix-caching=false"}));
  EXPECT_FALSE(enabled({"--no-enable-prefix-caching"}));
  EXPECT_FALSE(enabled({"--no_enable_prefix_caching"}));
}

TEST(OptionsTest, EveryFlagOfServeReachesItsField) {
  const Args flags = absl::StrSplit(
      "--host 0.0.0.0 --insecure --port 0 --served-model-name name,other --device cpu --comm "
      "staged "
      "--all-reduce-dtype bf16 --dtype "
      "bf16 --kv-cache-dtype f16 --threads 3 --max-num-seqs 7 --max-model-len 32K "
      "--max-num-batched-tokens 1k --block-size 64 --kv-cache-bytes 1.5GiB --tensor-parallel-size "
      "2 --strict-config --admission optimistic --scheduling-policy priority --step-timeout "
      "2m --startup-timeout 30 --cpu-isa avx2 --max-num-queued-reqs 9 --drain-timeout 1.5 "
      "--default-max-tokens 5",
      ' ');
  const auto options = Parsed<ServeOptions>(Serve(flags));
  EXPECT_EQ(options.host, "0.0.0.0");
  EXPECT_EQ(options.port, 0);
  EXPECT_THAT(options.served_model_names, ElementsAre("name", "other"));
  EXPECT_EQ(options.max_num_queued_reqs, 9);
  EXPECT_EQ(options.drain_timeout, absl::Milliseconds(1500));
  const EngineOptions& engine = options.engine;
  EXPECT_EQ(engine.device, DeviceOption::kCpu);
  EXPECT_EQ(engine.comm, CommOption::kStaged);
  EXPECT_EQ(engine.all_reduce_dtype, DType::kBF16);
  EXPECT_EQ(engine.dtype, DType::kBF16);
  EXPECT_EQ(engine.kv_cache_dtype, KvFormat::kF16);
  EXPECT_EQ(engine.threads, 3);
  EXPECT_EQ(engine.limits.max_num_seqs, 7);
  EXPECT_EQ(engine.limits.max_model_len, 32768);
  EXPECT_EQ(engine.limits.max_num_batched_tokens, 1000);
  EXPECT_EQ(engine.block_size, 64);
  EXPECT_EQ(engine.kv_rule.kind, KvRule::Kind::kBytes);
  EXPECT_EQ(engine.kv_rule.count, int64_t{3} << 29);
  EXPECT_EQ(engine.tensor_parallel_size, 2);
  EXPECT_TRUE(engine.strict_config);
  EXPECT_EQ(engine.admission, Admission::kOptimistic);
  EXPECT_EQ(engine.scheduling_policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(engine.step_timeout, absl::Minutes(2));
  EXPECT_EQ(engine.startup_timeout, absl::Seconds(30));
  EXPECT_EQ(engine.cpu_isa, CpuIsa::kAvx2);
  EXPECT_EQ(engine.default_max_tokens, 5);
}

TEST(OptionsTest, AliasesAndUnderscoresNameTheSameFlags) {
  const auto options =
      Parsed<ServeOptions>({"serve", "m", "--tp", "4", "--session_len=4096", "--max-batch-size",
                            "8", "--max_prefill_token_num", "256", "--cache-block-seq-len", "32"});
  EXPECT_EQ(options.engine.model, "m");
  EXPECT_EQ(options.engine.tensor_parallel_size, 4);
  EXPECT_EQ(options.engine.limits.max_model_len, 4096);
  EXPECT_EQ(options.engine.limits.max_num_seqs, 8);
  EXPECT_EQ(options.engine.limits.max_num_batched_tokens, 256);
  EXPECT_EQ(options.engine.block_size, 32);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"-tp", "2"})).engine.tensor_parallel_size, 2);
}

TEST(OptionsTest, TheKvCacheIsQuantisedByEitherName) {
  const auto format = [](const Args& args) {
    return Parsed<ServeOptions>(Serve(args)).engine.kv_cache_dtype;
  };
  EXPECT_EQ(format({"--kv-cache-dtype", "int8"}), KvFormat::kInt8);
  EXPECT_EQ(format({"--kv-cache-dtype", "fp8"}), KvFormat::kFP8);
  EXPECT_EQ(format({"--kv-cache-dtype", "fp8_e4m3"}), KvFormat::kFP8);
  EXPECT_EQ(format({"--kv-cache-dtype", "auto"}), std::nullopt);
  EXPECT_EQ(format({"--quant-policy", "8"}), KvFormat::kInt8);
  EXPECT_EQ(format({"--quant-policy", "4", "--kv-cache-dtype", "int4"}), KvFormat::kInt4);
  EXPECT_EQ(format({"--quant-policy", "0", "--kv-cache-dtype", "f16"}), KvFormat::kF16);
  EXPECT_EQ(format({"--quant-policy", "0"}), std::nullopt);
}

TEST(OptionsTest, UnderscoresInValuesStay) {
  EXPECT_THAT(Parsed<ServeOptions>(Serve({"--served_model_name=a_b"})).served_model_names,
              ElementsAre("a_b"));
}

TEST(OptionsTest, TheLastOfAFlagGivenTwiceWins) {
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--port", "1", "--port", "2"})).port, 2);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--control-port", "3"})).control_port, 3);
}

TEST(OptionsTest, AutoMeansNotGiven) {
  const auto options =
      Parsed<ServeOptions>(Serve({"--dtype", "auto", "--kv-cache-dtype", "auto", "--max-model-len",
                                  "auto", "--threads", "auto"}));
  EXPECT_EQ(options.engine.dtype, std::nullopt);
  EXPECT_EQ(options.engine.kv_cache_dtype, std::nullopt);
  EXPECT_EQ(options.engine.limits.max_model_len, std::nullopt);
  EXPECT_EQ(options.engine.threads, std::nullopt);
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--threads", "0"})).engine.threads, std::nullopt);
}

TEST(OptionsTest, ARuleSizesTheKvCache) {
  const auto rule = [](const Args& args) {
    return Parsed<ServeOptions>(Serve(args)).engine.kv_rule;
  };
  const KvRule share = rule({"--cache-max-entry-count", "0.8"});
  EXPECT_EQ(share.kind, KvRule::Kind::kShareOfFree);
  EXPECT_EQ(share.fraction, 0.8);
  EXPECT_EQ(rule({"--cache-max-entry-count", "1.0"}).kind, KvRule::Kind::kShareOfFree);
  const KvRule blocks = rule({"--cache-max-entry-count", "1"});
  EXPECT_EQ(blocks.kind, KvRule::Kind::kBlocks);
  EXPECT_EQ(blocks.count, 1);
  const KvRule utilization = rule({"--gpu-memory-utilization", "0.9"});
  EXPECT_EQ(utilization.kind, KvRule::Kind::kUtilization);
  EXPECT_EQ(utilization.fraction, 0.9);
}

TEST(OptionsTest, MemoryIsGivenForAllRanksOrRankByRank) {
  const auto one = Parsed<ServeOptions>(Serve({"--device-memory", "4GiB"})).engine;
  EXPECT_EQ(one.device_memory->of_all, int64_t{4} << 30);
  const auto each =
      Parsed<ServeOptions>(Serve({"--device-memory", "0=4GiB,1=2GiB", "--reserve", "1=0,0=1k"}))
          .engine;
  EXPECT_EQ(each.device_memory->of_rank,
            (std::map<int, int64_t>{{0, int64_t{4} << 30}, {1, int64_t{2} << 30}}));
  EXPECT_EQ(each.reserve->of_rank, (std::map<int, int64_t>{{0, 1000}, {1, 0}}));
  EXPECT_EQ(Parsed<ServeOptions>(Serve({"--reserve", "auto"})).engine.reserve, std::nullopt);
}

TEST(OptionsTest, PlanTakesTheFlagsOfServe) {
  const auto plan =
      Parsed<PlanOptions>({"plan", "m", "--tp", "8", "--device-memory", "80GiB",
                           "--max-num-queued-reqs", "5", "--host-memory", "200MiB", "--json"});
  EXPECT_TRUE(plan.json);
  EXPECT_EQ(plan.serve.engine.tensor_parallel_size, 8);
  EXPECT_EQ(plan.serve.max_num_queued_reqs, 5);
  EXPECT_EQ(plan.serve.host_memory, int64_t{200} << 20);
}

struct BadValue {
  Args args;
  std::vector<std::string> says;
};

TEST(OptionsTest, APlanHasNoNodeWithoutARank) {
  EXPECT_THAT(Refusal({"plan", "m", "--tp", "2", "--nodes", "3"}),
              AllOf(HasSubstr("--nodes 3"), HasSubstr("2 ranks")));
  EXPECT_EQ(Parsed<PlanOptions>({"plan", "m", "--tp", "4", "--nodes", "2"}).nodes, 2);
}

TEST(OptionsTest, ABadValueIsRefusedWithFlagValueAndLimit) {
  const std::vector<BadValue> cases = {
      {{"--max-num-seqs", "-4"}, {"--max-num-seqs", "-4", "at least 1"}},
      {{"--max-num-seqs", "0"}, {"--max-num-seqs", "0", "at least 1"}},
      {{"--max-num-seqs", "1T"}, {"--max-num-seqs", "1T", "at most 65536"}},
      {{"--max-num-seqs", "nan"}, {"--max-num-seqs", "'nan'"}},
      {{"--max-num-seqs", "4.5"}, {"--max-num-seqs", "'4.5' is no whole number or size"}},
      {{"--max-num-seqs", "99999999999999999999"}, {"--max-num-seqs", "99999999999999999999"}},
      {{"--max-num-seqs=4x"}, {"--max-num-seqs", "'4x'"}},
      {{"--max-model-len", "many"}, {"--max-model-len", "'many'"}},
      {{"--max-model-len", "1"}, {"--max-model-len", "1", "at least 2"}},
      {{"--session-len", "many"}, {"--max-model-len", "'many'"}},
      {{"--port", "65536"}, {"--port", "65536", "65535"}},
      {{"--port", "-1"}, {"--port", "-1", "from 0 to 65535"}},
      {{"--port", "32KiB"}, {"--port", "'32KiB'", "from 0 to 65535"}},
      {{"--port", " 80"}, {"--port", "' 80'"}},
      {{"--max-num-seqs", " 4"}, {"--max-num-seqs", "' 4'", "space"}},
      {{"--startup-timeout", "0x10"}, {"--startup-timeout", "'0x10'"}},
      {{"--startup-timeout", " 10"}, {"--startup-timeout", "' 10'"}},
      {{"--gpu-memory-utilization", "0x1p-1"}, {"--gpu-memory-utilization", "'0x1p-1'"}},
      {{"--block-size", "24"}, {"--block-size", "24", "power of two"}},
      {{"--block-size", "8"}, {"--block-size", "8", "at least 16"}},
      {{"--block-size", "512"}, {"--block-size", "512", "at most 256"}},
      {{"--kv-cache-bytes", "4PiB"}, {"--kv-cache-bytes", "4PiB"}},
      {{"--device-memory", "0"}, {"--device-memory", "at least 1"}},
      {{"--device-memory", "0=4GiB,0=2GiB"}, {"--device-memory", "rank 0", "twice"}},
      {{"--device-memory", "a=4GiB"}, {"--device-memory", "'a=4GiB'", "RANK=SIZE"}},
      {{"--device-memory", "0=4GiB,"}, {"--device-memory", "RANK=SIZE"}},
      {{"--gpu-memory-utilization", "1.01"}, {"--gpu-memory-utilization", "1.01", "at most 1"}},
      {{"--gpu-memory-utilization", "0"}, {"--gpu-memory-utilization", "more than 0"}},
      {{"--gpu-memory-utilization", "nan"}, {"--gpu-memory-utilization", "nan"}},
      {{"--cache-max-entry-count", "1.5"}, {"--cache-max-entry-count", "1.5", "number of blocks"}},
      {{"--cache-max-entry-count", "0"}, {"--cache-max-entry-count", "at least 1"}},
      {{"--kv-cache-bytes", "1", "--gpu-memory-utilization", "0.5"}, {"give one of them"}},
      {{"--dtype", "int3"}, {"--dtype", "'int3'", "bfloat16"}},
      {{"--kv-cache-dtype", "int3"}, {"--kv-cache-dtype", "'int3'", "int8, int4"}},
      {{"--quant-policy", "2"}, {"--quant-policy", "'2'", "0, 4, 8"}},
      {{"--quant-policy", "8", "--kv-cache-dtype", "bf16"}, {"8 is int8", "bfloat16"}},
      {{"--device", "gpu"}, {"--device", "'gpu'", "cpu"}},
      {{"--admission", ""}, {"--admission", "reserve, optimistic"}},
      {{"--drain-timeout", "0"}, {"--drain-timeout", "more than 0"}},
      {{"--drain-timeout", "nan"}, {"--drain-timeout", "nan"}},
      {{"--drain-timeout", "1e300"}, {"--drain-timeout", "7 days"}},
      {{"--drain-timeout", "soon"}, {"--drain-timeout", "'soon'"}},
      {{"--host", "0.0.0.0"}, {"--host", "0.0.0.0", "--insecure"}},
      {{"--host", "127.evil.example"}, {"--host", "127.evil.example", "--insecure"}},
      {{"--model", "other"}, {"--model", "'m'", "'other'"}},
      {{"other"}, {"'m'", "'other'", "--served-model-name"}},
      {{"--host", "localhost:80"}, {"--host", "'localhost:80' has a port", "--port"}},
      {{"--host", "[::1]:80"}, {"--host", "'[::1]:80' has a port"}},
      {{"--port"}, {"--port"}},
      {{"--served-model-name="}, {"--served-model-name"}},
      {{"--insecure=perhaps"}, {"--insecure", "perhaps"}},
  };
  for (const BadValue& bad : cases) {
    const std::string refusal = Refusal(Serve(bad.args));
    for (const std::string& says : bad.says) EXPECT_THAT(refusal, HasSubstr(says)) << bad.args[0];
  }
}

TEST(OptionsTest, AnEmptyValueDoesNotTakeTheNextFlag) {
  EXPECT_THAT(Refusal({"run", "--model", "m", "--prompts", "p", "--out=", "--ignore-eos"}),
              HasSubstr("--out"));
}

TEST(OptionsTest, AModelIsRequired) {
  EXPECT_THAT(Refusal({"serve"}), HasSubstr("--model"));
  EXPECT_THAT(Refusal({"run", "--prompts", "p"}), HasSubstr("--model"));
  EXPECT_THAT(Refusal({"tokenize"}), HasSubstr("--model"));
  EXPECT_THAT(Refusal({"run", "m"}), HasSubstr("--prompts"));
}

TEST(OptionsTest, LoopbackNeedsNoConsent) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "localhost", "::1"}) {
    EXPECT_EQ(Parsed<ServeOptions>(Serve({"--host", host})).host, host);
  }
}

TEST(OptionsTest, RunTakesEngineAndRequestFlags) {
  const auto options = Parsed<RunOptions>(
      {"run", "--model", "m", "--prompts", "p", "--out", "o", "--logits", "l", "--device", "cpu",
       "--kv-cache-dtype", "f32", "--max-tokens", "32", "--temperature", "0", "--ignore-eos"});
  EXPECT_EQ(options.prompts, "p");
  EXPECT_EQ(options.out, "o");
  EXPECT_EQ(options.logits, "l");
  EXPECT_EQ(options.engine.kv_cache_dtype, KvFormat::kF32);
  EXPECT_EQ(options.request.max_tokens, 32U);
  EXPECT_EQ(options.request.temperature, 0.0F);
  EXPECT_EQ(options.request.ignore_eos, true);
  EXPECT_EQ(options.request.seed, std::nullopt);
}

TEST(OptionsTest, GenerateTakesPromptsAndRequestFlags) {
  const auto options =
      Parsed<GenerateOptions>({"generate", "[one, two]", "--target", "[::1]:7", "--stop", "a,b",
                               "--stop=-c", "--seed", "18446744073709551615", "--priority", "-3",
                               "--top-p", "0.5", "--concurrency", "8", "--json", "--", "--third"});
  EXPECT_THAT(options.prompts, ElementsAre("[one, two]", "--third"));
  EXPECT_EQ(options.target, "[::1]:7");
  EXPECT_THAT(options.request.stop, ElementsAre("a,b", "-c"));
  EXPECT_EQ(options.request.seed, ~uint64_t{0});
  EXPECT_EQ(options.request.priority, -3);
  EXPECT_EQ(options.request.top_p, 0.5F);
  EXPECT_EQ(options.concurrency, 8);
  EXPECT_TRUE(options.json);
  EXPECT_THAT(Parsed<GenerateOptions>({"generate", "- an item", ""}).prompts,
              ElementsAre("- an item", ""));
  EXPECT_EQ(Parsed<GenerateOptions>({"generate", "--prompts", "-"}).prompts_file, "-");
  EXPECT_EQ(Parsed<GenerateOptions>({"generate", "--model", "sql"}).model, "sql");
  EXPECT_EQ(Parsed<ChatOptions>({"chat", "--model", "sql"}).model, "sql");
}

TEST(OptionsTest, ASchemaMayComeThroughAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_EQ(write(ends[1], "{}", 2), 2);
  close(ends[1]);
  const std::string path = absl::StrCat("/dev/fd/", ends[0]);
  EXPECT_EQ(Parsed<GenerateOptions>({"generate", "--json-schema", path}).request.json_schema, "{}");
  close(ends[0]);
}

TEST(OptionsTest, GenerateRefusesWhatNoRequestCanBe) {
  const std::vector<BadValue> cases = {
      {{"--temperature", "-1"}, {"--temperature", "-1", "at least 0"}},
      {{"--temperature", "101"}, {"--temperature", "101", "at most 100"}},
      {{"--temperature", "nan"}, {"--temperature", "nan"}},
      {{"--temperature", "inf"}, {"--temperature", "inf"}},
      {{"--top-p", "0"}, {"--top-p", "more than 0"}},
      {{"--top-p", "1.01"}, {"--top-p", "1.01", "at most 1"}},
      {{"--min-p", "2"}, {"--min-p", "2"}},
      {{"--top-k", "-1"}, {"--top-k", "-1"}},
      {{"--seed", "-1"}, {"--seed", "'-1'"}},
      {{"--seed", "18446744073709551616"}, {"--seed", "18446744073709551616"}},
      {{"--max-tokens", "-1"}, {"--max-tokens", "at least 0"}},
      {{"--logprobs", "21"}, {"--logprobs", "at most 20"}},
      {{"--logprobs", "2"}, {"--logprobs", "printed only with --json"}},
      {{"--target"}, {"--target: the value is missing"}},
      {{"--regex", "a", "--choice", "b"}, {"--choice", "only one constraint"}},
      {{"--json-schema", "/no/such/file"}, {"--json-schema", "/no/such/file"}},
      {{"--json-schema", "{}"}, {"--json-schema: this is JSON; write it to a file"}},
      {{"--repetition-penalty", "0"}, {"--repetition-penalty", "at least 0.01"}},
      {{"--presence-penalty", "2.5"}, {"--presence-penalty", "at most 2"}},
      {{"--logit-bias", "7"}, {"--logit-bias", "'7' is not ID=BIAS"}},
      {{"--logit-bias", "x=1"}, {"--logit-bias", "'x'"}},
      {{"--logit-bias", "7=101"}, {"--logit-bias", "at most 100"}},
      {{"--stop", ""}, {"--stop", "empty"}},
      {{"--target", "nowhere"}, {"--target", "'nowhere'", "HOST:PORT"}},
      {{"--target", "http://a:1"}, {"--target", "'http://a:1'", "leave out http://"}},
      {{"--target", ":1"}, {"--target", "':1'"}},
      {{"--target", "a:0"}, {"--target", "'a:0'"}},
      {{"--concurrency", "0"}, {"--concurrency", "at least 1"}},
      {{"--prompts", "f", "hello"}, {"--prompts", "hello"}},
      {{"--timeout", "-5"}, {"--timeout", "-5"}},
  };
  for (const BadValue& bad : cases) {
    Args args = {"generate"};
    args.insert(args.end(), bad.args.begin(), bad.args.end());
    const std::string refusal = Refusal(args);
    for (const std::string& says : bad.says) EXPECT_THAT(refusal, HasSubstr(says)) << bad.args[0];
  }
}

TEST(OptionsTest, DrainAndTokenize) {
  const auto drain =
      Parsed<DrainOptions>({"drain", "--target", "h:1", "--timeout", "30", "--no-wait"});
  EXPECT_EQ(drain.target, "h:1");
  EXPECT_EQ(drain.timeout, absl::Seconds(30));
  EXPECT_FALSE(drain.wait);
  EXPECT_TRUE(Parsed<DrainOptions>({"drain"}).wait);
  EXPECT_EQ(Parsed<TokenizeOptions>({"tokenize", "--model", "m"}).model, "m");
  EXPECT_THAT(Refusal({"tokenize", "--model", "m", "hello"}),
              HasSubstr("'m' and 'hello'; give one, and the texts on standard input"));
  EXPECT_THAT(Refusal({"drain", "now"}), HasSubstr("'now'"));
}

TEST(OptionsTest, HelpShowsFlagsAliasesDefaultsAndAnExample) {
  for (const char* command : {"serve", "run", "generate", "tokenize", "drain"}) {
    const std::string help = Parsed<PrintText>({command, "--help"}).text;
    EXPECT_THAT(help,
                AllOf(HasSubstr(absl::StrCat("Usage: bulkhead ", command)), HasSubstr("Example:")));
    EXPECT_THAT(help, ::testing::Not(HasSubstr("--cpu-isa")));
  }
  EXPECT_THAT(Parsed<PrintText>({"serve", "-h"}).text,
              AllOf(HasSubstr("--max-batch-size"), HasSubstr("default 50051")));
  // Help takes precedence over missing arguments.
  EXPECT_THAT(Parsed<PrintText>({"serve", "--port", "1", "--help"}).text, HasSubstr("--port"));
}

TEST(OptionsTest, TopHelpListsCommandsAndExitCodes) {
  for (const char* flag : {"--help", "-h", "help"}) {
    EXPECT_THAT(Parsed<PrintText>({flag}).text, AllOf(HasSubstr("serve"), HasSubstr("drain"),
                                                      HasSubstr("Exit codes"), HasSubstr("128+n")));
  }
  EXPECT_EQ(Parsed<PrintText>({"help", "serve"}).text, Parsed<PrintText>({"serve", "--help"}).text);
  const PrintText nothing = Parsed<PrintText>({});
  EXPECT_THAT(nothing.text, HasSubstr("Commands:"));
  EXPECT_EQ(ExitCodeOf(nothing.status), ExitCode::kUsage);
}

}  // namespace
}  // namespace bulkhead
