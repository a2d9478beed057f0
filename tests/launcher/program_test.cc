// The built program as seen by a shell: exit codes, standard output, the last line of standard
// error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "bulkhead/v1/generation.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "tests/launcher/local_server.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(ProgramTest, BadFlagsEndWithTwo) {
  const Ended nothing = Run({});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.out, HasSubstr("Commands:"));
  EXPECT_THAT(nothing.err, HasSubstr("no command given"));
  ExpectFailure(Run({"sevre"}), 2, "serve");
  ExpectFailure(Run({"serve", "--model", dir_, "--max-num-seq", "4"}), 2, "--max-num-seqs");
  ExpectFailure(Run({"serve", "--model", dir_, "--max-num-seqs", "-4"}), 2, "--max-num-seqs");
  ExpectFailure(Run({"serve", "--model", dir_, "--host", "0.0.0.0"}), 2, "--insecure");
  ExpectFailure(Run({"generate", "--prompts", dir_ + "/no-such-file"}), 2, "no-such-file");
}

TEST_F(ProgramTest, ADefaultLengthBeyondTheModelsEndsWithTwo) {
  const std::string model = absl::StrCat(BH_TEST_DATA, "/models/llama3_gqa_bf16");
  for (const char* command : {"plan", "serve"}) {
    ExpectFailure(Run({command, "--model", model, "--default-max-tokens", "1000000",
                       "--device-memory", "1GiB"}),
                  2, "--default-max-tokens: 1000000 is more than max_model_len ");
  }
}

TEST_F(ProgramTest, TooFewOpenFilesEndWithFive) {
  FILE* const shell = popen("ulimit -n 16; exec " BH_PROGRAM " serve --model m 2>&1", "r");
  ASSERT_NE(shell, nullptr);
  char line[200] = "";
  EXPECT_NE(std::fgets(line, sizeof(line), shell), nullptr);
  EXPECT_THAT(line, HasSubstr("the limit of open files is 16"));
  EXPECT_EQ(WEXITSTATUS(pclose(shell)), 5);
}

TEST_F(ProgramTest, HelpAndVersionEndWithZero) {
  const Ended version = Run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, MatchesRegex("bulkhead [0-9.]+( \\([0-9a-f]+\\))?\n.*"));
  const Ended help = Run({"serve", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--max-num-seqs"));
  EXPECT_EQ(help.err, "");
}

TEST_F(ProgramTest, OutputThatIsLostEndsWithOneAndSaysSo) {
  out_ = "/dev/full";
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"bench", "definitions"}, {"serve", "--help"}}) {
    ExpectFailure(Run(args), 1, "standard output");
  }
}

TEST_F(ProgramTest, ADirectoryIsNoStandardInput) {
  in_ = dir_;
  ExpectFailure(Run({"generate"}), 2, "standard input");
  ExpectFailure(Run({"generate", "--prompts", "-"}), 2, "standard input");
  ExpectFailure(Run({"tokenize", "--model", absl::StrCat(BH_TEST_DATA, "/tokenizers/gpt2")}), 2,
                "standard input");
}

TEST_F(ProgramTest, APromptThatNeverEndsIsRefused) {
  in_ = "/dev/zero";
  ExpectFailure(Run({"generate"}), 2, "standard input is larger than");
}

TEST_F(ProgramTest, ADirectoryIsNoFileToRead) {
  ExpectFailure(Run({"doctor", "--report", dir_}), 2, dir_ + " is a directory");
  ExpectFailure(Run({"bench", "simulate", "--measured", dir_}), 2, dir_ + " is a directory");
  ExpectFailure(Run({"bench", "verify", "--model",
                     absl::StrCat(BH_TEST_DATA, "/models/llama3_gqa_bf16"), "--against", dir_}),
                2, dir_ + " is a directory");
}

