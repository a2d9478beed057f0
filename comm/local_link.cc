#include "comm/local_link.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/back_off.h"

namespace bulkhead {
namespace {

// Messages in flight: by kind, sender and receiver.
struct Post {
  std::mutex mutex;
  std::map<std::array<int, 3>, std::deque<std::string>> boxes;  // guarded by mutex
};

class LocalLink final : public LeaderLink {
 public:
  LocalLink(int node, int num_nodes, std::shared_ptr<Region> region, std::shared_ptr<Post> post)
      : node_(node), num_nodes_(num_nodes), region_(std::move(region)), post_(std::move(post)) {}
  int node() const override { return node_; }
  int num_nodes() const override { return num_nodes_; }
  void set_may_spin(bool may_spin) override { may_spin_ = may_spin; }

  absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                        absl::Span<const Incoming> receives, int64_t deadline_ns) override {
    for (const Outgoing& out : sends) {
      BH_CHECK(out.node != node_ && out.bytes > 0 && out.bytes <= kMaxLinkMessageBytes);
      const std::lock_guard lock(post_->mutex);
      post_->boxes[{static_cast<int>(kind), node_, out.node}].emplace_back(
          static_cast<const char*>(out.data), out.bytes);
    }
    for (const Incoming& in : receives) {
      BackOff back_off(may_spin_);
      std::string message;
      while (!TryTake({static_cast<int>(kind), in.node, node_}, message)) {
        region_->set_awaited_node(in.node, MonotonicNanos());
        BH_RETURN_IF_ERROR(region_->abort_status());
        if (MonotonicNanos() > deadline_ns) return absl::DeadlineExceededError("");
        back_off.Pause();
      }
      BH_RETURN_IF_ERROR(Put(message, in));
    }
    region_->set_awaited_node(-1, MonotonicNanos());
    return absl::OkStatus();
  }

 private:
  bool TryTake(const std::array<int, 3>& box, std::string& message) {
    const std::lock_guard lock(post_->mutex);
    std::deque<std::string>& messages = post_->boxes[box];
    if (messages.empty()) return false;
    message = std::move(messages.front());
    messages.pop_front();
    return true;
  }
  absl::Status Put(const std::string& message, const Incoming& in) {
    const auto bytes = static_cast<int64_t>(message.size());
    if (in.length != nullptr) {
      BH_CHECK(in.rows == 1 && bytes <= in.row_bytes);
      std::memcpy(in.data, message.data(), bytes);
      *in.length = bytes;
      return absl::OkStatus();
    }
    if (bytes != in.row_bytes * in.rows) {
      return WithExitCode(
          absl::InternalError(absl::StrCat("node ", in.node, " sends ", bytes, " bytes where node ",
                                           node_, " expects ", in.row_bytes * in.rows)),
          ExitCode::kBug);
    }
    for (int64_t row = 0; row < in.rows; ++row) {
      std::memcpy(static_cast<char*>(in.data) + row * in.stride_bytes,
                  message.data() + row * in.row_bytes, in.row_bytes);
    }
    return absl::OkStatus();
  }

  const int node_;
  const int num_nodes_;
  const std::shared_ptr<Region> region_;
  const std::shared_ptr<Post> post_;
  bool may_spin_ = false;
};

}  // namespace

std::vector<std::unique_ptr<LeaderLink>> NewLocalLinks(
    const std::vector<std::shared_ptr<Region>>& regions) {
  const auto post = std::make_shared<Post>();
  std::vector<std::unique_ptr<LeaderLink>> links;
  for (size_t node = 0; node < regions.size(); ++node) {
    links.push_back(std::make_unique<LocalLink>(
        static_cast<int>(node), static_cast<int>(regions.size()), regions[node], post));
  }
  return links;
}

}  // namespace bulkhead
