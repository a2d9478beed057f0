// The kinds of change that a remedy is made of, from mild to drastic.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/planning/remedies.h"

namespace bulkhead {

using FlagList = std::vector<std::string>;  // name, value, name, value ...

// `flags` and `more` together; of a name, `more` has the value.
FlagList Joined(const FlagList& flags, const FlagList& more);

// Command lines, tried.
class Trials {
 public:
  // Both outlive this.
  Trials(const std::vector<std::string>& command_line, const PlanAgain& plan_again)
      : command_line_(command_line), plan_again_(plan_again) {}

  // Nothing: the command line with `flags` is none, or the model refuses it.
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
  double doublings = 0;  // how far it is from what was asked for
};

class Change {
 public:
  virtual ~Change() = default;
  // The mildest with which it fits, beside the flags `with`; nothing: none does.
  virtual std::optional<Attempt> Mildest(const FlagList& with) const = 0;
  // From mild to drastic, in steps that are coarse enough to be tried with every other change;
  // empty where they follow from the other change.
  virtual std::vector<Attempt> Steps() const { return {}; }
  // Whether what does not fit with the last step fits with none.
  virtual bool monotone() const { return true; }
};

using Changes = std::vector<std::unique_ptr<Change>>;

// What an operator would try, and what he would try only then. `trials` outlives them.
struct AllChanges {
  Changes usual, last;
};
AllChanges ChangesOf(const Trials& trials, const EngineOptions& options, const ModelLimits& formats,
                     const GroupPlan& refused);

// For a group of another size: --device-memory and --reserve, too, where they are given rank by
// rank.
FlagList GroupFlags(const EngineOptions& options, int size);

// The sizes of group that exist where one of `size` ranks runs on `nodes` hosts: any on CPUs of one
// host, whole hosts, and of a host's GPUs a divisor. Up to 64, without `size`.
std::vector<int> GroupSizes(int size, int nodes, bool gpu);

}  // namespace bulkhead
