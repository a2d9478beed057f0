#include "launcher/flags/config_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "launcher/flags/flag_values.h"
#include "launcher/flags/flags.h"

namespace bulkhead {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class ConfigFileTest : public testing::Test {
 protected:
  ConfigFileTest() : flags_("serve", "[flags]", "Serves.", "bulkhead serve") {
    flags_.Add("--max-num-seqs,--max-batch-size", "N", "sequences (default auto)",
               [this](const std::string& text) -> absl::Status {
                 if (!absl::SimpleAtoi(text, &seqs_))
                   return absl::InvalidArgumentError("no number");
                 return absl::OkStatus();
               });
    flags_.AddSwitch("--strict-config", "strict", [this](bool on) { strict_ = on; });
    flags_.Add("--host", "ADDRESS", "where", TextListValue(&hosts_));
  }
  ~ConfigFileTest() override {
    unsetenv("BULKHEAD_MAX_NUM_SEQS");
    unsetenv("BULKHEAD_MAX_BATCH_SIZE");
  }
  std::string File(const std::string& text) {
    const std::string path = testing::TempDir() + "/bulkhead.toml";
    std::ofstream(path) << text;
    return path;
  }
  absl::StatusOr<bool> Parse(std::vector<std::string> args) { return flags_.Parse(args); }

