#include "runtime/service/guard/connection_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/service/guard/refused_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr size_t kMessageHeadBytes = 5;  // gRPC's: compressed or not, length
constexpr int64_t kBesideMessageBytes = 4096;
constexpr absl::Duration kYoung = absl::Seconds(1);
constexpr uint32_t kLargeDataBytes = 1024;
constexpr int kManyIncompleteCalls = 64;
constexpr double kAnsweredFrameCost = 16;  // PING and SETTINGS make the server write

uint32_t BigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// What a body claims by its first frame: the length that its message says, or the most that it may.
int64_t ClaimOf(const FrameHead& head, absl::string_view payload, int64_t most_bytes) {
  if (head.Has(frame_flag::kPadded)) payload.remove_prefix(std::min<size_t>(payload.size(), 1));
  if (payload.size() < kMessageHeadBytes) return most_bytes;
  return BigEndian(payload.substr(1, 4)) + static_cast<int64_t>(kMessageHeadBytes);
}

}  // namespace

bool TokenBucket::Take(double tokens, absl::Time now) {
  if (filled_ != absl::InfinitePast()) {
    tokens_ = std::min(burst_, tokens_ + rate_ * absl::ToDoubleSeconds(now - filled_));
  }
  filled_ = now;
  if (tokens_ < tokens) return false;
  tokens_ -= tokens;
  return true;
}

void ConnectionRules::End(absl::Time now) {
  for (auto& [id, stream] : streams_) {
    GiveBackBytes(&stream);
    totals_->HoldSlot(now);
  }
  streams_.clear();
}

size_t ConnectionRules::FromClient(absl::string_view input, absl::Time now,
                                   std::string* to_server) {
  absl::string_view rest = input;
  Step step = Step::kForward;
  while (close_reason_.empty()) {
    size_t bytes = kHttp2Preface.size();
    if (!has_preface_) {
      const size_t known = std::min(rest.size(), bytes);
      if (rest.substr(0, known) != kHttp2Preface.substr(0, known)) {
        Close("NOT_HTTP2", Http2Error::kProtocolError);
        break;
      }
      if (known < bytes) break;
      has_preface_ = true;
    } else {
      if (rest.size() < kFrameHeadBytes) break;
      const FrameHead head = ParseFrameHead(rest.data());
      if (head.payload_bytes > kMostPayloadBytes) {
        Close("FRAME_TOO_LARGE", Http2Error::kFrameSizeError);
        break;
      }
      bytes = kFrameHeadBytes + head.payload_bytes;
      if (rest.size() < bytes) break;
      step = OnFrame(head, rest.substr(kFrameHeadBytes, head.payload_bytes), now, to_server);
      if (step == Step::kWait || step == Step::kClose) break;
      waiting_since_ = absl::InfiniteFuture();
      is_paid_ = false;
      last_frame_ = now;
    }
    if (step == Step::kForward) to_server->append(rest.data(), bytes);
    rest.remove_prefix(bytes);
    since_ = now;
  }
  const bool was_partial = is_partial_;
  is_partial_ = (!rest.empty() && step != Step::kWait) || last_frame_ == absl::InfinitePast();
  if (is_partial_ && !was_partial) since_ = now;
  return input.size() - rest.size();
}

ConnectionRules::Step ConnectionRules::OnFrame(const FrameHead& head, absl::string_view payload,
                                               absl::Time now, std::string* to_server) {
  if (block_stream_ != 0) return OnContinuation(head);
  if (to_client_.size() >= kMostFramesToClient) return Wait(now);
  double cost = 1;
  if (head.type == FrameType::kData && head.payload_bytes >= kLargeDataBytes) cost = 0;
  if (head.type == FrameType::kPing || head.type == FrameType::kSettings) cost = kAnsweredFrameCost;
  if (!is_paid_ && !frames_.Take(cost, now)) return Wait(now);
  is_paid_ = true;  // a frame that waits is not charged again
  switch (head.type) {
    case FrameType::kHeaders:
      return OnHeaders(head, now);
    case FrameType::kData:
      return OnData(head, payload, now, to_server);
    case FrameType::kRstStream:
      return OnReset(head, now);
    case FrameType::kSettings:
      OnSettings(head, payload);
      return Step::kForward;
    case FrameType::kPing:
    case FrameType::kGoAway:
    case FrameType::kWindowUpdate:
    case FrameType::kPushPromise:   // the server objects
    case FrameType::kContinuation:  // as to this one, outside a header block
      return Step::kForward;
    case FrameType::kPriority:
    default:
      return Step::kDrop;  // means nothing to the server
  }
}

