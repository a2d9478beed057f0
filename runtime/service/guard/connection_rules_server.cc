// How ConnectionRules handles frames of the server.
#include <algorithm>
#include <utility>

#include "runtime/service/guard/connection_rules.h"

namespace bulkhead {

std::string ConnectionRules::FromServer(absl::string_view bytes, absl::Time now) {
  std::string out;
  FrameHead head;
  while (true) {
    const size_t passed = std::min(server_frames_.payload_left(), bytes.size());
    if (!server_frame_dropped_) out.append(bytes.data(), passed);
    const bool has_head = server_frames_.Next(&bytes, &head);
    const bool has_room = has_head ? server_spoke_ && !in_server_block_ : at_server_border();
    if (has_room) out += std::exchange(to_client_, {});
    if (!has_head) return out;
    server_spoke_ = true;
    const std::optional<uint32_t> stream = OnServerFrame(head, now);
    server_frame_dropped_ = !stream.has_value();
    if (stream.has_value()) AppendFrame(server_frames_.head(), *stream, &out);
    if (head.type == FrameType::kGoAway && server_frames_.last_stream() < kHighestStream) {
      // Each call that the server has not taken is refused by itself.
      server_last_ = server_frames_.last_stream();
      out.resize(out.size() - kLastStreamBytes);
      Append32(calls_.highest_given(), &out);
    }
  }
}

std::optional<uint32_t> ConnectionRules::OnServerFrame(const FrameHead& head, absl::Time now) {
  if (head.stream == 0) return 0;
  const Call found = calls_.FindServers(head.stream);
  const bool is_known = found != calls_.end();
  const std::optional<uint32_t> stream =
      is_known ? std::optional<uint32_t>(found->first) : std::nullopt;
  if (head.type == FrameType::kHeaders || head.type == FrameType::kContinuation) {
    if (!in_server_block_) server_block_stream_ = stream;
    in_server_block_ = !head.Has(frame_flag::kEndHeaders);
    if (head.type == FrameType::kContinuation) return server_block_stream_;
  }
  if (!is_known && head.type == FrameType::kData) dropped_bytes_ += head.payload_bytes;
  if (!is_known) return std::nullopt;
  GuardedCall& call = found->second;
  if (head.type == FrameType::kRstStream) {
    call.client_ended = call.server_ended = true;
  } else if (head.type == FrameType::kHeaders || head.type == FrameType::kData) {
    call.answered = true;
    if (head.Has(frame_flag::kEndStream)) {
      call.server_ended = true;
      call.progress = now;
    }
  } else {
    return stream;
  }
  GiveBackBytes(&call);
  ForgetAnswered(found);
  return stream;
}

}  // namespace bulkhead