  Flags flags_;
  int seqs_ = 0;
  bool strict_ = false;
  std::vector<std::string> hosts_;
};

TEST_F(ConfigFileTest, AFileGivesFlagsOfAnySpellingSwitchesAndLists) {
  const std::string path =
      File("# limits\nmax_num_seqs = 4\nstrict-config = true\nhost = [\"a\", \"b\"]\n");
  ASSERT_TRUE(Parse({"--config", path}).ok());
  EXPECT_EQ(seqs_, 4);
  EXPECT_TRUE(strict_);
  EXPECT_THAT(hosts_, ElementsAre("a", "b"));
}

TEST_F(ConfigFileTest, AListForAFlagOfOneValueIsThatValue) {
  EXPECT_THAT(Parse({"--config", File("max_num_seqs = [3, 4]\n")}).status().message(),
              HasSubstr(":1: --max-num-seqs: no number"));
  ASSERT_TRUE(Parse({"--config", File("max_num_seqs = [3]\n")}).ok());
  EXPECT_EQ(seqs_, 3);
}

TEST_F(ConfigFileTest, TheEnvironmentMayUseAnyNameOfAFlag) {
  setenv("BULKHEAD_MAX_BATCH_SIZE", "5", 1);
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(seqs_, 5);
}

TEST_F(ConfigFileTest, AStringOfSeveralLinesIsOneValue) {
  ASSERT_TRUE(Parse({"--config", File("host = '''\na = 1\na = 2\n  # \\n = \"x\"\n''' # all\n"
                                      "max_num_seqs = 4\n")})
                  .ok());
  EXPECT_THAT(hosts_, ElementsAre("a = 1\na = 2\n  # \\n = \"x\"\n"));
  EXPECT_EQ(seqs_, 4);
  ASSERT_TRUE(Parse({"--config", File("host = \"\"\"b\n\nc, d\"\"\"\n")}).ok());
  EXPECT_EQ(hosts_.back(), "b\n\nc, d");
  EXPECT_THAT(Parse({"--config", File("host = '''\na\nmax_num_seqs = 4\n")}).status().message(),
              HasSubstr("literal string: encountered end-of-file"));
  ASSERT_TRUE(Parse({"--config", File("host = \"\"\"\n\\t\"\"\"\n")}).ok());
  EXPECT_EQ(hosts_.back(), "\t");
  EXPECT_THAT(Parse({"--config", File("host = '''\na'''\nhost = 'b'\n")}).status().message(),
              HasSubstr("cannot redefine existing string 'host'"));
  // What looks like one in a comment or in a string is none.
  EXPECT_TRUE(Parse({"--config", File("# a = '''\nmax_num_seqs = 5 # '''\n")}).ok());
  EXPECT_EQ(seqs_, 5);
}

TEST_F(ConfigFileTest, NumbersAreThoseOfToml) {
  ASSERT_TRUE(
      Parse({"--config", File("max-num-seqs = 2_000\nhost = [0.1, -5, 0x10, true]\n")}).ok());
  EXPECT_EQ(seqs_, 2000);
  EXPECT_THAT(hosts_, ElementsAre("0.1", "-5", "16", "true"));
  hosts_.clear();
  ASSERT_TRUE(Parse({"--config", File("host = [ \"Grüße\",\t1e9, -inf,nan, 1_0.5]# inf\n")}).ok());
  EXPECT_THAT(hosts_, ElementsAre("Grüße", "1e9", "-inf", "nan", "10.5"));
  EXPECT_THAT(Parse({"--config", File("max-num-seqs = 18446744073709551615\n")}).status().message(),
              HasSubstr("is not representable in 64 bits); write a text in quotes"));
}

TEST_F(ConfigFileTest, ASwitchAndItsOppositeAreTrueOrFalse) {
  bool caching = true;
  flags_.AddSwitch("--caching,!--no-caching", "caches", &caching);
  ASSERT_TRUE(Parse({"--config", File("no-caching = true\n")}).ok());
  EXPECT_FALSE(caching);
  ASSERT_TRUE(Parse({"--config", File("no-caching = false\n")}).ok());
  EXPECT_TRUE(caching);
  setenv("BULKHEAD_NO_CACHING", "1", 1);
  ASSERT_TRUE(Parse({}).ok());
  unsetenv("BULKHEAD_NO_CACHING");
  EXPECT_FALSE(caching);
  for (const char* value : {"2", "\"\""}) {
    EXPECT_THAT(
        Parse({"--config", File(absl::StrCat("no-caching = ", value, "\n"))}).status().message(),
        HasSubstr("bulkhead.toml:1: --caching: '"));
  }
  EXPECT_THAT(Parse({"--config", File("no-caching = 2\n")}).status().message(),
              HasSubstr("'2' is neither true nor false"));
}

TEST_F(ConfigFileTest, AnyTextThatIsPrintedReadsBack) {
  const std::vector<std::string> texts = {
      "a \"b\" 'c'", "\"",       "C:\\new",   "two\nlines\r\n\ttab", "a # b",
      "Grüße",       "\x01\x7f", "'''\"\"\"", "[x, y], # \\n"};
  std::vector<std::string> args = {"--print-config"};
  for (const std::string& text : texts) args.push_back("--host=" + text);
  ASSERT_TRUE(Parse(args).ok());
  EXPECT_THAT(flags_.Help(), HasSubstr("\"Grüße\""));
  const auto again = ReadConfigFile(File(flags_.Help()));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->size(), 1U);
  EXPECT_EQ(again->front().values, texts);
}

TEST_F(ConfigFileTest, TheCommandLineWinsOverTheEnvironmentAndThatOverTheFile) {
  const std::string path = File("max-batch-size = 4\nhost = \"file\"\n");
  setenv("BULKHEAD_MAX_NUM_SEQS", "5", 1);
  ASSERT_TRUE(Parse({"--config", path}).ok());
  EXPECT_EQ(seqs_, 5);
  ASSERT_TRUE(Parse({"--config", path, "--max-num-seqs", "6"}).ok());
  EXPECT_EQ(seqs_, 6);
  EXPECT_THAT(hosts_, ElementsAre("file", "file"));
}