TEST_F(ProgramTest, VerifyLeavesNoFileWhenItIsEnded) {
  const std::string folder = dir_ + "/tmp";
  std::filesystem::create_directory(folder);
  setenv("TMPDIR", folder.c_str(), /*overwrite=*/1);
  const pid_t pid =
      Start({"bench", "verify", "--model", absl::StrCat(BH_TEST_DATA, "/models/llama3_gqa_bf16"),
             "--tp", "1", "--num-prompts", "10000", "--input-len", "32", "--output-len", "64"});
  unsetenv("TMPDIR");
  // Not any file: Python tries whether it can write there, with a file that it removes again.
  const auto has_answers = [&folder] {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("bulkhead-verify-")) return true;
    }
    return false;
  };
  while (!has_answers() && waitpid(pid, nullptr, WNOHANG) == 0) std::this_thread::yield();
  ASSERT_TRUE(has_answers()) << Read("err");
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  EXPECT_EQ(Wait(pid).exit_code, 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST_F(ProgramTest, AModelThatIsNotThereEndsWithThree) {
  const std::string missing = dir_ + "/nothing-here";
  ExpectFailure(Run({"serve", "--model", missing, "--port", "0"}), 3, "nothing-here");
  ExpectFailure(Run({"tokenize", "--model", missing}), 3, "nothing-here");
  ExpectFailure(Run({"run", "--model", missing, "--prompts", Write("p", "{\"prompt\": \"x\"}\n")}),
                3, "nothing-here");
  ExpectFailure(Run({"serve", "--model", "no-org/no-name"}), 3, "hf download no-org/no-name");
}

TEST_F(ProgramTest, NobodyAtTheTargetEndsWithOne) {
  ExpectFailure(Run({"generate", "--target", "127.0.0.1:1", "hello"}), 1, "127.0.0.1:1");
  ExpectFailure(Run({"drain", "--target", "127.0.0.1:1"}), 1, "127.0.0.1:1");
}

TEST_F(ProgramTest, AHostWithoutAnAddressIsNamed) {
  ExpectFailure(Run({"limits", "--target", "no.such.host.invalid:1"}), 1,
                "the host of no.such.host.invalid:1 is not known (");
}

TEST_F(ProgramTest, AnIdThatTheTokenizerDoesNotHaveIsRefused) {
  const Ended ended = Run({"tokenize", "--model", absl::StrCat(BH_TEST_DATA, "/tokenizers/gpt2")},
                          "{\"ids\": [999999999]}\n");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("999999999 is not an id of the tokenizer"));
}

TEST_F(ProgramTest, AnUnknownKeyOfALineToTokenizeIsNamed) {
  const Ended ended = Run({"tokenize", "--model", absl::StrCat(BH_TEST_DATA, "/tokenizers/gpt2")},
                          "{\"text\": \"a\", \"add_special_token\": false}\n"
                          "{\"ids\": [1], \"add_special_tokens\": false}\n"
                          "{\"ids\": [1], \"skip_special_tokens\": false}\n");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("unknown key add_special_token beside"),
                               HasSubstr("unknown key add_special_tokens beside")));
  EXPECT_THAT(ended.err, HasSubstr("2 of 3 lines"));
}

TEST_F(ProgramTest, AFileThatCannotBeWrittenIsRefusedBeforeTheModelIsLoaded) {
  const Ended ended =
      Run({"run", "--model", absl::StrCat(BH_TEST_DATA, "/models/llama3_gqa_bf16"), "--prompts",
           Write("p", "{\"prompt_token_ids\": [1]}\n"), "--logits", "/nonexistent/x"});
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--logits /nonexistent/x"), Not(HasSubstr("KV cache"))));
}