void ConnectionRules::OnSettings(const FrameHead& head, absl::string_view payload) {
  constexpr size_t kSettingBytes = 6;  // number, value
  constexpr uint32_t kTableSize = 1, kDefaultTableSize = 4096;
  acknowledged_ = acknowledged_ || head.Has(frame_flag::kAck);
  for (; payload.size() >= kSettingBytes; payload.remove_prefix(kSettingBytes)) {
    const uint32_t number = BigEndian(payload.substr(0, 2));
    const uint32_t value = BigEndian(payload.substr(2, 4));
    shrinks_table_ = shrinks_table_ || (number == kTableSize && value < kDefaultTableSize);
  }
}

ConnectionRules::Step ConnectionRules::OnHeaders(const FrameHead& head, absl::Time now) {
  if (head.stream % 2 == 0) return Close("BAD_STREAM", Http2Error::kProtocolError);
  if (const auto known = streams_.find(head.stream); known != streams_.end()) {  // trailers
    if (head.Has(frame_flag::kEndStream)) Complete(&known->second);
    return BeginBlock(head, now, false);
  }
  // Trailers of a call that has ended: the server passes over those of calls that it knew.
  if (head.stream <= highest_seen_) return BeginBlock(head, now, head.stream > highest_given_);
  if (const absl::Status why = WhyNotOpened(); !why.ok()) {
    if (!decoder_is_empty_) {
      if (!HasWaitedTooLong(now)) return Wait(now);
      return Close("TOO_MANY_CALLS", Http2Error::kEnhanceYourCalm);
    }
    Refuse(head.stream, why, head.Has(frame_flag::kEndStream), Http2Error::kRefusedStream);
    highest_seen_ = head.stream;
    return BeginBlock(head, now, true);
  }
  totals_->counters->open_calls.Add(1);
  Stream& stream = streams_[head.stream];
  stream.opened = stream.progress = now;
  ++incomplete_calls_;
  if (head.Has(frame_flag::kEndStream)) Complete(&stream);
  highest_seen_ = highest_given_ = head.stream;
  return BeginBlock(head, now, false);
}

ConnectionRules::Step ConnectionRules::BeginBlock(const FrameHead& head, absl::Time now,
                                                  bool dropped) {
  block_dropped_ = dropped;
  block_bytes_ = head.payload_bytes;
  block_frames_ = 1;
  block_since_ = now;
  const bool whole = head.Has(frame_flag::kEndHeaders);
  block_stream_ = whole ? 0 : head.stream;
  if (whole && !dropped && acknowledged_) decoder_is_empty_ = true;
  return dropped ? Step::kDrop : Step::kForward;
}

ConnectionRules::Step ConnectionRules::OnContinuation(const FrameHead& head) {
  if (head.type != FrameType::kContinuation || head.stream != block_stream_) {
    return Close("BAD_HEADERS", Http2Error::kProtocolError);
  }
  block_bytes_ += head.payload_bytes;
  ++block_frames_;
  if (block_bytes_ > kMostHeaderBlockBytes || block_frames_ > kMostHeaderBlockFrames) {
    return Close("HEADERS_TOO_LARGE", Http2Error::kEnhanceYourCalm);
  }
  if (head.Has(frame_flag::kEndHeaders)) {
    block_stream_ = 0;
    if (!block_dropped_ && acknowledged_) decoder_is_empty_ = true;
  }
  return block_dropped_ ? Step::kDrop : Step::kForward;
}