TEST_F(ConfigFileTest, KeysOfOtherCommandsArePassedOverInTheEnvironmentsFile) {
  const std::string path = File("max-num-seqs = 4\ntarget = \"a:1\"\nsession_len = 5\n");
  EXPECT_THAT(Parse({"--config", path}).status().message(), HasSubstr(":2: unknown key target"));
  setenv("BULKHEAD_CONFIG", path.c_str(), 1);
  EXPECT_TRUE(Parse({}).ok());
  EXPECT_EQ(seqs_, 4);
  File("max-num-seqz = 4\n");
  EXPECT_THAT(Parse({}).status().message(), HasSubstr("did you mean max-num-seqs?"));
  File("config = \"other.toml\"\n");
  EXPECT_THAT(Parse({}).status().message(), HasSubstr("can be given only on the command line"));
  unsetenv("BULKHEAD_CONFIG");
}

TEST_F(ConfigFileTest, PrintConfigTellsEachValueAndItsOriginAsAFileThatReadsBack) {
  const std::string path = File("\nhost = \"a \\\"b\\\"\"\n");
  setenv("BULKHEAD_MAX_NUM_SEQS", "5", 1);
  const auto prints = Parse({"--config", path, "--print-config"});
  ASSERT_TRUE(prints.ok()) << prints.status();
  EXPECT_TRUE(*prints);
  const std::string text = flags_.Help();
  EXPECT_THAT(text, testing::ContainsRegex("max-num-seqs = \"5\" +# BULKHEAD_MAX_NUM_SEQS"));
  EXPECT_THAT(text, testing::ContainsRegex("host = .* +# file " + path + ":2"));
  EXPECT_THAT(text, testing::ContainsRegex("# strict-config +# default"));
  const auto again = ReadConfigFile(File(text));
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(again->size(), 2U);
  EXPECT_EQ(again->front().flag, "--max-num-seqs");
  EXPECT_THAT(again->back().values, ElementsAre("a \"b\""));
}

TEST_F(ConfigFileTest, AValueThatIsNotUtf8IsNotPrintedAndAPathStaysInItsComment) {
  EXPECT_TRUE(Parse({"--host=caf\xe9"}).ok());
  EXPECT_THAT(Parse({"--host=caf\xe9", "--print-config"}).status().message(),
              HasSubstr("--host: \"caf\\xe9\" is not UTF-8"));
  const std::string path = File("host = \"a\"\n"),
                    odd = testing::TempDir() + "/a\nmodel = \xff.toml";
  std::filesystem::rename(path, odd);
  ASSERT_TRUE(Parse({"--config", odd, "--print-config"}).ok());
  EXPECT_THAT(flags_.Help(), HasSubstr("/a\\nmodel = \\xff.toml:1\n"));
  EXPECT_TRUE(ReadConfigFile(File(flags_.Help())).ok());
  std::filesystem::remove(odd);
}

TEST_F(ConfigFileTest, AMisspeltVariableIsWarnedOfWithTheNearest) {
  setenv("BULKHEAD_MAX_NUM_SEQZ", "5", 1);
  setenv("BULKHEAD_NODE_NAME", "a", 1);
  setenv("BULKHEAD_API_KEYS", "a", 1);
  setenv("BULKHEAD_HSOT", "a", 1);
  setenv("BULKHEAD_PORT", "1", 1);  // of another command
  testing::internal::CaptureStderr();
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::AllOf(
          HasSubstr("BULKHEAD_MAX_NUM_SEQZ is not known and is ignored; did you mean "
                    "BULKHEAD_MAX_NUM_SEQS?"),
          HasSubstr("BULKHEAD_API_KEYS is not known and is ignored; did you mean BULKHEAD_API_"
                    "KEY?"),
          HasSubstr("did you mean BULKHEAD_HOST?"), testing::Not(HasSubstr("BULKHEAD_PORT")),
          testing::Not(HasSubstr("NODE_NAME"))));
  for (const char* name : {"MAX_NUM_SEQZ", "API_KEYS", "HSOT", "PORT"}) {
    unsetenv(absl::StrCat("BULKHEAD_", name).c_str());
  }
  unsetenv("BULKHEAD_NODE_NAME");
}

