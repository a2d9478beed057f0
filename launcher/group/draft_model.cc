#include "launcher/group/draft_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"

namespace bulkhead {

std::string DraftLine(const EngineOptions& options, const RankEngine& engine) {
  const ModelConfig& config = engine.source.draft->config.model;
  const std::string which =
      config.mtp_layer > 0
          ? absl::StrCat("MTP layer ", config.mtp_layer, " (")
          : absl::StrCat("draft model ", options.speculative.model, " (", config.architecture, " ");
  return absl::StrCat(which, WeightFormatsText(engine.draft->limits.weights), "): up to ",
                      options.speculative.drafts.num_speculative_tokens, " tokens a step, up to ",
                      engine.draft->limits.max_model_len, " tokens of a sequence");
}

absl::Status CompareTokenizers(const Tokenizer& tokenizer, const ModelSource& source) {
  constexpr char kFile[] = "/tokenizer.json";
  const absl::StatusOr<std::string> own = ReadWholeFile(source.dir + kFile);
  const absl::StatusOr<std::string> drafts = ReadWholeFile(source.draft->dir + kFile);
  if (!own.ok() || !drafts.ok() || *own == *drafts) return absl::OkStatus();
  BH_ASSIGN_OR_RETURN(const auto other, Tokenizer::Load(source.draft->dir));
  const auto tokens = tokenizer.TokenBytes();
  const auto others = other->TokenBytes();
  if (!tokens.ok() || !others.ok()) return absl::OkStatus();  // depend on surrounding text
  const auto [mine, theirs] =
      std::mismatch(tokens->begin(), tokens->end(), others->begin(), others->end());
  if (mine == tokens->end() && theirs == others->end()) return absl::OkStatus();
  return WithExitCode(absl::InvalidArgumentError(absl::StrCat(
                          "--speculative-config: the draft model's tokenizer ", source.draft->dir,
                          kFile, " has another token for id ", mine - tokens->begin(),
                          " than the model's; choose one of the same vocabulary")),
                      ExitCode::kUsage);
}

}  // namespace bulkhead
