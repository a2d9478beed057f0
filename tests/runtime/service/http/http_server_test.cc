// The front end over sockets: routes and answers.
#include "runtime/service/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/service/http/body_parts.h"
#include "tests/runtime/service/http/http_fixture.h"

namespace bulkhead {
namespace {

using testing::HasSubstr;

TEST_F(HttpServerTest, SaysWhatItServes) {
  EXPECT_EQ(Get("/health").first, 200);
  EXPECT_EQ(Get("/live").first, 200);
  EXPECT_EQ(Get("/version").second["version"], "1.2");
  const json models = Get("/v1/models").second;
  EXPECT_EQ(models["data"][0]["id"], "letters");
  EXPECT_EQ(models["data"][0]["root"], "folder/of-letters") << "as vLLM's: where a tokenizer is";
  EXPECT_EQ(models["data"][0]["max_model_len"], kTestModelLen);
  EXPECT_TRUE(models["data"][0]["parent"].is_null());
  ASSERT_EQ(models["data"].size(), 2U);
  const json& adapter = models["data"][1];
  EXPECT_EQ(adapter["id"], "sql");
  EXPECT_EQ(adapter["root"], "folder/of-sql");
  EXPECT_EQ(adapter["parent"], "letters");
  EXPECT_EQ(Get("/v1/models/sql").second, adapter);
}

TEST_F(HttpServerTest, AnAdapterAnswersToItsName) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"model": "sql", "prompt": "ab", "max_tokens": 1})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.adapter, 1);
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kMaxTokens, 1);
  EXPECT_EQ(Answered(*client).second["model"], "sql");
  EXPECT_EQ(Ask("/tokenize", R"({"model": "sql", "prompt": "ab"})").first, 200);
  const auto [status, answer] = Ask("/v1/score", R"({"model": "chess", "prompt": "ab"})");
  EXPECT_EQ(status, 404);
  EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr("letters, sql is"));
}

TEST_F(HttpServerTest, AWholeAnswerHasTextUsageAndReason) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"model": "letters", "prompt": "ab", "max_tokens": 3})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.prompt, (std::vector<TokenId>{256, 'a', 'b'}));
  EXPECT_EQ(submitted.request.stopping.max_tokens, 3);
  submitted.Send(0, {'c', '"'}, "c\"");
  submitted.Finish(FinishReason::kMaxTokens, 2);
  const auto [status, answer] = Answered(*client);
  EXPECT_EQ(status, 200);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "c\"");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(answer["usage"]["total_tokens"], 5);
  EXPECT_TRUE(absl::StartsWith(submitted.request.request_id, "cmpl-"));
  EXPECT_EQ(answer["id"], submitted.request.request_id);
}

TEST_F(HttpServerTest, AStreamIsEventsOnAConnectionThatStays) {
  const auto client = Connect();
  for (int i = 0; i < 2; ++i) {
    client->Post("/v1/completions",
                 R"({"prompt": "ab", "stream": true, "stream_options": {"include_usage": true}})");
    const Submitted submitted = engine_.Next();
    EXPECT_THAT(client->ReadUntil("\r\n\r\n"),
                AllOf(HasSubstr("200 OK"), HasSubstr("text/event-stream"), HasSubstr("chunked")));
    submitted.Send(0, {'c'}, "c");
    const std::string first = client->ReadUntil("\n\n");
    EXPECT_THAT(first, HasSubstr("data: {\"id\":"));
    EXPECT_THAT(first, HasSubstr("\"text\":\"c\""));
    EXPECT_THAT(first, HasSubstr("\"usage\":null"));
    submitted.Finish(FinishReason::kEos, 1);
    const std::string rest = client->ReadUntil("data: [DONE]\n\n\r\n0\r\n\r\n");
    EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"stop\""));
    EXPECT_THAT(rest, HasSubstr("\"choices\":[],\"usage\":{\"prompt_tokens\":3"));
  }
}

// Special tokens and parts of a character have no text. Clients time tokens by their events.
TEST_F(HttpServerTest, ATokenWithoutATextHasAnEvent) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "stream": true})");
  const Submitted submitted = engine_.Next();
  for (int i = 0; i < 2; ++i) {
    submitted.Send(i, {1}, "");
    EXPECT_THAT(client->ReadUntil("\n\n"), HasSubstr("\"finish_reason\":null")) << i;
  }
  submitted.Finish(FinishReason::kMaxTokens, 2);
  EXPECT_THAT(client->ReadUntil("\n\n"), HasSubstr("\"finish_reason\":\"length\""));
}

