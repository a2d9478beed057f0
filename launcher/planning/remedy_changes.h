// The kinds of changes that remedies consist of, from mild to drastic.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/planning/remedies.h"

namespace bulkhead {

using FlagList = std::vector<std::string>;  // name, value, name, value ...

// `flags` overridden by `more`.
FlagList Joined(const FlagList& flags, const FlagList& more);

// Tries command lines.
class Trials {
 public:
  // Both outlive this.
  Trials(const std::vector<std::string>& command_line, const PlanAgain& plan_again)
      : command_line_(command_line), plan_again_(plan_again) {}

  // Nothing if the command line with `flags` is invalid, or the model refuses it.
  std::optional<Command> Parse(const FlagList& flags) const;
  std::optional<GroupPlan> Plan(const FlagList& flags) const;
  bool Fits(const FlagList& flags) const;
  const std::vector<std::string>& command_line() const { return command_line_; }

 private:
  const std::vector<std::string>& command_line_;
  const PlanAgain& plan_again_;
};

struct Attempt {
  FlagList flags;
  std::string text;
  double doublings = 0;  // distance from the requested value
};

class Change {
 public:
  virtual ~Change() = default;
  // The mildest one that fits together with the flags `with`; nothing if none does.
  virtual std::optional<Attempt> Mildest(const FlagList& with) const = 0;
  // From mild to drastic, in steps coarse enough to be combined with every other change; empty if
  // they follow from the other change.
  virtual std::vector<Attempt> Steps() const { return {}; }
  // Whether nothing fits if the last step does not.
  virtual bool monotone() const { return true; }
};

// A larger --host-memory, if the given one is too small for the clients' maximum.
class HostMemoryChange final : public Change {
 public:
  // `trials` outlives this.
  explicit HostMemoryChange(const Trials& trials) : trials_(trials) {}
  // The minimum.
  std::optional<Attempt> Mildest(const FlagList& with) const override;
  // A value with which no plan lacks any.
  std::vector<Attempt> Steps() const override { return {At(kMaxHostMemory)}; }

 private:
  static Attempt At(int64_t bytes);

  const Trials& trials_;
};

using Changes = std::vector<std::unique_ptr<Change>>;

// The usual changes, and changes for when those do not help. `trials` outlives them.
struct AllChanges {
  Changes usual, last;
};
AllChanges ChangesOf(const Trials& trials, const EngineOptions& options, const ModelLimits& formats,
                     const GroupPlan& refused);

// For a group of another size: also --device-memory and --reserve if given per rank.
FlagList GroupFlags(const EngineOptions& options, int size);

// The possible group sizes if one of `size` ranks runs on `nodes` hosts: any on CPUs of one host,
// whole hosts, and for GPUs of a host a divisor. Up to 64, without `size`.
std::vector<int> GroupSizes(int size, int nodes, bool gpu);

}  // namespace bulkhead