TEST_F(ConfigFileTest, WhatIsWrongIsNamedWithItsOrigin) {
  EXPECT_THAT(Parse({"--config", "/nowhere.toml"}).status().message(), HasSubstr("/nowhere.toml"));
  EXPECT_THAT(
      Parse({"--config", File("max-num-seq = 4\n")}).status().message(),
      HasSubstr("bulkhead.toml:1: unknown key max-num-seq of 'bulkhead serve'; did you mean "
                "max-num-seqs?"));
  EXPECT_THAT(Parse({"--config", File("max_running_requests = 4\n")}).status().message(),
              HasSubstr("key max-running-requests of 'bulkhead serve': write max-num-seqs"));
  EXPECT_THAT(Parse({"--config", File("[serve]\nhost = \"a\"\n")}).status().message(),
              HasSubstr("sections are not supported"));
  EXPECT_THAT(Parse({"--config", File("max-num-seqs = \"many\"\n")}).status().message(),
              HasSubstr("bulkhead.toml:1: --max-num-seqs: no number"));
  EXPECT_THAT(
      Parse({"--config", File("# model\nhost = org/name # x\n")}).status().message(),
      HasSubstr("bulkhead.toml:2: 'host = org/name # x' is not TOML (value: could not determine "
                "value type); write a text in quotes, and each key once"));
  EXPECT_THAT(Parse({"--config", File("host = 1979-05-27\n")}).status().message(),
              HasSubstr("bulkhead.toml:1: 'host' is not a flag's value; write a text in quotes"));
  EXPECT_THAT(
      Parse({"--config", File("max-num-seqs = 4\n# a = b\nmax_num_seqs = 5\n")}).status().message(),
      HasSubstr("' is given twice, with - and with _; write several values as a list"));
  EXPECT_THAT(
      Parse({"--config", File("max-num-seqs = 3\nmax-batch-size = 4\n"), "--max-num-seqs", "5"})
          .status()
          .message(),
      HasSubstr("bulkhead.toml:2: 'max-batch-size' is another name of 'max-num-seqs' in line 1"));
  EXPECT_THAT(Parse({"--config", File("max-num-seqs = []\n")}).status().message(),
              HasSubstr("bulkhead.toml:1: 'max-num-seqs' is not a flag's value"));
  EXPECT_THAT(Parse({"--config", File("config = \"x\"\n")}).status().message(),
              HasSubstr("bulkhead.toml:1: 'config' can be given only on the command line"));
  EXPECT_THAT(Parse({"--config", File("\"\" = 3\n")}).status().message(),
              HasSubstr("bulkhead.toml:1: the key is empty"));
  EXPECT_THAT(std::string(Parse({"--config", File("a = [1]\n")}).status().message()),
              EndsWith("unknown key a of 'bulkhead serve'"));
  setenv("BULKHEAD_MAX_NUM_SEQS", "few", 1);
  EXPECT_EQ(Parse({}).status().message(), "BULKHEAD_MAX_NUM_SEQS: --max-num-seqs: no number");
}

TEST_F(ConfigFileTest, AFileOfMoreThan64KiBIsRefusedHoweverDeepItIs) {
  std::string deep;
  for (int i = 0; i < 300000; ++i) deep += "a.";
  EXPECT_THAT(Parse({"--config", File(deep + "a = 1\n")}).status().message(),
              HasSubstr("bulkhead.toml is larger than 64.0 KiB, which is the limit"));
  EXPECT_THAT(Parse({"--config", "/dev/zero"}).status().message(),
              HasSubstr("/dev/zero is larger than 64.0 KiB"));
  const std::string most = "max-num-seqs = 4\n" + std::string((64 << 10) - 18, '#') + "\n";
  EXPECT_TRUE(Parse({"--config", File(most)}).ok());
  EXPECT_EQ(seqs_, 4);
  EXPECT_FALSE(Parse({"--config", File(most + "#")}).ok());
}

}  // namespace
}  // namespace bulkhead