TEST_F(HttpServerTest, ChoicesAreCallsWithSeedsOfTheirOwn) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": ["a", "b"], "n": 2, "seed": 5, "max_tokens": 2})");
  for (int i = 0; i < 4; ++i) {
    const Submitted submitted = engine_.Next();
    EXPECT_EQ(submitted.request.sampling.seed, static_cast<uint64_t>(5 + i % 2));
    EXPECT_EQ(submitted.request.prompt.back(), i < 2 ? 'a' : 'b');
    submitted.Send(0, {'0' + i}, std::string(1, static_cast<char>('0' + i)));
    submitted.Finish(FinishReason::kMaxTokens, 1);
  }
  const json answer = Answered(*client).second;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], std::to_string(i));
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4) << "each prompt once";
  EXPECT_EQ(answer["usage"]["completion_tokens"], 4);
}

// Not as an event of a stream: clients retry and understand a status.
TEST_F(HttpServerTest, ARefusedPromptOfSeveralIsNamedAndEndsTheCallBeforeAnyEvent) {
  for (const char* stream : {"false", "true"}) {
    const auto [status, answer] =
        Ask("/v1/completions",
            absl::StrCat(R"({"prompt": [[65], [66, 99999]], "stream": )", stream, "}"));
    EXPECT_EQ(status, 400) << stream;
    EXPECT_EQ(answer["error"]["param"], "prompt[1][1]") << answer;
  }
  // A text that choices share is tokenised before there are calls.
  const std::string texts =
      absl::StrCat(R"(["a", ")", std::string(10 * kTestModelLen, 'a'), R"("])");
  const json answer =
      Ask("/v1/completions", absl::StrCat(R"({"n": 2, "prompt": )", texts, "}")).second;
  EXPECT_EQ(answer["error"]["param"], "prompt[1]") << answer;
}

TEST_F(HttpServerTest, ModelsAreFoundByName) {
  EXPECT_EQ(Get("/v1/models/letters").second, Get("/v1/models").second["data"][0]);
  EXPECT_EQ(Get("/v1/models/%6Cetter%73").second["id"], "letters");
  for (const char* other : {"/v1/models/", "/v1/models/other", "/v1/models/letter%7"}) {
    EXPECT_EQ(Get(other).first, 404) << other;
  }
}

TEST_F(HttpServerTest, LoweredLimitsAreToldAndHowToResetThem) {
  v1::SetLimitsRequest change;
  change.set_max_model_len(8);
  SchedulerLimits before;
  ASSERT_TRUE(engine_.SetLimits(change, &before).ok());
  EXPECT_EQ(Get("/v1/models").second["data"][0]["max_model_len"], 8);
  EXPECT_EQ(Get("/v1/models/letters").second["max_model_len"], 8);
  EXPECT_EQ(Ask("/tokenize", R"({"prompt": "ab"})").second["max_model_len"], 8);
  for (const char* n : {"1", "2"}) {
    const auto [status, answer] =
        Ask("/v1/completions",
            absl::StrCat(R"({"prompt": ")", std::string(20, 'a'), R"(", "n": )", n, "}"));
    EXPECT_EQ(status, 400) << n;
    EXPECT_THAT(answer["error"]["message"].get<std::string>(),
                HasSubstr("lowered from 64 ('bulkhead limits --reset')"))
        << n;
  }
}

TEST_F(HttpServerTest, LogprobsAreOfEachToken) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "logprobs": 2})");
  const Submitted submitted = engine_.Next();
  EXPECT_EQ(submitted.request.num_logprobs, 2);
  OutputDelta delta;
  for (const char c : {'c', 'd'}) {
    delta.tokens.push_back({c, -0.5F, {{c, -0.5F}, {'e', -1.25F}}});
  }
  delta.text = "cd";
  submitted.sink->OnDelta(delta);
  submitted.Finish(FinishReason::kMaxTokens, 2);
  const json logprobs = Answered(*client).second["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"c", "d"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.5, -0.5}));
  EXPECT_EQ(logprobs["top_logprobs"][1], json({{"d", -0.5}, {"e", -1.25}}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1}));
}

TEST_F(HttpServerTest, TopLogprobsHaveTheDrawnToken) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab", "logprobs": 1})");
  const Submitted submitted = engine_.Next();
  OutputDelta delta;
  delta.tokens = {{'c', -2.5F, {{'e', -0.5F}}}, {'d', -0.25F, {}}};
  delta.text = "cd";
  submitted.sink->OnDelta(delta);
  submitted.Finish(FinishReason::kMaxTokens, 2);
  const json logprobs = Answered(*client).second["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["top_logprobs"], json({{{"c", -2.5}, {"e", -0.5}}, {{"d", -0.25}}}));
}

