#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "launcher/clients/chat_printer.h"
#include "launcher/clients/chat_stream.h"
#include "launcher/clients/conversation.h"
#include "launcher/clients/http_call.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Event(const std::string& delta, const std::string& finish = "null") {
  return R"(data: {"choices":[{"index":0,"delta":)" + delta + R"(,"finish_reason":)" + finish +
         "}]}\n\n";
}

TEST(ChatStreamTest, AnAnswerIsTheSameHoweverItsBytesAreSplit) {
  const std::string bytes =
      ": a comment\r\n" + Event(R"({"role":"assistant","reasoning_content":"Hm."})") +
      Event(R"({"content":"Gr\u00fc"})") + Event(R"({"content":"\u00dfe"})", "\"length\"") +
      "data: {\"choices\":[],\"usage\":{}}\r\n\r\ndata: [DONE]\n\n";
  for (size_t size = 1; size <= bytes.size(); ++size) {
    ChatStreamReader reader;
    std::string reasoning, content;
    std::vector<ChatPiece> pieces;
    for (size_t i = 0; i < bytes.size(); i += size) {
      if (i + 1 < bytes.size()) {  // the last byte is a blank line
        EXPECT_FALSE(reader.End().ok());
      }
      ASSERT_TRUE(reader.Append(bytes.substr(i, size), &pieces).ok()) << size;
    }
    for (const ChatPiece& piece : pieces) (piece.is_reasoning ? reasoning : content) += piece.text;
    EXPECT_EQ(reasoning, "Hm.");
    EXPECT_EQ(content, "Gr\u00fc\u00dfe");
    EXPECT_EQ(reader.content(), content);
    EXPECT_EQ(reader.finish_reason(), "length");
    EXPECT_TRUE(reader.End().ok());
  }
}

TEST(ChatStreamTest, AnErrorEventEndsTheAnswerWithItsReason) {
  ChatStreamReader reader;
  std::vector<ChatPiece> pieces;
  const std::string error =
      "data: {\"error\":{\"message\":\"rank 1 is lost\",\"code\":\"RANK_LOST\"}}\n\n";
  const absl::Status status =
      reader.Append(Event(R"({"content":"a"})") + error + Event(R"({"content":"b"})"), &pieces);
  EXPECT_EQ(status.message(), "RANK_LOST: rank 1 is lost");
  EXPECT_EQ(reader.content(), "a");
  EXPECT_EQ(reader.End(), status);
  EXPECT_EQ(reader.Append("data: [DONE]\n\n", &pieces), status);
}

TEST(ChatStreamTest, WhatIsNoEventOrTooLongIsAnError) {
  std::vector<ChatPiece> pieces;
  ChatStreamReader text;
  EXPECT_TRUE(absl::IsDataLoss(text.Append("data: hello\n\n", &pieces)));
  ChatStreamReader endless;
  absl::Status status;
  for (int i = 0; i < 300 && status.ok(); ++i) {
    status = endless.Append(std::string(4096, 'x'), &pieces);
  }
  EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  EXPECT_TRUE(absl::IsOutOfRange(endless.Append("\n", &pieces)));
  // Of other shapes than those of the API: nothing is read, nothing breaks.
  ChatStreamReader odd;
  EXPECT_TRUE(odd.Append("data: {\"choices\":[3]}\n\ndata: {\"choices\":[{\"delta\":[]}]}\n\n"
                         "data: {\"choices\":{}}\n\ndata: {\"choices\":[{\"delta\":{\"content\":7},"
                         "\"finish_reason\":{}}]}\n\n",
                         &pieces)
                  .ok());
  EXPECT_THAT(pieces, ::testing::IsEmpty());
}

TEST(ChatStreamTest, AnAnswerWithoutAnEndIsAnError) {
  for (const char* const name : {"content", "reasoning_content"}) {
    ChatStreamReader reader;
    std::vector<ChatPiece> pieces;
    const std::string event =
        Event(absl::StrCat("{\"", name, "\":\"", std::string(1'000'000, 'x'), "\"}"));
    absl::Status status;
    for (size_t i = 0; i < 2 * kMaxAnswerBytes / 1'000'000 && status.ok(); ++i) {
      pieces.clear();
      status = reader.Append(event, &pieces);
    }
    EXPECT_TRUE(absl::IsOutOfRange(status)) << status;
  }
}