ConnectionRules::Step ConnectionRules::OnData(const FrameHead& head, absl::string_view payload,
                                              absl::Time now, std::string* to_server) {
  const auto found = streams_.find(head.stream);
  // Of a call that has ended it goes on, too: the server passes over it, and gives back what it
  // took of the connection's window.
  if (found == streams_.end()) return Step::kForward;
  Stream& stream = found->second;
  if (!stream.answered && !stream.server_ended && head.payload_bytes > 0) {
    stream.client_ended = head.Has(frame_flag::kEndStream);
    const int64_t most_bytes =
        totals_->quotas.message_bytes + kRefusedMessageBytes + kMessageHeadBytes;
    if (stream.claimed_bytes == 0) {
      const int64_t claim = ClaimOf(head, payload, most_bytes);
      if (claim > most_bytes) {
        const int64_t message_bytes = claim - static_cast<int64_t>(kMessageHeadBytes);
        EndCall(found, WhyTooLarge(message_bytes, totals_->quotas.message_bytes), now, to_server);
        return Step::kForward;
      }
      if (!totals_->TakeRequestBytes(claim)) {
        if (!HasWaitedTooLong(now)) return Wait(now);
        EndCall(found, NoRoomForBody(claim, totals_->quotas.request_bytes), now, to_server);
        return Step::kForward;
      }
      stream.claimed_bytes = claim;
    }
    stream.bytes += head.payload_bytes;
    if (stream.bytes > stream.claimed_bytes + kBesideMessageBytes) {
      EndCall(found, BodyLongerThanItSays(stream.bytes, stream.claimed_bytes), now, to_server);
      return Step::kForward;
    }
    stream.progress = now;
  }
  if (head.Has(frame_flag::kEndStream)) {
    Complete(&stream);
    ForgetAnswered(found);
  }
  return Step::kForward;
}

ConnectionRules::Step ConnectionRules::OnReset(const FrameHead& head, absl::Time now) {
  const auto found = streams_.find(head.stream);
  if (found == streams_.end()) return Step::kForward;
  const bool costs = now - found->second.opened < kYoung;
  if (costs && !HasWaitedTooLong(now) && !(totals_->has_reset_slot() && resets_.Take(1, now))) {
    return Wait(now);
  }
  GiveBackBytes(&found->second);
  totals_->HoldSlot(now);
  streams_.erase(found);
  return Step::kForward;
}

std::string ConnectionRules::FromServer(absl::string_view bytes, absl::Time now) {
  std::string out;
  FrameHead head;
  while (true) {
    const size_t passed = std::min(server_frames_.payload_left(), bytes.size());
    if (!server_frame_dropped_) out.append(bytes.data(), passed);
    const bool has_head = server_frames_.Next(&bytes, &head);
    const bool has_room =
        has_head ? server_spoke_ && server_block_ == Block::kNone : at_server_border();
    if (has_room) out += std::exchange(to_client_, {});
    if (!has_head) return out;
    server_spoke_ = true;
    server_frame_dropped_ = !OnServerFrame(head, now);
    if (!server_frame_dropped_) absl::StrAppend(&out, server_frames_.head());
  }
}

bool ConnectionRules::OnServerFrame(const FrameHead& head, absl::Time now) {
  const auto found = streams_.find(head.stream);
  const bool is_known = head.stream == 0 || found != streams_.end();
  if (head.type == FrameType::kHeaders || head.type == FrameType::kContinuation) {
    const bool dropped =
        server_block_ == Block::kDropped || (server_block_ == Block::kNone && !is_known);
    server_block_ = head.Has(frame_flag::kEndHeaders) ? Block::kNone
                    : dropped                         ? Block::kDropped
                                                      : Block::kForwarded;
    if (dropped) return false;
  }
  if (head.type == FrameType::kRstStream && !is_known) return false;
  if (found == streams_.end()) return true;
  Stream& stream = found->second;
  if (head.type == FrameType::kRstStream) {
    stream.client_ended = stream.server_ended = true;
  } else if (head.type == FrameType::kHeaders || head.type == FrameType::kData) {
    stream.answered = true;
    if (head.Has(frame_flag::kEndStream)) {
      stream.server_ended = true;
      stream.progress = now;
    }
  } else {
    return true;
  }
  GiveBackBytes(&stream);
  ForgetAnswered(found);
  return true;
}

