#include "launcher/flags/changed_args.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"

namespace bulkhead {
namespace {

constexpr absl::string_view kKvRules[] = {"--gpu-memory-utilization", "--cache-max-entry-count",
                                          "--kv-cache-bytes", "--kv-cache-memory-bytes"};

bool IsOneOf(absl::string_view arg, absl::Span<const absl::string_view> names) {
  if (!absl::StartsWith(arg, "--")) return false;
  const std::string name = absl::StrReplaceAll(arg.substr(0, arg.find('=')), {{"_", "-"}});
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Index of the end of the flags: "--", or the end.
size_t EndOfFlags(absl::Span<const std::string> args) {
  return static_cast<size_t>(std::find(args.begin(), args.end(), "--") - args.begin());
}

}  // namespace

std::vector<std::string> WithoutFlags(absl::Span<const std::string> args,
                                      absl::Span<const absl::string_view> names) {
  const size_t end = EndOfFlags(args);
  std::vector<std::string> kept;
  for (size_t i = 0; i < args.size(); ++i) {
    if (i >= end || !IsOneOf(args[i], names)) {
      kept.push_back(args[i]);
    } else if (!absl::StrContains(args[i], '=')) {
      ++i;  // its value
    }
  }
  return kept;
}

std::vector<std::string> ChangedArgs(absl::Span<const std::string> args,
                                     absl::Span<const std::string> more) {
  std::vector<std::string> changed = HasFlag(more, kKvRules)
                                         ? WithoutFlags(args, kKvRules)
                                         : std::vector<std::string>(args.begin(), args.end());
  changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(EndOfFlags(changed)), more.begin(),
                 more.end());
  return changed;
}

bool HasFlag(absl::Span<const std::string> args, absl::Span<const absl::string_view> names) {
  const auto flags = args.subspan(0, EndOfFlags(args));
  return std::any_of(flags.begin(), flags.end(),
                     [&](const std::string& arg) { return IsOneOf(arg, names); });
}

}  // namespace bulkhead