TEST_F(HttpServerTest, MoreChoicesThanMayEverRunAndWaitAreRefused) {
  const SchedulerLimits limits = engine_.Limits();
  const int most = limits.max_num_seqs + limits.max_num_queued_reqs;
  const auto [status, answer] =
      Ask("/v1/completions", absl::StrCat(R"({"prompt": "ab", "n": )", most + 1, "}"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["param"], "n");
  EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr("max_num_seqs"));
}

TEST_F(HttpServerTest, EchoBeginsWithThePrompt) {
  for (const bool stream : {false, true}) {
    const auto client = Connect();
    client->Post("/v1/completions", absl::StrCat(R"({"prompt": "ab", "echo": true, "stream": )",
                                                 stream ? "true" : "false", "}"));
    const Submitted submitted = engine_.Next();
    submitted.Send(0, {'c'}, "c");
    submitted.Finish(FinishReason::kMaxTokens, 1);
    if (stream) {
      const std::string events = client->ReadUntil("[DONE]");
      EXPECT_LT(events.find("\"text\":\"ab\""), events.find("\"text\":\"c\""));
    } else {
      EXPECT_EQ(Answered(*client).second["choices"][0]["text"], "abc");
    }
  }
}

// The ids that the events of a stream have for a choice: the prompt's, and the answer's.
std::pair<json, json> IdsOf(const std::string& events, int index) {
  json prompt, ids = json::array();
  bool is_first = true;
  for (absl::string_view line : absl::StrSplit(events, '\n')) {
    if (!absl::ConsumePrefix(&line, "data: {")) continue;
    const json choices = json::parse(absl::StrCat("{", line))["choices"];
    if (choices.empty() || choices[0]["index"] != index) continue;
    EXPECT_EQ(choices[0].contains("prompt_token_ids"), std::exchange(is_first, false)) << line;
    if (choices[0].contains("prompt_token_ids")) prompt = choices[0]["prompt_token_ids"];
    for (const json& id : choices[0]["token_ids"]) ids.push_back(id);
  }
  return {prompt, ids};
}

TEST_F(HttpServerTest, IdsOfPromptAndAnswerStandBesideTheText) {
  for (const bool echo : {false, true}) {
    const std::string body =
        absl::StrCat(R"({"prompt": ["ab", [7]], "return_token_ids": true, "echo": )",
                     echo ? "true" : "false", R"(, "stream": )");
    const auto whole = Connect();
    whole->Post("/v1/completions", body + "false}");
    const auto streamed = Connect();
    const auto run = [&] {
      const Submitted of[] = {engine_.Next(), engine_.Next()};
      for (const Submitted& submitted : of) {
        const int32_t first = submitted.request.prompt.size() == 1 ? 'x' : 'c';
        submitted.Send(0, {first}, "");  // held back
        submitted.Send(1, {300, 'd'}, "cd");
        submitted.Send(3, {'e'}, "");  // of a stop string
        submitted.Finish(FinishReason::kStopString, 4);
      }
    };
    run();
    const json choices = Answered(*whole).second["choices"];
    EXPECT_EQ(choices[0]["prompt_token_ids"], json({256, 97, 98}));
    EXPECT_EQ(choices[0]["token_ids"], json({'c', 300, 'd', 'e'}));
    EXPECT_EQ(choices[0]["text"], echo ? "abcd" : "cd");
    EXPECT_EQ(choices[1]["prompt_token_ids"], json({7}));
    EXPECT_EQ(choices[1]["token_ids"], json({'x', 300, 'd', 'e'}));
    streamed->Post("/v1/completions", body + "true}");
    run();
    const std::string events = streamed->ReadUntil("[DONE]");
    for (int i = 0; i < 2; ++i) {
      const auto [prompt, ids] = IdsOf(events, i);
      EXPECT_EQ(prompt, choices[i]["prompt_token_ids"]);
      EXPECT_EQ(ids, choices[i]["token_ids"]);
    }
  }
  const auto plain = Connect();
  plain->Post("/v1/completions", R"({"prompt": "ab", "echo": true, "return_token_ids": false})");
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kMaxTokens, 1);
  const json choice = Answered(*plain).second["choices"][0];
  EXPECT_FALSE(choice.contains("token_ids") || choice.contains("prompt_token_ids"));
}

