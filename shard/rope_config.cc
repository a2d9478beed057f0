#include "shard/rope_config.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

constexpr double kMinTheta = 1.0;
constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 65536;

void ReadScaling(ConfigFields& nested, const std::string& type, RopeConfig& rope) {
  if (type == "default") {
    nested.Ignore("factor");
  } else if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = nested.RequiredNumber("factor", 1, kMaxFactor);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = nested.RequiredNumber("factor", 1, kMaxFactor);
    rope.low_freq_factor = nested.RequiredNumber("low_freq_factor", 1e-6, kMaxFactor);
    rope.high_freq_factor = nested.RequiredNumber("high_freq_factor", 1e-6, kMaxFactor);
    rope.original_max_position_embeddings =
        nested.RequiredInt("original_max_position_embeddings", 1, kMaxPositionEmbeddings);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      nested.Invalid("high_freq_factor", absl::StrCat("it must be greater than low_freq_factor, ",
                                                      rope.low_freq_factor));
    }
  }
}

// One of rope_scaling and rope_parameters.
RopeConfig ReadNested(ConfigFields& fields, const char* name, double outer_theta,
                      std::vector<std::string>& unknown) {
  RopeConfig rope;
  rope.theta = outer_theta;
  const nlohmann::json* object = fields.Object(name);
  if (object == nullptr) return rope;
  ConfigFields nested(*object, fields.source(), absl::StrCat(name, "."));
  const std::string older = nested.String("type").value_or("");
  const std::string newer = nested.String("rope_type").value_or(older.empty() ? "default" : older);
  if (newer != "default" && newer != "linear" && newer != "llama3") {
    const char* spelling = nested.IsNullOrMissing("rope_type") ? "type" : "rope_type";
    nested.Unsupported(spelling, "supported are default, linear and llama3");
  }
  if (!older.empty() && older != newer) {
    nested.Invalid("type", absl::StrCat("it contradicts rope_type, \"", newer.substr(0, 80), "\""));
  }
  ReadScaling(nested, newer, rope);
  const std::optional<double> theta = nested.Number("rope_theta", kMinTheta, kMaxTheta);
  if (theta.has_value()) {
    if (!fields.IsNullOrMissing("rope_theta") && *theta != outer_theta) {
      nested.Invalid("rope_theta",
                     absl::StrCat("it contradicts the outer rope_theta, ", outer_theta));
    }
    rope.theta = *theta;
  }
  nested.RefuseUnlessOne("partial_rotary_factor");
  // Rope settings by kind of layer: one of the kinds is not enough.
  nested.RefuseUnlessOff("full_attention");
  nested.RefuseUnlessOff("sliding_attention");
  nested.RefuseUnlessOff("mrope_section");
  if (!nested.status().ok()) fields.Fail(nested.status());
  for (const std::string& field : nested.UnknownNames()) unknown.push_back(field);
  return rope;
}

}  // namespace

RopeConfig ReadRopeConfig(ConfigFields& fields, std::vector<std::string>& unknown) {
  const double theta = fields.Number("rope_theta", kMinTheta, kMaxTheta).value_or(10000.0);
  const RopeConfig older = ReadNested(fields, "rope_scaling", theta, unknown);
  const RopeConfig newer = ReadNested(fields, "rope_parameters", theta, unknown);
  if (fields.IsNullOrMissing("rope_parameters")) return older;
  if (!fields.IsNullOrMissing("rope_scaling") && !(older == newer)) {
    fields.Invalid("rope_scaling", "it contradicts rope_parameters");
  }
  return newer;
}

}  // namespace bulkhead
