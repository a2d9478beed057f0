#include "launcher/bench/scale.h"

#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "base/whole_file.h"
#include "launcher/bench/child.h"
#include "launcher/bench/provenance.h"
#include "launcher/bench/scale_result.h"
#include "launcher/exit_status.h"
#include "launcher/version.h"

namespace bulkhead {
namespace {

absl::StatusOr<ScaleRow> MeasureSize(const ScaleOptions& options, int ranks) {
  ScaleRow row;
  row.ranks = ranks;
  std::vector<std::string> args = {"plan"};
  args.insert(args.end(), options.plan_args.begin(), options.plan_args.end());
  args.insert(args.end(), {"--tensor-parallel-size", absl::StrCat(ranks), "--json"});
  BH_ASSIGN_OR_RETURN(const ChildEnd planned, RunGroup({}, 1, args));
  const bool fits = planned.exit_code != static_cast<int>(ExitCode::kDoesNotFit);
  if (fits) BH_RETURN_IF_ERROR(StatusOfChild(absl::StrCat("the plan for --tp ", ranks), planned));
  BH_ASSIGN_OR_RETURN(row.planned, ParsePlanned(planned.out));
  if (!fits) return row;
  args = {"bench", "throughput"};
  args.insert(args.end(), options.throughput_args.begin(), options.throughput_args.end());
  args.insert(args.end(), {"--tensor-parallel-size", absl::StrCat(ranks), "--json"});
  BH_ASSIGN_OR_RETURN(const ChildEnd measured, RunGroup(options.launch, ranks, args));
  BH_RETURN_IF_ERROR(StatusOfChild(GroupName(options.launch, ranks), measured));
  BH_ASSIGN_OR_RETURN(row.measured, ParseMeasured(measured.out));
  return row;
}

}  // namespace

absl::Status RunScale(const ScaleOptions& options) {
  BH_RETURN_IF_ERROR(CheckMayLaunch("bench scale"));
  std::ofstream out;
  if (options.out.has_value()) {
    out.open(*options.out, std::ios::trunc);
    if (!out.is_open()) {
      return CannotWrite("--out", *options.out);
    }
  }
  std::vector<ScaleRow> rows;
  for (const int ranks : options.sizes) {
    BH_ASSIGN_OR_RETURN(rows.emplace_back(), MeasureSize(options, ranks));
  }
  const std::string json = ScaleJson(rows, options.model, std::string(Version()), DateText());
  std::cout << (options.json ? json : ScaleTable(rows));
  BH_RETURN_IF_ERROR(FlushStandardOutput());
  if (!options.out.has_value()) return absl::OkStatus();
  out << json << std::flush;
  if (out.good()) return absl::OkStatus();
  return WithExitCode(absl::DataLossError(absl::StrCat("writing --out ", *options.out, " failed")),
                      ExitCode::kClientError);
}

}  // namespace bulkhead
