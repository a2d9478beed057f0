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
constexpr double kAnsweredFrameCost = 16;  // PING and SETTINGS make the server write

uint32_t BigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

// Bytes that a body claims by its first frame: its message's stated length, or the maximum.
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
  for (auto& [stream, call] : calls_) {
    GiveBackBytes(&call);
    GiveBackSlot(call, now);
  }
  calls_.Clear();
}

size_t ConnectionRules::FromClient(absl::string_view input, absl::Time now,
                                   std::string* to_server) {
  absl::string_view rest = input;
  Step step = Step::kTaken;
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
      absl::StrAppend(to_server, kHttp2Preface);
    } else {
      if (rest.size() < kFrameHeadBytes) break;
      const FrameHead head = ParseFrameHead(rest.data());
      if (head.payload_bytes > kMaxPayloadBytes) {
        Close("FRAME_TOO_LARGE", Http2Error::kFrameSizeError);
        break;
      }
      bytes = kFrameHeadBytes + head.payload_bytes;
      if (rest.size() < bytes) break;
      step = OnFrame(head, rest.substr(0, bytes), now, to_server);
      if (step != Step::kTaken) break;
      waiting_since_ = absl::InfiniteFuture();
      is_paid_ = false;
      last_frame_ = now;
    }
    rest.remove_prefix(bytes);
    since_ = now;
  }
  const bool was_partial = is_partial_;
  is_partial_ = (!rest.empty() && step != Step::kWait) || last_frame_ == absl::InfinitePast();
  if (is_partial_ && !was_partial) since_ = now;
  return input.size() - rest.size();
}