TEST_F(ProgramTest, AWrongTemplateOrParserIsRefusedWithoutHttp) {
  const std::string model = absl::StrCat(BH_TEST_DATA, "/../../examples/models/sample");
  for (const auto& [flag, value] :
       {std::pair("--chat-template", "/nonexistent"), {"--tool-call-parser", "foo"}}) {
    const Ended ended =
        Run({"serve", "--model", model, "--port", "0", "--max-model-len", "64", flag, value});
    EXPECT_EQ(ended.exit_code, 2) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(value));
  }
}

TEST_F(ProgramTest, NoPromptsAreNoFailure) {
  EXPECT_EQ(Run({"generate", "--prompts", "-"}, "\n\n").exit_code, 0);
}

TEST_F(ProgramTest, EveryPromptOfAFailedConnectionIsAnswered) {
  const Ended ended = Run({"generate", "--target", "127.0.0.1:1", "--json", "--prompts", "-"},
                          "{\"prompt\": \"a\"}\nnonsense\n");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, MatchesRegex("\\{\"index\":0,.*\"UNAVAILABLE\".*\n\\{\"index\":1,.*\n"));
}

// A server that echoes the prompt or, for the prompt "hang", never answers.
class EchoService : public v1::Generation::Service {
 public:
  absl::Notification hangs;
  absl::Notification was_cancelled;

  grpc::Status GenerateStream(grpc::ServerContext* context, const v1::GenerateRequest* request,
                              grpc::ServerWriter<v1::GenerateEvent>* writer) override {
    v1::GenerateEvent event;
    if (request->text() == "hang") {
      hangs.Notify();
      while (!context->IsCancelled()) std::this_thread::yield();
      was_cancelled.Notify();
      return grpc::Status::CANCELLED;
    }
    event.mutable_accepted()->set_seed(9);
    writer->Write(event);
    event.mutable_delta()->set_text(request->text());
    event.mutable_delta()->add_tokens()->set_id(3);
    writer->Write(event);
    event.mutable_finished()->set_reason(v1::FINISH_REASON_EOS);
    writer->Write(event);
    return grpc::Status::OK;
  }
};

// Has one rank and nothing to do, or a request that its drain does not wait for.
class IdleControl : public v1::Control::Service {
 public:
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo*) override {
    return grpc::Status::OK;
  }
  grpc::Status GetModelInfo(grpc::ServerContext*, const v1::GetModelInfoRequest*,
                            v1::ModelInfo*) override {
    return grpc::Status::OK;
  }
  grpc::Status GetRankTable(grpc::ServerContext*, const v1::GetRankTableRequest*,
                            v1::RankTable* table) override {
    table->add_ranks();
    table->set_binding_rank(binding_rank);
    return grpc::Status::OK;
  }
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*,
                       v1::LoadInfo* load) override {
    if (has_ended) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone");
    if (drains) {
      load->set_draining(true);
      load->set_num_requests_running(2);
      if (!was_seen.HasBeenNotified()) was_seen.Notify();
    }
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    drains = is_lost.load();
    if (is_lost) was_seen.WaitForNotification();
    has_ended = true;
    response->set_num_requests_running(2);
    response->set_num_requests_finished(request->wait() ? 1 : 0);
    response->set_num_requests_cut(request->wait() ? 1 : 0);
    return is_lost ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "gone") : grpc::Status::OK;
  }

  uint32_t binding_rank = 0;
  std::atomic<bool> is_lost{false};  // while it drains
  std::atomic<bool> drains{false};
  std::atomic<bool> has_ended{false};
  absl::Notification was_seen;  // that it drains
  grpc::Status SetLimits(grpc::ServerContext*, const v1::SetLimitsRequest*,
                         v1::SetLimitsResponse*) override {
    return grpc::Status::OK;
  }
};

class ServedProgramTest : public ProgramTest {
 protected:
  EchoService service_;
  IdleControl control_;
  LocalServer server_{{&service_, &control_}};
  const std::string target_ = server_.target();
};

