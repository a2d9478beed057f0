#include "runtime/service/guard/call_table.h"

#include <algorithm>
#include <utility>

namespace bulkhead {
namespace {

// gRPC can answer the call, or it is large enough for the memory that gRPC uses.
bool IsReadyForServer(const GuardedCall& call) {
  // A call that streams both ways is answered before its client ends it.
  const bool has_message = call.claimed_bytes > 0 && call.bytes >= call.claimed_bytes;
  return call.client_ended || has_message || call.held.size() >= kMinForwardedBytes;
}

}  // namespace

CallTable::Iterator CallTable::FindServers(uint32_t server_stream) {
  const auto found = client_streams_.find(server_stream);
  return found == client_streams_.end() ? end() : Find(found->second);
}

CallTable::Iterator CallTable::Open(uint32_t client_stream, absl::Time now) {
  const Iterator call = calls_.try_emplace(client_stream).first;
  call->second.opened = call->second.claimed = call->second.progress = now;
  return call;
}

void CallTable::Pass(Iterator call, absl::string_view frame, bool may_hold,
                     std::string* to_server) {
  if (call == end()) return AppendFrame(frame, kNoCall, to_server);
  if (!call->second.is_held()) return AppendFrame(frame, call->second.server_stream, to_server);
  std::string& held = call->second.held;
  held.append(frame.data(), frame.size());
  if (may_hold && !IsReadyForServer(call->second)) return;
  highest_given_ = std::max(highest_given_, call->first);
  call->second.server_stream = next_server_stream_;
  client_streams_[next_server_stream_] = call->first;
  next_server_stream_ += 2;
  ForEachFrame(std::exchange(held, {}), [&](const FrameHead&, absl::string_view one) {
    AppendFrame(one, call->second.server_stream, to_server);
  });
}

void CallTable::Erase(Iterator call, std::string* to_server) {
  ForEachFrame(call->second.held, [&](const FrameHead& head, absl::string_view frame) {
    if (head.type == FrameType::kData) AppendFrame(frame, kNoCall, to_server);
  });
  client_streams_.erase(call->second.server_stream);
  calls_.erase(call);
}

void CallTable::Clear() {
  calls_.clear();
  client_streams_.clear();
}

}  // namespace bulkhead
