#include "comm/tree_bus.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/status.h"

namespace bulkhead {
namespace {

// A message is sent as its length with as much of it as fits, then the rest, if any.
constexpr int64_t kFirstPieceBytes = 4096;
constexpr int64_t kHeadBytes = sizeof(int64_t);
constexpr int64_t kFirstTextBytes = kFirstPieceBytes - kHeadBytes;

// The parent of node n is n without its lowest set bit; its children add one bit below that.
int ParentOf(int node) { return node & (node - 1); }

// Largest subtree first: it has the longest path.
std::vector<int> ChildrenOf(int node, int num_nodes) {
  std::vector<int> children;
  for (int bit = 1; bit < num_nodes && (node & bit) == 0; bit *= 2) {
    if (node + bit < num_nodes) children.push_back(node + bit);
  }
  std::reverse(children.begin(), children.end());
  return children;
}

}  // namespace

absl::Status TreeBus::Publish(absl::string_view message) {
  BH_CHECK(link_ != nullptr && link_->node() == 0);
  BH_RETURN_IF_ERROR(Forward(message));
  return node_.Publish(message);
}

absl::Status TreeBus::Receive(std::string* message) {
  if (link_ == nullptr) return node_.Receive(message);
  const int parent = ParentOf(link_->node());
  first_.resize(kFirstPieceBytes);
  int64_t first_bytes = 0;
  const Incoming first{
      .node = parent, .data = first_.data(), .row_bytes = kFirstPieceBytes, .length = &first_bytes};
  BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kBus, {}, {first}));
  int64_t message_bytes = 0;
  BH_CHECK(first_bytes >= kHeadBytes);
  std::memcpy(&message_bytes, first_.data(), kHeadBytes);
  const int64_t text_bytes = std::min(message_bytes, kFirstTextBytes);
  BH_CHECK(text_bytes == first_bytes - kHeadBytes);
  message->assign(first_, kHeadBytes, text_bytes);
  if (message_bytes > text_bytes) {
    message->resize(message_bytes);
    const Incoming rest{.node = parent,
                        .data = message->data() + text_bytes,
                        .row_bytes = message_bytes - text_bytes};
    BH_RETURN_IF_ERROR(link_->Transfer(LinkKind::kBus, {}, {rest}));
  }
  BH_RETURN_IF_ERROR(Forward(*message));
  return node_.Publish(*message);
}

absl::Status TreeBus::Forward(absl::string_view message) {
  const auto bytes = static_cast<int64_t>(message.size());
  const int64_t text_bytes = std::min(bytes, kFirstTextBytes);
  first_.assign(reinterpret_cast<const char*>(&bytes), kHeadBytes);
  first_.append(message.data(), text_bytes);
  std::vector<Outgoing> sends;
  for (const int child : ChildrenOf(link_->node(), link_->num_nodes())) {
    sends.push_back({child, first_.data(), static_cast<int64_t>(first_.size())});
    if (bytes > text_bytes) {
      sends.push_back({child, message.data() + text_bytes, bytes - text_bytes});
    }
  }
  return sends.empty() ? absl::OkStatus() : link_->Transfer(LinkKind::kBus, sends, {});
}

}  // namespace bulkhead
