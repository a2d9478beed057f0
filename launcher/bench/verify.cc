#include "launcher/bench/verify.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/group/batch.h"
#include "launcher/group/config_text.h"
#include "launcher/python_tool.h"
#include "launcher/version.h"
#include "nlohmann/json.hpp"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

// SHA-256 of rows of logits as they arrive. The rank loop's thread.
class DigestSink final : public LogitsSink {
 public:
  DigestSink() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {}

  absl::Status OnRows(int64_t first_position, int64_t rows, int64_t vocab_size,
                      const float* logits) override {
    if (first_position == 0 && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
      return absl::InternalError("SHA-256 is not available");
    }
    EVP_DigestUpdate(context_.get(), logits, rows * vocab_size * sizeof(float));
    return absl::OkStatus();
  }
  // Once all rows have arrived.
  std::string Hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &length);
    return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), length));
  }

 private:
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

std::string NamesOf(const std::vector<AdapterConfig>& adapters) {
  return absl::StrJoin(adapters, ",", [](std::string* out, const AdapterConfig& adapter) {
    absl::StrAppend(out, adapter.name);
  });
}

class VerifyJob final : public BatchJob {
 public:
  // `measured`: under --against receives the Python tool's input.
  VerifyJob(const VerifyOptions& options, std::string* measured)
      : options_(options), measured_(measured) {}

