// ConnectionRules: what one client may send. It sees both directions of one HTTP/2 connection as
// bytes, reads only frame heads (and a gRPC message's length, and SETTINGS), and decides what goes
// on to the server, what is held, ended or must wait. No clock, thread or socket of its own. Frames
// reach the server whole, so that a frame of the guard's own fits between any two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/service/guard/call_table.h"
#include "runtime/service/guard/guard_totals.h"
#include "runtime/service/guard/header_reader.h"
#include "runtime/service/guard/http2_frame.h"

namespace bulkhead {

// How long a connection may be silent before the preface and within a frame or header block.
inline constexpr absl::Duration kMaxFrameTime = absl::Seconds(10);
// A call whose header block is longer is refused, as gRPC refuses one with more than that unpacked
// (32 bytes per field plus its own); one of more than kMaxPayloadBytes, which do not fit into one
// frame, ends the connection.
inline constexpr size_t kMaxMetadataBytes = size_t{8} << 10;
inline constexpr int kMaxHeaderBlockFrames = 8;
// A connection ends with its last call that its caller may not make.
inline constexpr int kMaxRefusedCallers = 64;
// At most this many bytes of the guard's own frames for a client are queued, and one refusal. Then
// the client's frames are not read, and calls that end meanwhile are reset without a reason.
inline constexpr size_t kMaxFramesToClient = size_t{8} << 10;

// `rate` a second, at most `burst` at once.
class TokenBucket {
 public:
  TokenBucket(double burst, double rate) : burst_(burst), rate_(rate), tokens_(burst) {}
  bool Take(double tokens, absl::Time now);

 private:
  const double burst_, rate_;
  double tokens_;
  absl::Time filled_ = absl::InfinitePast();
};

class ConnectionRules {
 public:
  // `roles`: of the client's certificate.
  ConnectionRules(GuardTotals* totals, absl::Time now, RoleSet roles = kNoRole);
  ~ConnectionRules();
  // Gives back what the connection holds; calls that are open keep their slots for kResetCallTime.
  void End(absl::Time now);

  // Takes whole frames off the front of `input` and appends to `to_server` what is forwarded to it.
  // Returns how many bytes were taken; the rest is to be given again, with more after it, or later
  // where is_waiting().
  size_t FromClient(absl::string_view input, absl::Time now, std::string* to_server);
  // What goes to the client once the server has sent `bytes`: those, except heads that are not
  // whole and the ends of calls that have ended here, and frames of the guard's own between them.
  std::string FromServer(absl::string_view bytes, absl::Time now);
  // Called periodically. `reading` is false when the client could not send because the server did
  // not read.
  void Tick(absl::Time now, bool reading, std::string* to_server);

  // Whether a frame fits after what went to the client: whole frames, the server's settings first,
  // and no unfinished header block.
  bool at_server_border() const {
    return server_spoke_ && !in_server_block_ && server_frames_.payload_left() == 0;
  }
  // FromServer({}) returns some.
  bool has_frames_to_client() const { return !to_client_.empty() && at_server_border(); }

  bool is_waiting() const { return waiting_since_ != absl::InfiniteFuture(); }
  // Why the connection must be closed; empty if it need not be: HEADERS_TOO_LARGE ...
  const std::string& close_reason() const { return close_reason_; }
  // What to tell the client of it.
  std::string GoAway(Http2Error error) const { return GoAwayFrame(calls_.highest_given(), error); }

  // What clients make the server hold without having been admitted.
  int64_t unaccounted_bytes() const;
  bool is_idle() const { return calls_.calls().empty(); }

 private:
  using Call = CallTable::Iterator;
  enum class Step { kTaken, kWait, kClose };