TEST_F(HttpServerTest, ALongAnswerIsSentInChunks) {
  const auto client = Connect();
  client->Post("/v1/completions", R"({"prompt": "ab"})");
  const Submitted submitted = engine_.Next();
  std::string text(100'000, 'x');
  text += "\xc3\xa9";
  submitted.Send(0, {'c'}, text);
  submitted.Finish(FinishReason::kMaxTokens, 1);
  EXPECT_THAT(client->ReadUntil("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked"));
  std::string body;
  while (true) {
    const std::string size = client->ReadUntil("\r\n");
    const auto bytes = std::stoul(size, nullptr, 16);
    if (bytes == 0) break;
    EXPECT_LE(bytes, 4 * BodyParts::kSliceBytes);
    std::string chunk = client->ReadUntil("\r\n");
    body += chunk.substr(0, chunk.size() - 2);
  }
  EXPECT_EQ(json::parse(body)["choices"][0]["text"], text);
}

TEST_F(HttpServerTest, TextsAndIdsAreConvertedBothWays) {
  EXPECT_EQ(Ask("/tokenize", R"({"prompt": "ab"})").second["tokens"], json({256, 97, 98}));
  const json plain = Ask("/tokenize", R"({"prompt": "ab", "add_special_tokens": false})").second;
  EXPECT_EQ(plain["count"], 2);
  EXPECT_FALSE(plain.contains("token_strs"));
  EXPECT_EQ(Ask("/tokenize", R"({"prompt": "a", "return_token_strs": true})").second["token_strs"],
            json({"#256", "#97"}));
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": [97, 98]})").second["prompt"], "ab");
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": [97, 999]})").second["error"]["param"], "tokens[1]");
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": 5})").first, 400);
  // On the text worker:
  const auto client = Connect();
  client->Post("/tokenize", absl::StrCat(R"({"prompt": ")", std::string(50'000, 'a'), R"("})"));
  EXPECT_THAT(client->ReadUntil("0\r\n\r\n"), HasSubstr("\"count\":50001"));
}

TEST_F(HttpServerTest, LongPromptsAreRefusedOrServedOnTheTextWorker) {
  const auto [status, answer] =
      Ask("/v1/completions", absl::StrCat(R"({"prompt": ")", std::string(50'000, 'a'), R"("})"));
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(answer["error"]["param"], "prompt");
  const auto client = Connect();
  client->Post("/v1/completions",
               absl::StrCat(R"({"prompt": "a", "user": ")", std::string(50'000, 'a'), R"("})"));
  const Submitted submitted = engine_.Next();
  submitted.Send(0, {'c'}, "c");
  submitted.Finish(FinishReason::kEos, 1);
  EXPECT_EQ(Answered(*client).first, 200);
}

TEST_F(HttpServerTest, ScoresATextsTokens) {
  engine_.AnswerWith([](const Submitted& submitted) {
    EXPECT_NE(submitted.request.prompt_logits, nullptr);
    submitted.Fail(absl::InternalError("no model here"));
  });
  const auto [status, answer] = Ask("/v1/score", R"({"prompt": "ab"})");
  EXPECT_EQ(status, 500);
  EXPECT_EQ(answer["error"]["code"], "INTERNAL");
}

TEST_F(HttpServerTest, PairsToScoreAreRefusedByTheirName) {
  const auto [status, answer] = Ask("/v1/score", R"({"text_1": "a", "text_2": "b"})");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(answer["error"]["param"], "text_1");
  EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr("pairs are not scored"));
}

TEST_F(HttpServerTest, LabelsOfARequestAreTakenOnEveryRoute) {
  const std::string labels =
      R"(, "user": "u", "request_id": "r", "session_id": "s", "metadata": {}, "media_io_kwargs": {}})";
  EXPECT_EQ(Ask("/tokenize", R"({"prompt": "ab")" + labels).first, 200);
  EXPECT_EQ(Ask("/detokenize", R"({"tokens": [97])" + labels).first, 200);
  engine_.AnswerWith(
      [](const Submitted& submitted) { submitted.Fail(absl::InternalError("no model here")); });
  EXPECT_EQ(Ask("/v1/score", R"({"prompt": "ab")" + labels).first, 500) << "the engine's";
}

TEST_F(HttpServerTest, TheStopReasonIsNullAtTheModelsOwnEnd) {
  for (const FinishReason reason : {FinishReason::kEos, FinishReason::kStopToken}) {
    const auto client = Connect();
    client->Post("/v1/completions", R"({"prompt": "ab"})");
    RequestEnd end;
    end.reason = reason;
    end.stop_token_id = 7;
    engine_.Next().sink->OnEnd(std::move(end));
    const json choice = Answered(*client).second["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_EQ(choice["stop_reason"], reason == FinishReason::kEos ? json() : json(7));
  }
}

}  // namespace
}  // namespace bulkhead