void ConnectionRules::Tick(absl::Time now, bool reading, std::string* to_server) {
  if (!close_reason_.empty()) return;
  if (!reading) {  // not the client's fault
    since_ = now;
    block_since_ = now;
    for (auto& [id, stream] : streams_) stream.progress = now;
  }
  if (is_partial_ && now - since_ > kMostFrameTime) {
    Close(last_frame_ == absl::InfinitePast() ? "SILENT" : "SLOW_SENDER", Http2Error::kNoError);
    return;
  }
  if (block_stream_ != 0) {
    if (now - block_since_ > kMostFrameTime) Close("SLOW_SENDER", Http2Error::kNoError);
    return;  // nothing may come between the frames of a header block
  }
  std::vector<uint32_t> slow;
  for (const auto& [id, stream] : streams_) {
    // The server's own reset of what its client did not end should have come.
    const bool is_over = stream.server_ended && now - stream.progress > kYoung;
    if (!is_over && !IsTooSlow(stream, now)) continue;
    if (--totals_->ends_left < 0) break;
    slow.push_back(id);
  }
  for (const uint32_t id : slow) {
    const auto stream = streams_.find(id);
    EndCall(stream, BodyTooSlow(stream->second.bytes), now, to_server);
  }
}

bool ConnectionRules::IsTooSlow(const Stream& stream, absl::Time now) const {
  if (!stream.is_incomplete) return false;
  const absl::Duration age = now - stream.opened;
  if (now - stream.progress > kStalledBodyTime) return true;
  if (age > kMostBodyTime + absl::Seconds(stream.claimed_bytes) / kLeastBodyRate) return true;
  return totals_->is_pressed() && age > kPressedBodyTime && now != stream.progress &&
         static_cast<double>(stream.bytes) <
             static_cast<double>(kLeastBodyRate) * absl::ToDoubleSeconds(age);
}

int64_t ConnectionRules::unaccounted_bytes() const {
  int64_t bytes = 0;
  for (const auto& [id, stream] : streams_) {
    if (stream.is_incomplete) bytes += stream.claimed_bytes + kOpenCallBytes;
  }
  return bytes;
}

ConnectionRules::Step ConnectionRules::Wait(absl::Time now) {
  if (!is_waiting()) waiting_since_ = now;
  return Step::kWait;
}

ConnectionRules::Step ConnectionRules::Close(const char* reason, Http2Error error) {
  close_reason_ = reason;
  to_client_ += GoAway(error);
  return Step::kClose;
}

void ConnectionRules::EndCall(Streams::iterator stream, const absl::Status& why, absl::Time now,
                              std::string* to_server) {
  if (!stream->second.server_ended) {
    Refuse(stream->first, why, stream->second.client_ended, Http2Error::kEnhanceYourCalm);
  } else {
    to_client_ += RstStreamFrame(stream->first, Http2Error::kNoError);
  }
  *to_server += RstStreamFrame(stream->first, Http2Error::kCancel);
  GiveBackBytes(&stream->second);
  totals_->HoldSlot(now);
  streams_.erase(stream);
}

void ConnectionRules::Refuse(uint32_t stream, const absl::Status& why, bool client_ended,
                             Http2Error bare) {
  totals_->errors->Add(ReasonOf(why));
  const bool says_why = !shrinks_table_ && to_client_.size() < kMostFramesToClient;
  to_client_ += says_why ? RefusalFrames(stream, why, client_ended) : RstStreamFrame(stream, bare);
}

void ConnectionRules::Complete(Stream* stream) {
  stream->client_ended = true;
  if (std::exchange(stream->is_incomplete, false)) --incomplete_calls_;
}

// The last slots are not for who has many calls that have not come in whole.
absl::Status ConnectionRules::WhyNotOpened() const {
  if (totals_->refuses_calls) return HostIsShortOfMemory();
  if (!totals_->has_open_call()) {
    return TooManyCalls(totals_->counters->open_calls.now(), totals_->quotas.max_open_calls);
  }
  if (incomplete_calls_ >= kManyIncompleteCalls && totals_->is_short_of_calls()) {
    return TooManyIncompleteCalls(incomplete_calls_);
  }
  return absl::OkStatus();
}

void ConnectionRules::GiveBackBytes(Stream* stream) {
  if (std::exchange(stream->is_incomplete, false)) --incomplete_calls_;
  totals_->counters->request_bytes.Sub(std::exchange(stream->claimed_bytes, 0));
}

void ConnectionRules::ForgetAnswered(Streams::iterator stream) {
  if (!stream->second.client_ended || !stream->second.server_ended) return;
  totals_->counters->open_calls.Sub(1);
  GiveBackBytes(&stream->second);
  streams_.erase(stream);
}

}  // namespace bulkhead