TEST_F(ServedProgramTest, APromptComesAsAnArgumentOrFromStandardInput) {
  EXPECT_EQ(Run({"generate", "--target", target_, "hello there"}).out, "hello there\n");
  EXPECT_EQ(Run({"generate", "--target", target_}, "from a pipe\n").out, "from a pipe\n");
  EXPECT_EQ(Run({"generate", "--target", target_, "--json", "a"}).out,
            "{\"index\":0,\"prompt_token_ids\":[],\"token_ids\":[3],\"text\":\"a\",\"finish_"
            "reason\":\"stop\",\"seed\":9}\n");
}

TEST_F(ServedProgramTest, ABadLineFailsAloneAndEndsWithOne) {
  const Ended ended =
      Run({"generate", "--target", target_, "--json", "--prompts", "-", "--concurrency", "4"},
          "{\"prompt\": \"a\"}\n{\"prompt\": 1}\n{\"prompt\": \"c\"}\n");
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("\"text\":\"a\""), HasSubstr("\"INVALID_ARGUMENT\""),
                               HasSubstr("\"text\":\"c\"")));
  EXPECT_THAT(ended.err, HasSubstr("1 of 3 prompts failed"));
}

TEST_F(ServedProgramTest, ALostTableEndsWithOne) {
  EXPECT_THAT(Run({"limits", "--target", target_}).out, HasSubstr("max_num_seqs"));
  EXPECT_THAT(Run({"doctor", "--target", target_}).out, HasSubstr("no memory problem"));
  out_ = "/dev/full";
  ExpectFailure(Run({"limits", "--target", target_}), 1, "standard output");
  ExpectFailure(Run({"doctor", "--target", target_}), 1, "standard output");
}

TEST_F(ServedProgramTest, ADrainTellsHowManyFinishedAndHowManyWereCut) {
  const Ended ended = Run({"drain", "--target", target_, "--timeout", "1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("draining: 2 running, 0 waiting\n"),
                               HasSubstr("drained: 1 finished, 1 cut by the drain timeout\n"),
                               HasSubstr(" has ended\n")));
}

TEST_F(ServedProgramTest, ADrainOfAServerThatIsLostFailsAndTellsOfRequestsThatWereLeft) {
  control_.is_lost = true;
  const Ended ended = Run({"drain", "--target", target_});
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("did not stop cleanly"),
                               HasSubstr("2 running and 0 waiting were left")));
  EXPECT_EQ(ended.out, "draining: 2 running, 0 waiting\n");
}

TEST_F(ServedProgramTest, ADrainThatIsNotWaitedForTellsWhatIsRunning) {
  const Ended ended = Run({"drain", "--target", target_, "--no-wait"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "draining: 2 running, 0 waiting\n");
}

TEST_F(ServedProgramTest, ABindingRankThatIsNotInTheTableIsNoIndex) {
  for (const uint32_t rank : {1U, 0x80000000U, 0xFFFFFFFFU}) {
    control_.binding_rank = rank;
    ExpectFailure(Run({"doctor", "--target", target_}), 1, "lacks its binding rank");
  }
}

TEST_F(ServedProgramTest, AnInterruptEndsAWatchWithAVerdict) {
  const pid_t pid = Start({"doctor", "--target", target_, "--watch", "1000s"});
  while (Read("out").find("seconds") == std::string::npos) std::this_thread::yield();
  ASSERT_EQ(kill(pid, SIGINT), 0);
  const Ended ended = Wait(pid);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("0 of the 5 samples"), HasSubstr("KV blocks: ")));
}

TEST_F(ServedProgramTest, AnInterruptCancelsAtTheServer) {
  const pid_t pid = Start({"generate", "--target", target_, "hang"});
  service_.hangs.WaitForNotification();
  ASSERT_EQ(kill(pid, SIGINT), 0);
  service_.was_cancelled.WaitForNotification();
  const Ended ended = Wait(pid);
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_THAT(ended.err, HasSubstr("CANCELLED"));
}

}  // namespace
}  // namespace bulkhead