  absl::Status Open(const EndRank& /*end*/) override {
    if (options_.save.has_value()) {
      out_.open(*options_.save, std::ios::trunc);
      if (out_.is_open()) return absl::OkStatus();
      return CannotWrite("--save", *options_.save);
    }
    BH_RETURN_IF_ERROR(CheckPythonTool());
    BH_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(*options_.against));
    reference_ = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    const bool complete = reference_.is_object() && reference_.contains("subject") &&
                          reference_["subject"].is_object() &&
                          reference_.value("bench", ordered_json()) == "verify";
    if (complete) return absl::OkStatus();
    return AgainstError("it is not what 'bench verify --save' writes");
  }

  absl::Status Prepare(const RankEngine& engine) override {
    const ModelLimits& limits = engine.limits;
    const int longest = *std::max_element(options_.input_lens.begin(), options_.input_lens.end()) +
                        options_.output_len;
    if (longest > limits.max_model_len) {
      return WithExitCode(absl::InvalidArgumentError(
                              absl::StrCat("--input-len and --output-len need max_model_len ",
                                           longest, "; it is ", limits.max_model_len)),
                          ExitCode::kUsage);
    }
    vocab_size_ = static_cast<uint64_t>(engine.source.config.model.vocab_size);
    adapters_ = engine.source.config.model.adapters;
    hosts_ = engine.topology.hosts;
    group_ = {
        {"bench", "verify"},
        {"version", Version()},
        {"tensor_parallel_size", engine.topology.size},
        {"equal_shares", options_.engine.tp_shares.empty() && !options_.engine.tp_shares_auto},
        {"subject",
         {{"activation_dtype", ActivationDTypeName(limits.activation)},
          {"attention_dtype", AttentionDTypeName(limits.attention)},
          {"checkpoint", absl::StrCat(absl::Hex(engine.source.checkpoint->Fingerprint()))},
          {"config", ReadConfigText(engine.source.dir).sha256},
          {"input_len", absl::StrJoin(options_.input_lens, ",")},
          {"kv_cache_dtype", engine.facts().kv_cache_dtype},
          {"lora_modules", NamesOf(adapters_)},
          {"num_prompts", absl::StrCat(options_.num_prompts)},
          {"output_len", absl::StrCat(options_.output_len)},
          {"weight_dtype", WeightFormatsText(limits.weights)}}},
        {"answers", ordered_json::array()}};
    return options_.against.has_value() ? CheckSubject() : absl::OkStatus();
  }

  void Feed(Coordinator& coordinator) override { status_ = Answer(coordinator); }

  absl::Status Outcome() override {
    if (!status_.ok()) return WithExitCode(status_, ExitCode::kClientError);
    if (options_.save.has_value()) return Save();
    group_["hosts"] = hosts_;
    *measured_ = group_.dump();
    return absl::OkStatus();
  }

  size_t size() const override { return options_.num_prompts; }

 private:
  absl::Status AgainstError(const std::string& why) const {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat("--against ", *options_.against, ": ", why)),
        ExitCode::kUsage);
  }

  // Checked before anything is computed.
  absl::Status CheckSubject() const {
    if (reference_.value("version", ordered_json()) != group_["version"]) {
      BH_LOG(kWarning) << "the saved answers are of another version than " << Version()
                       << ": only answers of the same build have equal bits";
    }
    for (const auto& [name, value] : group_["subject"].items()) {
      const ordered_json other = reference_["subject"].value(name, ordered_json("nothing"));
      if (other == value) continue;
      return AgainstError(absl::StrCat("the saved answers have ", name, " ",
                                       other.is_string() ? other.get<std::string>() : other.dump(),
                                       " and this group ", value.get<std::string>(),
                                       "; save them again with the same model and flags"));
    }
    return absl::OkStatus();
  }

  absl::Status Save() {
    out_ << group_.dump(1) << "\n";
    out_.close();
    if (!out_.fail()) return absl::OkStatus();
    return WithExitCode(
        absl::DataLossError(absl::StrCat("writing --save ", *options_.save, " failed")),
        ExitCode::kClientError);
  }

  // Free-running answers, all at once; then the logits of each prompt with its answer, which must
  // have the bits that the tokens were sampled from.
  absl::Status Answer(Coordinator& coordinator) {
    std::mt19937_64 random(1);
    std::vector<Request> requests(options_.num_prompts);
    std::vector<std::vector<TokenId>> texts;
    for (size_t i = 0; i < requests.size(); ++i) {
      Request& request = requests[i];
      const int input_len = options_.input_lens[i % options_.input_lens.size()];
      const bool sampled = i % 2 == 1;
      group_["answers"].push_back({{"input_len", input_len}, {"sampled", sampled}});
      for (int t = 0; t < input_len; ++t) {
        request.prompt.push_back(static_cast<TokenId>(random() % vocab_size_));
      }
      texts.push_back(request.prompt);
      UseAdapter(adapters_, i % (1 + adapters_.size()), request);
      request.sampling.temperature = sampled ? 1.0F : 0.0F;
      request.sampling.seed = i;
      request.stopping.max_tokens = options_.output_len;
      request.stopping.ignore_eos = true;
      request.num_logprobs = 0;
    }
    std::vector<std::vector<GeneratedToken>> generated(requests.size());
    BH_RETURN_IF_ERROR(GenerateAll(
        coordinator, std::move(requests), last_request_, [&](size_t i, const OutputDelta& delta) {
          generated[i].insert(generated[i].end(), delta.tokens.begin(), delta.tokens.end());
        }));
    std::vector<Request> again(options_.num_prompts);
    std::vector<DigestSink> digests(options_.num_prompts);
    for (size_t i = 0; i < again.size(); ++i) {
      again[i].prompt = std::move(texts[i]);
      UseAdapter(adapters_, i % (1 + adapters_.size()), again[i]);
      ordered_json tokens = ordered_json::array();
      ordered_json logprob_bits = ordered_json::array();
      for (const GeneratedToken& token : generated[i]) {
        again[i].prompt.push_back(token.id);
        tokens.push_back(token.id);
        logprob_bits.push_back(std::bit_cast<uint32_t>(token.logprob.value_or(0)));
      }
      group_["answers"][i]["tokens"] = std::move(tokens);
      group_["answers"][i]["logprob_bits"] = std::move(logprob_bits);
      again[i].prompt_logits = &digests[i];
    }
    BH_RETURN_IF_ERROR(GenerateAll(coordinator, std::move(again), last_request_,
                                   [](size_t, const OutputDelta&) {}));
    for (size_t i = 0; i < digests.size(); ++i) {
      group_["answers"][i]["logits_sha256"] = digests[i].Hex();
    }
    return absl::OkStatus();
  }

  const VerifyOptions& options_;
  std::string* const measured_;
  std::ofstream out_;
  ordered_json reference_;  // under --against
  ordered_json group_;      // subject and answers, as --save writes them
  std::vector<std::string> hosts_;
  uint64_t vocab_size_ = 0;
  std::vector<AdapterConfig> adapters_;
  int64_t last_request_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status RunVerify(const VerifyOptions& options) {
  std::string measured;  // on rank 0
  BH_RETURN_IF_ERROR(RunBatch(options.engine, [&]() -> absl::StatusOr<std::unique_ptr<BatchJob>> {
    return std::make_unique<VerifyJob>(options, &measured);
  }));
  if (measured.empty()) return absl::OkStatus();
  std::vector<std::string> args = {"verify-answers", "--against", *options.against};
  if (options.json) args.emplace_back("--json");
  return BecomePythonTool(args, measured);
}

}  // namespace bulkhead
