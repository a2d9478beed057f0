#include "shard/rope_config.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

namespace bulkhead {
namespace {

constexpr double kMinTheta = 1.0;
constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 65536;

constexpr const char* kSupported = "supported are default, linear, llama3, yarn and longrope";

constexpr const char* kOriginalContext = "original_max_position_embeddings";

// The original context: in the nested object, or beside it (Phi-3).
std::optional<int> StatedOriginalContext(ConfigFields& nested, ConfigFields& fields) {
  const std::optional<int> outer = fields.Int(kOriginalContext, 1, kMaxPositionEmbeddings);
  const std::optional<int> inner = nested.Int(kOriginalContext, 1, kMaxPositionEmbeddings);
  if (outer.has_value() && inner.has_value() && *outer != *inner) {
    nested.Invalid(kOriginalContext,
                   absl::StrCat("it contradicts the field of that name beside it, ", *outer));
  }
  return outer.has_value() ? outer : inner;
}

// The model's context length if none is stated.
int OriginalContext(ConfigFields& nested, ConfigFields& fields) {
  const std::optional<int> stated = StatedOriginalContext(nested, fields);
  return stated.has_value()
             ? *stated
             : fields.RequiredInt("max_position_embeddings", 1, kMaxPositionEmbeddings);
}

double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
}

void ReadYarn(ConfigFields& nested, ConfigFields& fields, RopeConfig& rope) {
  rope.factor = nested.RequiredNumber("factor", 1, kMaxFactor);
  rope.original_max_position_embeddings = OriginalContext(nested, fields);
  rope.beta_fast = nested.Number("beta_fast", 1e-6, kMaxFactor).value_or(32);
  rope.beta_slow = nested.Number("beta_slow", 1e-6, kMaxFactor).value_or(1);
  rope.truncate = nested.Bool("truncate").value_or(true);
  const double mscale = nested.Number("mscale", 0, kMaxFactor).value_or(0);
  const double mscale_all_dim = nested.Number("mscale_all_dim", 0, kMaxFactor).value_or(0);
  if (mscale_all_dim > 0) rope.mscale_all_dim = YarnMscale(rope.factor, mscale_all_dim);
  const double by_default =
      mscale > 0 && mscale_all_dim > 0
          ? YarnMscale(rope.factor, mscale) / YarnMscale(rope.factor, mscale_all_dim)
          : YarnMscale(rope.factor, 1);
  rope.attention_factor = nested.Number("attention_factor", 1e-6, kMaxFactor).value_or(by_default);
}

void ReadLongRope(ConfigFields& nested, ConfigFields& fields, RopeConfig& rope) {
  rope.original_max_position_embeddings = OriginalContext(nested, fields);
  const double context = fields.Int("max_position_embeddings", 1, kMaxPositionEmbeddings)
                             .value_or(rope.original_max_position_embeddings);
  const double original = rope.original_max_position_embeddings;
  const double factor = nested.Number("factor", 1, kMaxFactor).value_or(context / original);
  const double by_default =
      factor <= 1 || original <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope.attention_factor = nested.Number("attention_factor", 1e-6, kMaxFactor).value_or(by_default);
  rope.short_factor = nested.RequiredNumbers("short_factor", 1e-6, kMaxFactor);
  rope.long_factor = nested.RequiredNumbers("long_factor", 1e-6, kMaxFactor);
}

void ReadScaling(ConfigFields& nested, ConfigFields& fields, const std::string& type,
                 bool may_be_proportional, bool reads_alpha, RopeConfig& rope) {
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
    rope.original_max_position_embeddings = OriginalContext(nested, fields);
    if (rope.high_freq_factor < rope.low_freq_factor) {  // equal in Llama 4 Scout
      nested.Invalid("high_freq_factor", absl::StrCat("it must not be less than low_freq_factor, ",
                                                      rope.low_freq_factor));
    }
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::kYarn;
    ReadYarn(nested, fields, rope);
  } else if (type == "dynamic" && reads_alpha && !nested.IsNullOrMissing("alpha")) {
    rope.scaling = RopeScaling::kNtkAlpha;
    rope.factor = nested.RequiredNumber("alpha", 1, 1e9);
    for (const char* name : {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
      nested.Ignore(name);
    }
  } else if (type == "proportional" && may_be_proportional) {
    rope.scaling = RopeScaling::kProportional;
    rope.factor = nested.Number("factor", 1, kMaxFactor).value_or(1);
  } else if (type == "longrope" || type == "su") {
    rope.scaling = RopeScaling::kLongRope;
    ReadLongRope(nested, fields, rope);
  } else {
    const bool has_alpha = type == "dynamic" && !reads_alpha && !nested.IsNullOrMissing("alpha");
    nested.Unsupported(
        nested.IsNullOrMissing("rope_type") ? "type" : "rope_type",
        absl::StrCat(has_alpha ? "alpha is of Hunyuan's checkpoints alone; " : "", kSupported));
  }
}

// Reads `object`: rope_scaling, rope_parameters, or a member of rope_parameters.
RopeConfig ReadObject(const nlohmann::json& object, ConfigFields& fields, const std::string& name,
                      const RopeConfig& outer, const RopeDefaults& defaults,
                      std::vector<std::string>& unknown) {
  RopeConfig rope;
  rope.theta = outer.theta;
  rope.partial_rotary_factor = outer.partial_rotary_factor;
  ConfigFields nested(object, fields.source(), absl::StrCat(name, "."));
  const std::string older = nested.String("type").value_or("");
  const std::string newer = nested.String("rope_type").value_or(older.empty() ? "default" : older);
  if (!older.empty() && older != newer) {
    nested.Invalid("type", absl::StrCat("it contradicts rope_type, \"", newer.substr(0, 80), "\""));
  }
  const bool may_be_proportional = outer.scaling == RopeScaling::kProportional;
  if (may_be_proportional) rope.partial_rotary_factor = 1;
  ReadScaling(nested, fields, newer, may_be_proportional, defaults.reads_alpha, rope);
  // It would also scale scores there, and no known checkpoint has it.
  if (defaults.scales_scores && newer != "default" && newer != "yarn") {
    nested.RefuseUnlessOff("mscale_all_dim");
  }
  rope.llama_4_scaling_beta = nested.Number("llama_4_scaling_beta", 0, kMaxFactor).value_or(0);
  if (rope.llama_4_scaling_beta != 0) {  // q is scaled with every type
    const std::optional<int> original = StatedOriginalContext(nested, fields);
    rope.original_max_position_embeddings =
        original.has_value() ? *original
                             : nested.RequiredInt(kOriginalContext, 1, kMaxPositionEmbeddings);
  }
  const std::optional<double> theta = nested.Number("rope_theta", kMinTheta, kMaxTheta);
  if (theta.has_value()) {
    if (!fields.IsNullOrMissing("rope_theta") && *theta != outer.theta) {
      nested.Invalid("rope_theta",
                     absl::StrCat("it contradicts the outer rope_theta, ", outer.theta));
    }
    rope.theta = *theta;
  }
  rope.partial_rotary_factor =
      nested.Number("partial_rotary_factor", 1e-6, 1).value_or(rope.partial_rotary_factor);
  // Settings by kind of layer must name both kinds.
  nested.RefuseUnlessOff("full_attention");
  nested.RefuseUnlessOff("sliding_attention");
  // Columns by the axes of an image; a text token has equal positions on all axes.
  for (const char* field : {"mrope_section", "mrope_interleaved"}) nested.Ignore(field);
  if (!nested.status().ok()) fields.Fail(nested.status());
  for (const std::string& field : nested.UnknownNames()) unknown.push_back(field);
  return rope;
}

RopeConfig ReadNested(ConfigFields& fields, const char* name, const RopeConfig& outer,
                      const RopeDefaults& defaults, std::vector<std::string>& unknown) {
  const nlohmann::json* object = fields.Object(name);
  return object == nullptr ? outer : ReadObject(*object, fields, name, outer, defaults, unknown);
}

RopeConfig Outer(ConfigFields& fields, const RopeDefaults& defaults) {
  RopeConfig outer;
  outer.theta = fields.Number("rope_theta", kMinTheta, kMaxTheta).value_or(defaults.theta);
  outer.partial_rotary_factor =
      fields.Number("partial_rotary_factor", 1e-6, 1).value_or(defaults.partial_rotary_factor);
  if (defaults.is_proportional) outer.scaling = RopeScaling::kProportional;
  return outer;
}

RopeConfig ReadForAllLayers(ConfigFields& fields, const RopeConfig& outer,
                            const RopeDefaults& defaults, std::vector<std::string>& unknown) {
  const RopeConfig older = ReadNested(fields, "rope_scaling", outer, defaults, unknown);
  const RopeConfig newer = ReadNested(fields, "rope_parameters", outer, defaults, unknown);
  if (fields.IsNullOrMissing("rope_parameters")) return older;
  if (!fields.IsNullOrMissing("rope_scaling") && !(older == newer)) {
    fields.Invalid("rope_scaling", "it contradicts rope_parameters");
  }
  return newer;
}

void ReadByKind(ConfigFields& fields, const RopeDefaults& defaults, ModelConfig& config,
                std::vector<std::string>& unknown) {
  const RopeConfig outer = Outer(fields, defaults);
  RopeConfig& window = config.window_rope.emplace();
  window.theta = fields.Number("rope_local_base_freq", kMinTheta, kMaxTheta)
                     .value_or(defaults.window_has_theta ? outer.theta : defaults.window_theta);
  const nlohmann::json* object = fields.Object("rope_parameters");
  if (defaults.is_proportional) {
    fields.RefuseUnlessOff("rope_scaling");
    for (const char* kind : {"full_attention", "sliding_attention"}) {
      if (object != nullptr && !object->contains(kind)) {
        fields.Invalid("rope_parameters", absl::StrCat("it must have ", kind));
      }
    }
  }
  if (object == nullptr || !object->contains("full_attention")) {
    // The older spelling: rope_scaling applies only to layers without a window.
    config.rope = ReadForAllLayers(fields, outer, defaults, unknown);
    return;
  }
  fields.Ignore("rope_scaling");
  ConfigFields kinds(*object, fields.source(), "rope_parameters.");
  const auto read = [&](const char* name, const RopeConfig& by_default) {
    const nlohmann::json* kind = kinds.Object(name);
    if (kind == nullptr) return by_default;
    return ReadObject(*kind, fields, absl::StrCat("rope_parameters.", name), by_default, defaults,
                      unknown);
  };
  // transformers writes these beside the kinds, but reads only the kinds.
  for (const char* name : {"rope_type", "rope_theta", "factor", "attention_factor", "beta_fast",
                           "beta_slow", "original_max_position_embeddings"}) {
    kinds.Ignore(name);
  }
  config.rope = read("full_attention", outer);
  window = read("sliding_attention", window);
  if (!kinds.status().ok()) fields.Fail(kinds.status());
  for (const std::string& field : kinds.UnknownNames()) unknown.push_back(field);
}

void Check(ConfigFields& fields, const RopeDefaults& defaults, const RopeConfig& rope,
           int head_dim) {
  const int rotary_dim = RotaryDim(rope, head_dim);
  const auto is = [&](const char* name, double value) {
    return absl::StrCat(fields.source(), ": ", name, " is ", value);
  };
  if (rope.partial_rotary_factor != 1 && !defaults.is_partial) {
    fields.Fail(absl::UnimplementedError(
        absl::StrCat(is("partial_rotary_factor", rope.partial_rotary_factor),
                     ", which is not supported; it must be absent or 1")));
  } else if (rope.partial_rotary_factor != 1 && defaults.is_proportional &&
             rope.scaling != RopeScaling::kProportional) {
    fields.Fail(absl::UnimplementedError(
        absl::StrCat(is("partial_rotary_factor", rope.partial_rotary_factor),
                     ", which is not supported without rope_type proportional")));
  } else if (rotary_dim < 2 || rotary_dim % 2 != 0) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(is("partial_rotary_factor", rope.partial_rotary_factor), "; of head_dim ",
                     head_dim, " it must give an even number of columns, at least 2")));
  }
  if (rope.scaling == RopeScaling::kYarn && rope.theta <= 1) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(is("rope_theta", rope.theta), "; with yarn it must be more than 1")));
  }
  const auto half = static_cast<size_t>(rotary_dim / 2);
  if (rope.scaling == RopeScaling::kLongRope &&
      (rope.short_factor.size() != half || rope.long_factor.size() != half)) {
    fields.Fail(absl::InvalidArgumentError(
        absl::StrCat(fields.source(), ": longrope's short_factor and long_factor have ",
                     rope.short_factor.size(), " and ", rope.long_factor.size(),
                     " numbers; they must have ", half, ", one for each pair of turned columns")));
  }
  if (rope.llama_4_scaling_beta != 0 && !defaults.scales_q) {
    fields.Fail(
        absl::UnimplementedError(absl::StrCat(is("llama_4_scaling_beta", rope.llama_4_scaling_beta),
                                              ", which is not supported for this family")));
  }
}

}  // namespace

void ReadRope(ConfigFields& fields, const RopeDefaults& defaults, ModelConfig& config,
              std::vector<std::string>& unknown) {
  if (defaults.window_theta > 0) {
    ReadByKind(fields, defaults, config, unknown);
    Check(fields, defaults, *config.window_rope, config.head_dim);
  } else {
    config.rope = ReadForAllLayers(fields, Outer(fields, defaults), defaults, unknown);
  }
  const int full_dim =
      config.full_heads.head_dim > 0 ? config.full_heads.head_dim : config.head_dim;
  if (config.rope.scaling == RopeScaling::kProportional) config.rope.whole_dim = full_dim;
  Check(fields, defaults, config.rope, full_dim);
  if (config.rope.llama_4_scaling_beta != 0) {
    config.q_scale_beta = config.rope.llama_4_scaling_beta;
    config.q_scale_context = config.rope.original_max_position_embeddings;
  }
  if (defaults.scales_scores) {
    config.attention_scale = static_cast<float>(
        config.attention_scale * config.rope.mscale_all_dim * config.rope.mscale_all_dim);
  }
}

}  // namespace bulkhead