TEST(ChatStreamTest, AnErrorWithoutAMessageIsSaidToBeOne) {
  std::vector<ChatPiece> pieces;
  for (const char* const error : {"5", "{}", "{\"message\":[]}"}) {
    ChatStreamReader reader;
    EXPECT_EQ(reader.Append(absl::StrCat("data: {\"error\":", error, "}\n\n"), &pieces).message(),
              "the server names an error without a message");
  }
}

TEST(ChatRefusalTest, SaysReasonAndRemedy) {
  const auto refusal = [](int status, const char* code) {
    return RefusalOf(status, std::string(R"({"error":{"message":"why","code":")") + code + R"("}})",
                     "h:1");
  };
  EXPECT_EQ(refusal(400, "context_length_exceeded"),
            absl::InvalidArgumentError("context_length_exceeded: why"));
  EXPECT_EQ(refusal(503, "STARTING"), absl::UnavailableError("STARTING: why"));
  EXPECT_TRUE(absl::IsResourceExhausted(refusal(429, "QUEUE_FULL")));
  EXPECT_THAT(std::string(refusal(401, "UNAUTHENTICATED").message()),
              HasSubstr("BULKHEAD_API_KEY"));
  EXPECT_THAT(std::string(RefusalOf(404, "<html>", "h:1").message()),
              HasSubstr("not as a Bulkhead server"));
}

TEST(ConversationTest, RequestsHaveTheMessagesAndGivenParametersAlone) {
  ChatOptions options;
  options.system = "Be brief.";
  options.request.max_tokens = 7;
  options.request.temperature = 0.5f;
  Conversation conversation(options);
  conversation.AddUser("a");
  conversation.AddAnswer("b");
  conversation.AddUser("c\xff");
  EXPECT_EQ(conversation.RequestJson(),
            R"({"max_completion_tokens":7,"temperature":0.5,"stream":true,"messages":[)"
            R"({"role":"system","content":"Be brief."},{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b"},{"role":"user","content":"c)"
            "\uFFFD\"}]}");
  conversation.DropUser();
  EXPECT_EQ(conversation.num_messages(), 2u);
  conversation.Reset();
  EXPECT_EQ(conversation.num_messages(), 0u);
  conversation.AddUser("d");
  options.model = "sql";
  EXPECT_THAT(Conversation(options).RequestJson(), HasSubstr(R"({"model":"sql",)"));
  EXPECT_THAT(conversation.RequestJson(), HasSubstr(R"([{"role":"system","content":"Be brief."},)"
                                                    R"({"role":"user","content":"d"}])"));
}

TEST(ConversationTest, CommandsAreWordsBehindASlash) {
  EXPECT_EQ(ChatInputOf(" \t"), ChatInput::kEmpty);
  EXPECT_EQ(ChatInputOf(" /reset "), ChatInput::kReset);
  EXPECT_EQ(ChatInputOf("/help"), ChatInput::kHelp);
  EXPECT_EQ(ChatInputOf("/exit"), ChatInput::kExit);
  EXPECT_EQ(ChatInputOf("/rest"), ChatInput::kUnknownCommand);
  EXPECT_EQ(ChatInputOf("/usr/bin is full"), ChatInput::kMessage);
  EXPECT_EQ(ChatInputOf("reset"), ChatInput::kMessage);
  EXPECT_THAT(std::string(ChatHelp()), HasSubstr("/reset"));
}

TEST(ChatPrinterTest, ReasoningIsDimInATerminalAndLeftOutElsewhere) {
  std::ostringstream terminal, plain, file;
  ChatPrinter in_terminal(&terminal, {.to_terminal = true, .colors = true});
  ChatPrinter without_colors(&plain, {.to_terminal = true});
  ChatPrinter in_file(&file, {});
  for (ChatPrinter* const output : {&in_terminal, &without_colors, &in_file}) {
    output->Print({true, "Hm"});
    output->Print({true, "."});
    output->Print({false, "Yes\x1b[2J"});
    output->EndAnswer();
    output->Print({false, "No\n"});
    output->EndAnswer();
    output->Print({true, "Cut"});
    output->EndAnswer();
    output->EndAnswer();
  }
  EXPECT_EQ(terminal.str(),
            "\x1b[2mHm.\x1b[0m\n\nYes\\x1b[2J\nNo\n\x1b[2m"
            "Cut\x1b[0m\n");
  EXPECT_EQ(plain.str(), "Hm.\n\nYes\\x1b[2J\nNo\nCut\n");
  EXPECT_EQ(file.str(), "Yes\x1b[2J\nNo\n");
}

}  // namespace
}  // namespace bulkhead
