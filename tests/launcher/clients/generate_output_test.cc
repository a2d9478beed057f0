#include "launcher/clients/generate_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/exit_code.h"

namespace bulkhead {
namespace {

using Format = GenerateOutput::Format;
using ::testing::HasSubstr;

GenerationResult ResultOf(int64_t index, const std::string& text,
                          absl::Status status = absl::OkStatus()) {
  GenerationResult result;
  result.index = index;
  result.text = text;
  result.tokens.resize(2);
  result.finish_reason = v1::FINISH_REASON_EOS;
  result.status = std::move(status);
  return result;
}

TEST(GenerateOutputTest, OneTextStreamsAsItComes) {
  std::ostringstream out, err;
  GenerateOutput output(Format::kText, {"header"}, &out, &err);
  output.OnText(0, "a");
  EXPECT_EQ(out.str(), "a");
  output.OnText(0, "b");
  EXPECT_EQ(out.str(), "ab");
  output.OnEnd(ResultOf(0, "ab"), absl::Milliseconds(5));
  EXPECT_EQ(out.str(), "ab\n");
  EXPECT_TRUE(output.Outcome().ok());
  EXPECT_THAT(output.Summary(absl::Seconds(2)),
              HasSubstr("1 prompt, 2 tokens in 2.00 s: 1.0 tokens/s, first token after 5 ms"));
}

TEST(GenerateOutputTest, ATerminalIsShownControlCharactersAndDoesNotObeyThem) {
  std::ostringstream out, err, file;
  const std::string text =
      "a\x1b[2J\tb\n\xc2\x9b"
      "31m\xc3\xbc\x7f";
  GenerateOutput terminal(Format::kText, {"header"}, &out, &err, /*to_terminal=*/true);
  terminal.OnText(0, text);
  EXPECT_EQ(out.str(),
            "a\\x1b[2J\tb\n\\x9b"
            "31m\xc3\xbc\\x7f");
  GenerateOutput plain(Format::kText, {"header"}, &file, &err);
  plain.OnText(0, text);
  EXPECT_EQ(file.str(), text);
  plain.OnEnd(ResultOf(0, text, absl::DataLossError("\x1b[31mred")), std::nullopt);
  EXPECT_EQ(plain.Outcome().message(), "DATA_LOSS: \\x1b[31mred");
}

TEST(GenerateOutputTest, TextsKeepTheOrderOfThePrompts) {
  std::ostringstream out, err;
  GenerateOutput output(Format::kText, {"p0", "p1", "p2"}, &out, &err);
  output.OnText(1, "one");
  output.OnEnd(ResultOf(2, ""), std::nullopt);
  EXPECT_EQ(out.str(), "");
  output.OnText(0, "zero");
  EXPECT_EQ(out.str(), "> p0\nzero");
  output.OnEnd(ResultOf(0, "zero"), std::nullopt);
  EXPECT_EQ(out.str(), "> p0\nzero\n\n> p1\none");
  output.OnText(1, " more");
  output.OnEnd(ResultOf(1, "one more"), std::nullopt);
  EXPECT_EQ(out.str(), "> p0\nzero\n\n> p1\none more\n\n> p2\n\n\n");
}

TEST(GenerateOutputTest, TokensWithoutATextSayWhereTheirIdsAre) {
  std::ostringstream out, err;
  GenerateOutput output(Format::kText, {"p0", "p1"}, &out, &err);
  output.OnEnd(ResultOf(1, ""), std::nullopt);
  output.OnEnd(ResultOf(0, "zero"), std::nullopt);
  EXPECT_EQ(err.str(), "prompt 2: tokens without a text; --json shows their ids\n");
}

TEST(GenerateOutputTest, JsonLinesKeepTheOrderOfThePrompts) {
  std::ostringstream out, err;
  GenerateOutput output(Format::kJson, {"", ""}, &out, &err);
  output.OnText(0, "ignored");
  output.OnEnd(ResultOf(1, "one"), std::nullopt);
  EXPECT_EQ(out.str(), "");
  output.OnEnd(ResultOf(0, "zero"), std::nullopt);
  EXPECT_EQ(out.str(),
            ResultLine(ResultOf(0, "zero")) + "\n" + ResultLine(ResultOf(1, "one")) + "\n");
}

TEST(GenerateOutputTest, FailuresAreCountedAndTheFirstIsNamed) {
  std::ostringstream out, err;
  GenerateOutput output(Format::kText, {"", "", ""}, &out, &err);
  output.OnEnd(ResultOf(2, "", absl::CancelledError("second")), std::nullopt);
  output.OnEnd(ResultOf(0, "fine"), std::nullopt);
  output.OnEnd(ResultOf(1, "", absl::UnavailableError("rank 1 was lost")), std::nullopt);
  EXPECT_EQ(output.Outcome().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(output.Outcome().message(),
            "2 of 3 prompts failed; prompt 2: UNAVAILABLE: rank 1 was lost");
  EXPECT_EQ(ExitCodeOf(output.Outcome()), ExitCode::kClientError);
  EXPECT_EQ(err.str(), "prompt 2: UNAVAILABLE: rank 1 was lost\nprompt 3: CANCELLED: second\n");
}

}  // namespace
}  // namespace bulkhead
