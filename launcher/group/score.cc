#include "launcher/group/score.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/log.h"
#include "base/status.h"
#include "launcher/group/batch.h"
#include "launcher/group/request_rules.h"
#include "launcher/prompts.h"
#include "nlohmann/json.hpp"
#include "runtime/engine/prompt_score.h"
#include "runtime/service/prompt_builder.h"

namespace bulkhead {
namespace {

using nlohmann::ordered_json;

// State shared by all texts.
struct ScoreTotals {
  ResultLines lines;
  std::atomic<int> scored{0};
  std::atomic<int> failed{0};
  std::atomic<int64_t> tokens{0};  // of scored texts
};

// A text being scored.
class TextScore final : public RequestSink {
 public:
  TextScore(ScoreTotals& totals, size_t i, std::vector<TokenId> tokens)
      : totals_(totals), i_(i), score_(std::move(tokens)) {}

  void OnDelta(OutputDelta /*delta*/) override {}
  void OnEnd(RequestEnd end) override { Finish(end.status); }

  void Finish(const absl::Status& status) {
    ordered_json line = {{"index", i_}};
    if (status.ok()) {
      ++totals_.scored;
      totals_.tokens += static_cast<int64_t>(score_.tokens().size());
      line["tokens"] = score_.tokens().size();
      line["nll"] = score_.nll();
    } else {
      ++totals_.failed;
      line["error"] = {{"code", absl::StatusCodeToString(status.code())},
                       {"message", std::string(status.message())}};
    }
    totals_.lines.Set(i_, line.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  }
  PromptScore& score() { return score_; }

 private:
  ScoreTotals& totals_;
  const size_t i_;
  PromptScore score_;
};

class ScoreJob final : public BatchJob {
 public:
  ScoreJob(const ScoreOptions& options, PromptLines lines)
      : options_(options), lines_(std::move(lines)) {}

  absl::Status Open(const EndRank& end) override {
    BH_RETURN_IF_ERROR(CheckApart("--out", options_.out, "--texts", options_.texts));
    return totals_.lines.Open(options_.out, end);
  }

  absl::Status Prepare(const RankEngine& engine) override {
    BH_RETURN_IF_ERROR(CheckHasLmHead(engine.source));
    rules_ = RequestRulesOf(engine, options_.engine);
    BH_LOG(kInfo) << absl::StrFormat("scoring: logits are computed in tiles of %d rows, %s each",
                                     kLogitTileRows,
                                     FormatBytes(int64_t{kLogitTileRows} * rules_.vocab_size * 4));
    totals_.lines.Expect(lines_.size());
    for (size_t i = 0; i < lines_.size(); ++i) {
      absl::StatusOr<std::vector<TokenId>> tokens = TokensOf(lines_[i], rules_);
      statuses_.push_back(tokens.status());
      scores_.push_back(std::make_shared<TextScore>(
          totals_, i, tokens.ok() ? *std::move(tokens) : std::vector<TokenId>()));
    }
    return absl::OkStatus();
  }

  void Feed(Coordinator& coordinator) override {
    for (size_t i = 0; i < scores_.size(); ++i) {
      absl::Status status = statuses_[i];
      if (status.ok()) {
        Request request;
        request.request_id = absl::StrCat(i);
        request.prompt = scores_[i]->score().tokens();
        request.wants_text = false;
        SetAdapter(lines_[i].request->model(), rules_, request);
        request.prompt_logits = &scores_[i]->score();
        status = coordinator.Submit(std::move(request), scores_[i]);
      }
      if (!status.ok()) scores_[i]->Finish(status);
    }
    totals_.lines.WaitForAll();
  }

  std::string Progress(absl::Duration taken) const override {
    return absl::StrFormat("%s: %s tokens, %.1f tokens/s",
                           DoneText(totals_.scored, lines_.size(), "text", taken),
                           FormatCount(totals_.tokens),
                           static_cast<double>(totals_.tokens) / absl::ToDoubleSeconds(taken));
  }

  absl::Status Outcome() override {
    BH_RETURN_IF_ERROR(totals_.lines.Close());
    return FailedLines(totals_.failed, scores_.size(), "text");
  }

  size_t size() const override { return lines_.size(); }

 private:
  // It may have max_model_len tokens: no room for an answer is needed.
  static absl::StatusOr<std::vector<TokenId>> TokensOf(const PromptLine& line,
                                                       const RequestRules& rules) {
    BH_RETURN_IF_ERROR(line.request.status());
    BH_RETURN_IF_ERROR(AtLine(line.number, CheckNames(*line.request, rules)));
    absl::StatusOr<std::vector<TokenId>> tokens =
        BuildPrompt(*line.request, rules, /*reserved_tokens=*/0);
    if (!tokens.ok()) tokens = AtLine(line.number, tokens.status());
    return tokens;
  }

  const ScoreOptions& options_;
  PromptLines lines_;
  RequestRules rules_;
  ScoreTotals totals_;
  std::vector<absl::Status> statuses_;
  std::vector<std::shared_ptr<TextScore>> scores_;
};

}  // namespace

absl::Status RunScore(const ScoreOptions& options) {
  return RunBatch(options.engine, [&]() -> absl::StatusOr<std::unique_ptr<BatchJob>> {
    BH_ASSIGN_OR_RETURN(PromptLines lines, ReadTexts(options.texts));
    BH_RETURN_IF_ERROR(CheckLines("--texts", lines));
    return std::make_unique<ScoreJob>(options, std::move(lines));
  });
}

}  // namespace bulkhead
