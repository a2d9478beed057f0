#include "launcher/flags/lora_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/launcher/flags/parsed_options.h"

namespace bulkhead {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<LoraModule> ModulesOf(const Args& flags) {
  return Parsed<ServeOptions>(Serve(flags)).engine.lora_modules;
}

const LoraModule kA = {"a", "x/y=z"};
const LoraModule kB = {"org/b", "y"};

TEST(LoraModulesTest, AreAListOrSeveralFlags) {
  EXPECT_TRUE(ModulesOf({}).empty());
  EXPECT_THAT(ModulesOf({"--lora-modules", "a=x/y=z,org/b=y"}), ElementsAre(kA, kB));
  EXPECT_THAT(ModulesOf({"--lora-modules=org/b=y", "--lora_modules=a=x/y=z"}), ElementsAre(kB, kA));
}

TEST(LoraModulesTest, MayBeVllmsWordsAndObjects) {
  const char* const object = R"({"name": "org/b", "path": "y", "base_model_name": null})";
  EXPECT_THAT(ModulesOf({"--lora-modules", "a=x/y=z", "org/b=y"}), ElementsAre(kA, kB));
  EXPECT_THAT(ModulesOf({"--lora-modules", "a=x/y=z", object, "--port", "0"}), ElementsAre(kA, kB));
  const auto serve = Parsed<ServeOptions>({"serve", "--lora-modules", object, "a=x/y=z", "m"});
  EXPECT_THAT(serve.engine.lora_modules, ElementsAre(kB, kA));
  EXPECT_EQ(serve.engine.model, "m") << "a word without = is none of them";
  EXPECT_THAT(Refusal(Serve({"--lora-modules", "a=x", "--port", "0", "b=y"})), HasSubstr("'b=y'"));
}

TEST(LoraModulesTest, TheBaseModelIsThatOfTheServer) {
  const char* const object = R"({"name": "a", "path": "x", "base_model_name": "base"})";
  const Args named = {"--lora-modules", object, "--served-model-name", "other,base"};
  EXPECT_EQ(ModulesOf(named)[0].base_model_name, "base");
  EXPECT_THAT(Refusal(Serve({"--lora-modules", object})),
              AllOf(HasSubstr("base_model_name 'base'"), HasSubstr("the model's name is m"),
                    HasSubstr("leave base_model_name out")));
}

TEST(LoraModulesTest, EveryCommandThatComputesHasThem) {
  EXPECT_EQ(
      Parsed<PlanOptions>({"plan", "m", "--lora-modules", "a=x"}).serve.engine.lora_modules[0].name,
      "a");
  const auto run = Parsed<RunOptions>({"run", "m", "--prompts", "p", "--lora-modules", "a=x"});
  EXPECT_EQ(run.engine.lora_modules[0].dir, "x");
  const auto score = Parsed<ScoreOptions>({"score", "m", "--texts", "p", "--lora-modules", "a=x"});
  EXPECT_EQ(score.engine.lora_modules[0].dir, "x");
}

TEST(LoraModulesTest, TheEnvironmentMayNameThem) {
  setenv("BULKHEAD_LORA_MODULES", "a=x/y=z,org/b=y", 1);
  const std::vector<LoraModule> modules = ModulesOf({});
  unsetenv("BULKHEAD_LORA_MODULES");
  EXPECT_THAT(modules, ElementsAre(kA, kB));
}

TEST(LoraModulesTest, WhatGroupsExchangeIsTheSame) {
  const EngineOptions engine =
      Parsed<ServeOptions>(Serve({"--lora-modules", "a=x/y=z", "org/b=y"})).engine;
  EXPECT_EQ(Parsed<ServeOptions>(engine.command_line).engine, engine);
}

TEST(LoraModulesTest, WrongOnesAreRefusedWithWhatIsWrongAndARemedy) {
  std::string many = "n=x";
  for (int i = 0; i < kMaxLoraModules; ++i) absl::StrAppend(&many, ",n", i, "=x");
  const struct {
    std::string value;
    std::vector<std::string> says;
  } cases[] = {
      {"x", {"'x' has no folder", "NAME=DIR"}},
      {"a=", {"'a=' has no folder", "NAME=DIR"}},
      {"=x", {"'=x' has no name", "NAME=DIR"}},
      {"a=x,", {"'' has no name"}},
      {"a\nb=x", {"'a\\nb' is not a name of up to 256 bytes of UTF-8"}},
      {absl::StrCat(std::string(257, 'a'), "=x"), {"is not a name of up to 256 bytes"}},
      {"a=x,a=y", {"'a' is named twice", "a name of its own"}},
      {"m=x", {"'m' is the model's own name", "another"}},
      {many, {"'n63' exceeds the limit of 64 adapters", "leave some out"}},
      {R"({"name": "a"})", {"has no folder"}},
      {R"({"path": "x"})", {"has no name"}},
      {R"({"name": "a", "path": 7})", {"path: 7 is not a string"}},
      {R"({"name": null, "path": "x"})", {"name: null is not a string"}},
      {R"({"name": "a", "path": "x", "rank": 8})", {"unknown key 'rank'", "base_model_name"}},
      {R"({"name": "a")", {"the JSON object"}},
  };
  for (const auto& one : cases) {
    const std::string refusal = Refusal(Serve({"--lora-modules=" + one.value}));
    EXPECT_THAT(refusal, HasSubstr("--lora-modules: "));
    for (const std::string& says : one.says) EXPECT_THAT(refusal, HasSubstr(says)) << one.value;
  }
  EXPECT_THAT(Refusal(Serve({"--lora-modules", "a=x", "--lora-modules", "a=x"})),
              HasSubstr("'a' is named twice"));
  EXPECT_THAT(Refusal(Serve({"--served-model-name", "b,a", "--lora-modules", "a=x"})),
              HasSubstr("'a' is the model's own name"));
}

}  // namespace
}  // namespace bulkhead
