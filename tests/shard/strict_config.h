// A made-up config.json, parsed as a checkpoint's: fields that no family knows are refused.
#pragma once

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "runtime/model/family.h"
#include "shard/model_config.h"

namespace bulkhead {

inline absl::StatusOr<ParsedConfig> ParseStrictly(const nlohmann::json& config) {
  return ParseModelConfig(config.dump(), "", UnknownFields::kRefuse, AllFamilySpecs());
}

inline ModelConfig ParseOk(const nlohmann::json& config) {
  auto parsed = ParseStrictly(config);
  EXPECT_TRUE(parsed.ok()) << config["model_type"] << ": " << parsed.status();
  return parsed.ok() ? parsed->model : ModelConfig();
}

}  // namespace bulkhead