  // These take a whole frame of the client's, and append what is forwarded to the server.
  Step OnFrame(const FrameHead& head, absl::string_view frame, absl::Time now,
               std::string* to_server);
  Step OnHeaders(const FrameHead& head, absl::string_view frame, absl::Time now,
                 std::string* to_server);
  Step OnContinuation(const FrameHead& head, absl::string_view frame, absl::Time now,
                      std::string* to_server);
  Step OnData(const FrameHead& head, absl::string_view frame, absl::Time now,
              std::string* to_server);
  Step OnReset(const FrameHead& head, absl::Time now, std::string* to_server);
  void OnSettings(const FrameHead& head, absl::string_view payload);
  // A frame of a header block, which is kept until the block is whole.
  Step AddToBlock(const FrameHead& head, absl::string_view frame, absl::Time now,
                  std::string* to_server);
  // A block that opens no call and belongs to none goes to kNoCall, for the server to decode.
  Step OnBlock(absl::Time now, std::string* to_server);
  Step OpenCall(uint32_t stream, size_t block_bytes, bool ends, absl::Time now);
  // The client's stream of a frame of the server's; none: the client does not get it.
  std::optional<uint32_t> OnServerFrame(const FrameHead& head, absl::Time now);
  Step Wait(absl::Time now);
  bool HasWaitedTooLong(absl::Time now) const { return now - waiting_since_ > kMaxWaitTime; }
  Step Close(const char* reason, Http2Error error);
  // Ends a call on both sides, for `why`, and forgets it.
  void EndCall(Call call, const absl::Status& why, absl::Time now, std::string* to_server);
  // Sends the refusal to the client; RST_STREAM with `bare` if it cannot take a reason.
  void Refuse(uint32_t stream, const absl::Status& why, bool client_ended, Http2Error bare);
  void Complete(GuardedCall* call);
  void GiveBackBytes(GuardedCall* call);
  void GiveBackSlot(const GuardedCall& call, absl::Time now);
  // Resets the call at the server, if the server has it.
  void Forget(Call call, absl::Time now, std::string* to_server);
  absl::Status WhyNotOpened() const;
  // Why the caller of a whole header block may not make the call; ok: it may.
  absl::Status WhyNotAllowed() const;
  // Decodes a header block if calls need a key.
  Step ReadBlock(absl::string_view block);
  void ForgetAnswered(Call call);
  bool IsTooSlow(const GuardedCall& call, absl::Time now) const;
  // The server takes no more calls, as it or the guard has said, and this one it has not.
  bool IsNotTaken(const GuardedCall& call) const {
    if (call.is_held()) return totals_->is_stopping || server_last_ < kHighestStream;
    return call.server_stream > server_last_;
  }

  GuardTotals* const totals_;
  const RoleSet roles_;
  const std::unique_ptr<HeaderReader> headers_;  // null where calls need no key
  int refused_callers_ = 0;
  CallTable calls_;
  FrameReader server_frames_;
  bool server_spoke_ = false;
  bool server_frame_dropped_ = false;
  bool in_server_block_ = false;  // a header block has not ended
  std::optional<uint32_t> server_block_stream_;
  uint32_t server_last_ = kHighestStream;  // last stream of its GOAWAY
  // Bytes of DATA that the client did not get, to be given back to the connection's window.
  uint32_t dropped_bytes_ = 0;
  std::string to_client_;
  std::string close_reason_;
  absl::Time
      since_;  // start of the connection until its first frame, then start of the incomplete frame
  absl::Time last_frame_ = absl::InfinitePast();
  absl::Time waiting_since_ = absl::InfiniteFuture();
  bool has_preface_ = false;
  bool is_partial_ = true;  // a preface or frame is awaited that is not whole
  // Frames except large DATA, and resets of recent calls.
  TokenBucket frames_{20'000, 20'000};
  TokenBucket resets_{512, 512};
  bool is_paid_ = false;  // the current frame has its token
  int incomplete_calls_ = 0;
  uint32_t highest_seen_ = 0;  // stream that the client opened
  uint32_t block_stream_ = 0;  // stream whose header block has not ended
  uint8_t block_flags_ = 0;    // flags of its HEADERS
  std::string block_;
  int block_frames_ = 0;
  absl::Time block_since_;
  // A header block may be held once the server's decoder has no state: the client has acknowledged
  // a table of size 0, and a header block has announced that to the server.
  bool acknowledged_ = false;
  // The client's decoder wants to hear of a smaller table in the block that comes next, which must
  // be gRPC's.
  bool shrinks_table_ = false;
  bool decoder_is_empty_ = false;
};

}  // namespace bulkhead