ConnectionRules::Step ConnectionRules::OnFrame(const FrameHead& head, absl::string_view frame,
                                               absl::Time now, std::string* to_server) {
  if (block_stream_ != 0) return OnContinuation(head, frame, now, to_server);
  if (to_client_.size() >= kMaxFramesToClient) return Wait(now);
  double cost = 1;
  if (head.type == FrameType::kData && head.payload_bytes >= kLargeDataBytes) cost = 0;
  if (head.type == FrameType::kPing || head.type == FrameType::kSettings) cost = kAnsweredFrameCost;
  if (!is_paid_ && !frames_.Take(cost, now)) return Wait(now);
  is_paid_ = true;  // a frame that waits is not charged again
  switch (head.type) {
    case FrameType::kHeaders:
      return OnHeaders(head, frame, now, to_server);
    case FrameType::kData:
      return OnData(head, frame, now, to_server);
    case FrameType::kRstStream:
      return OnReset(head, now, to_server);
    case FrameType::kWindowUpdate:
      if (head.stream != 0) {
        const Call call = calls_.Find(head.stream);
        if (call != calls_.end()) calls_.Pass(call, frame, decoder_is_empty_, to_server);
        return Step::kTaken;
      }
      break;
    case FrameType::kSettings:
      OnSettings(head, frame.substr(kFrameHeadBytes));
      break;
    case FrameType::kPing:
    case FrameType::kGoAway:
    case FrameType::kPushPromise:   // the server objects
    case FrameType::kContinuation:  // as to this one, outside a header block
      break;
    case FrameType::kPriority:
    default:
      return Step::kTaken;  // has no meaning to the server
  }
  absl::StrAppend(to_server, frame);
  return Step::kTaken;
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

ConnectionRules::Step ConnectionRules::OnHeaders(const FrameHead& head, absl::string_view frame,
                                                 absl::Time now, std::string* to_server) {
  if (head.stream % 2 == 0) return Close("BAD_STREAM", Http2Error::kProtocolError);
  // gRPC would decode the padding, and make the call that it names.
  if (head.Has(frame_flag::kPadded)) return Close("BAD_HEADERS", Http2Error::kProtocolError);
  block_stream_ = head.stream;
  block_flags_ = head.flags;
  block_frames_ = 0;
  block_since_ = now;
  return AddToBlock(head, frame, now, to_server);
}

ConnectionRules::Step ConnectionRules::OnContinuation(const FrameHead& head,
                                                      absl::string_view frame, absl::Time now,
                                                      std::string* to_server) {
  if (head.type != FrameType::kContinuation || head.stream != block_stream_) {
    return Close("BAD_HEADERS", Http2Error::kProtocolError);
  }
  return AddToBlock(head, frame, now, to_server);
}

ConnectionRules::Step ConnectionRules::AddToBlock(const FrameHead& head, absl::string_view frame,
                                                  absl::Time now, std::string* to_server) {
  ++block_frames_;
  const size_t bytes = block_.size() + head.payload_bytes;
  if (bytes > kMaxPayloadBytes || block_frames_ > kMaxHeaderBlockFrames) {
    if (bytes > kMaxPayloadBytes && block_stream_ > highest_seen_) {
      Refuse(block_stream_, MetadataTooLarge(bytes, kMaxMetadataBytes), /*client_ended=*/true,
             Http2Error::kEnhanceYourCalm);
    }
    return Close("HEADERS_TOO_LARGE", Http2Error::kEnhanceYourCalm);
  }
  absl::StrAppend(&block_, frame.substr(kFrameHeadBytes));
  return head.Has(frame_flag::kEndHeaders) ? OnBlock(now, to_server) : Step::kTaken;
}

ConnectionRules::Step ConnectionRules::OnBlock(absl::Time now, std::string* to_server) {
  const uint32_t stream = std::exchange(block_stream_, 0);
  const std::string block = std::exchange(block_, {});
  const bool ends = (block_flags_ & frame_flag::kEndStream) != 0;
  if (ReadBlock(block) == Step::kClose) return Step::kClose;
  Call call = calls_.Find(stream);
  if (stream > highest_seen_) {
    highest_seen_ = stream;
    if (OpenCall(stream, block.size(), ends, now) == Step::kClose) return Step::kClose;
    call = calls_.Find(stream);
  } else if (call != calls_.end() && block.size() > kMaxMetadataBytes) {
    EndCall(call, MetadataTooLarge(block.size(), kMaxMetadataBytes), now, to_server);
    call = calls_.end();
  }
  if (call != calls_.end() && ends) Complete(&call->second);
  // In one frame: gRPC takes no other blocks that it decodes but does not serve.
  calls_.Pass(call, HeadersFrame(stream, block_flags_, block), decoder_is_empty_, to_server);
  decoder_is_empty_ = acknowledged_;
  return Step::kTaken;
}

ConnectionRules::Step ConnectionRules::OnData(const FrameHead& head, absl::string_view frame,
                                              absl::Time now, std::string* to_server) {
  const Call found = calls_.Find(head.stream);
  const auto end_with = [&](const absl::Status& why) {
    EndCall(found, why, now, to_server);
    calls_.Pass(calls_.end(), frame, false, to_server);
    return Step::kTaken;
  };
  // Frames of an ended call are also forwarded: the server skips them, and gives back their part of
  // the connection's window.
  if (found == calls_.end()) {
    calls_.Pass(found, frame, false, to_server);
    return Step::kTaken;
  }
  GuardedCall& call = found->second;
  const bool ends = head.Has(frame_flag::kEndStream);
  if (!call.answered && !call.server_ended && head.payload_bytes > 0) {
    call.client_ended = ends;
    const HostQuotas& quotas = totals_->quotas;
    const int64_t most_bytes =
        quotas.message_bytes + quotas.refused_message_bytes + kMessageHeadBytes;
    // A held call's message length may come later; the bytes before it are bounded.
    const bool claims = call.claimed_bytes == 0 &&
                        (!call.is_held() || ends || head.payload_bytes >= kMessageHeadBytes);
    if (claims) {
      const int64_t claim =
          call.bytes > 0 ? most_bytes : ClaimOf(head, frame.substr(kFrameHeadBytes), most_bytes);
      if (claim > most_bytes) {
        const int64_t message_bytes = claim - static_cast<int64_t>(kMessageHeadBytes);
        return end_with(WhyTooLarge(message_bytes, quotas.message_bytes));
      }
      if (!totals_->counters->TakeRequestBytes(claim, 0, quotas.request_bytes)) {
        if (!HasWaitedTooLong(now)) return Wait(now);
        return end_with(NoRoomForBody(claim, quotas.request_bytes));
      }
      call.claimed_bytes = claim;
      call.claimed = now;
    }
    call.bytes += head.payload_bytes;
    if (call.bytes > call.claimed_bytes + kBesideMessageBytes) {
      return end_with(BodyLongerThanItSays(call.bytes, call.claimed_bytes));
    }
    call.progress = now;
  }
  if (ends) Complete(&call);
  calls_.Pass(found, frame, decoder_is_empty_, to_server);
  if (ends) ForgetAnswered(found);
  return Step::kTaken;
}

ConnectionRules::Step ConnectionRules::OnReset(const FrameHead& head, absl::Time now,
                                               std::string* to_server) {
  const Call found = calls_.Find(head.stream);
  if (found == calls_.end()) return Step::kTaken;
  const bool costs = !found->second.is_held() && now - found->second.opened < kYoung;
  if (costs && !HasWaitedTooLong(now) && !(totals_->has_reset_slot() && resets_.Take(1, now))) {
    return Wait(now);
  }
  Forget(found, now, to_server);
  return Step::kTaken;
}

void ConnectionRules::Tick(absl::Time now, bool reading, std::string* to_server) {
  if (!close_reason_.empty()) return;
  if (!reading) {  // not the client's fault
    since_ = now;
    block_since_ = now;
    for (auto& [stream, call] : calls_) call.progress = now;
  }
  if (is_partial_ && now - since_ > kMaxFrameTime) {
    Close(last_frame_ == absl::InfinitePast() ? "SILENT" : "SLOW_SENDER", Http2Error::kNoError);
    return;
  }
  if (block_stream_ != 0 && now - block_since_ > kMaxFrameTime) {
    Close("SLOW_SENDER", Http2Error::kNoError);
    return;
  }
  if (dropped_bytes_ > 0) *to_server += WindowUpdateFrame(std::exchange(dropped_bytes_, 0));
  std::vector<uint32_t> ended;
  for (const auto& [stream, call] : calls_) {
    // The server should have reset the call that its client did not end.
    const bool is_over = call.server_ended && now - call.progress > kYoung;
    if (!is_over && !IsTooSlow(call, now) && !IsNotTaken(call)) continue;
    // A held call costs the server nothing.
    if (!call.is_held() && --totals_->ends_left < 0) break;
    ended.push_back(stream);
  }
  for (const uint32_t stream : ended) {
    const Call call = calls_.Find(stream);
    if (IsNotTaken(call->second)) {
      to_client_ += RstStreamFrame(stream, Http2Error::kRefusedStream);
      Forget(call, now, to_server);
    } else {
      EndCall(call, BodyTooSlow(call->second.bytes), now, to_server);
    }
  }
}

bool ConnectionRules::IsTooSlow(const GuardedCall& call, absl::Time now) const {
  if (!call.is_incomplete) return false;
  const absl::Duration age = now - call.opened;
  if (now - call.progress > kStalledBodyTime) return true;
  if (age > kMaxBodyTime + absl::Seconds(call.claimed_bytes) / kMinBodyRate) return true;
  // It may have waited for its bytes before.
  const absl::Duration sending = now - call.claimed;
  return totals_->is_pressed() && sending > kPressedBodyTime && now != call.progress &&
         static_cast<double>(call.bytes) <
             static_cast<double>(kMinBodyRate) * absl::ToDoubleSeconds(sending);
}

int64_t ConnectionRules::unaccounted_bytes() const {
  auto bytes = static_cast<int64_t>(block_.size());
  for (const auto& [stream, call] : calls_.calls()) {
    if (!call.is_incomplete) continue;
    bytes += call.claimed_bytes +
             (call.is_held() ? static_cast<int64_t>(call.held.size()) : kOpenCallBytes);
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

void ConnectionRules::EndCall(Call call, const absl::Status& why, absl::Time now,
                              std::string* to_server) {
  if (!call->second.server_ended) {
    Refuse(call->first, why, call->second.client_ended, Http2Error::kEnhanceYourCalm);
  } else {
    to_client_ += RstStreamFrame(call->first, Http2Error::kNoError);
  }
  Forget(call, now, to_server);
}

void ConnectionRules::Forget(Call call, absl::Time now, std::string* to_server) {
  if (!call->second.is_held()) {
    *to_server += RstStreamFrame(call->second.server_stream, Http2Error::kCancel);
  }
  GiveBackBytes(&call->second);
  GiveBackSlot(call->second, now);
  calls_.Erase(call, to_server);
}

void ConnectionRules::Refuse(uint32_t stream, const absl::Status& why, bool client_ended,
                             Http2Error bare) {
  totals_->errors->Add(why);
  const bool says_why = !shrinks_table_ && to_client_.size() < kMaxFramesToClient;
  to_client_ += says_why ? RefusalFrames(stream, why, client_ended) : RstStreamFrame(stream, bare);
}

void ConnectionRules::Complete(GuardedCall* call) {
  call->client_ended = true;
  if (std::exchange(call->is_incomplete, false)) --incomplete_calls_;
}

void ConnectionRules::GiveBackBytes(GuardedCall* call) {
  if (std::exchange(call->is_incomplete, false)) --incomplete_calls_;
  totals_->counters->request_bytes.Sub(std::exchange(call->claimed_bytes, 0));
}

void ConnectionRules::GiveBackSlot(const GuardedCall& call, absl::Time now) {
  if (call.is_held()) {
    totals_->counters->open_calls.Sub(1);
  } else {
    totals_->HoldSlot(now);  // gRPC keeps holding it
  }
}

void ConnectionRules::ForgetAnswered(Call call) {
  if (!call->second.client_ended || !call->second.server_ended) return;
  totals_->counters->open_calls.Sub(1);
  GiveBackBytes(&call->second);
  calls_.Erase(call, nullptr);  // it is not held
}

}  // namespace bulkhead
