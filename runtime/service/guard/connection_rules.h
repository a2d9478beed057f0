// ConnectionRules: what one client may send. It sees both directions of one HTTP/2 connection as
// bytes, reads frame heads (and a gRPC message's length, and SETTINGS) alone, and says what goes on
// to the server, what is ended and what must wait. No clock, thread or socket of its own. Frames
// reach the server whole, so that a frame of the guard's own fits between any two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/service/guard/guard_totals.h"
#include "runtime/service/guard/http2_frame.h"

namespace bulkhead {

// How long a connection may be silent before the preface and within a frame or header block.
inline constexpr absl::Duration kMostFrameTime = absl::Seconds(10);
inline constexpr size_t kMostHeaderBlockBytes = size_t{64} << 10;
inline constexpr int kMostHeaderBlockFrames = 8;
// Of the guard's own frames for a client so many bytes wait, and one refusal. Then its frames do,
// and what ends meanwhile is reset without a word.
inline constexpr size_t kMostFramesToClient = size_t{8} << 10;
// A request whose body gets nowhere, and one that has not ended after kMostBodyTime and its size at
// kLeastBodyRate, ends; under pressure one that came more slowly than that since kPressedBodyTime.
inline constexpr absl::Duration kStalledBodyTime = absl::Seconds(10);
inline constexpr absl::Duration kPressedBodyTime = absl::Seconds(2);
inline constexpr absl::Duration kMostBodyTime = absl::Seconds(60);
inline constexpr int64_t kLeastBodyRate = int64_t{64} << 10;  // bytes a second
// The longest that a connection waits for room; what it waits with is refused then.
inline constexpr absl::Duration kMostWaitTime = absl::Seconds(5);

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
  ConnectionRules(GuardTotals* totals, absl::Time now) : totals_(totals), since_(now) {}
  // Gives back what the connection holds; calls that are open keep their slots for kResetCallTime.
  void End(absl::Time now);

  // Takes whole frames off the front of `input` and appends to `to_server` what goes on to it.
  // Returns how many bytes were taken; the rest is to be given again, with more behind it, or later
  // where is_waiting().
  size_t FromClient(absl::string_view input, absl::Time now, std::string* to_server);
  // What goes to the client once the server has sent `bytes`: those, but for heads that are not
  // whole and the ends of calls that have ended here, and frames of the guard's own between them.
  std::string FromServer(absl::string_view bytes, absl::Time now);
  // Now and then. `reading` is false when the client could not send because nobody read.
  void Tick(absl::Time now, bool reading, std::string* to_server);

  // Whether a frame fits behind what went to the client: whole frames, the server's settings first,
  // and no header block that goes on.
  bool at_server_border() const {
    return server_spoke_ && server_block_ == Block::kNone && server_frames_.payload_left() == 0;
  }
  // FromServer({}) has some.
  bool has_frames_to_client() const { return !to_client_.empty() && at_server_border(); }

  bool is_waiting() const { return waiting_since_ != absl::InfiniteFuture(); }
  // Why the connection must be closed, empty while it must not: HEADERS_TOO_LARGE ...
  const std::string& close_reason() const { return close_reason_; }
  // What to tell the client of it.
  std::string GoAway(Http2Error error) const { return GoAwayFrame(highest_given_, error); }

  // What clients make the server hold without having been admitted.
  int64_t unaccounted_bytes() const;
  bool is_idle() const { return streams_.empty(); }
  absl::Time last_frame() const { return last_frame_; }

 private:
  struct Stream {
    absl::Time opened, progress;
    int64_t claimed_bytes = 0;  // of request_bytes; given back when it is answered
    int64_t bytes = 0;
    bool client_ended = false;
    bool answered = false;
    bool server_ended = false;
    bool is_incomplete = true;  // neither ended nor answered
  };
  using Streams = absl::flat_hash_map<uint32_t, Stream>;
  enum class Step { kForward, kDrop, kWait, kClose };
  enum class Block { kNone, kForwarded, kDropped };

  Step OnFrame(const FrameHead& head, absl::string_view payload, absl::Time now,
               std::string* to_server);
  Step OnHeaders(const FrameHead& head, absl::Time now);
  Step OnContinuation(const FrameHead& head);
  Step OnData(const FrameHead& head, absl::string_view payload, absl::Time now,
              std::string* to_server);
  Step OnReset(const FrameHead& head, absl::Time now);
  void OnSettings(const FrameHead& head, absl::string_view payload);
  // A frame of the server's; false: the client does not get it.
  bool OnServerFrame(const FrameHead& head, absl::Time now);
  Step BeginBlock(const FrameHead& head, absl::Time now, bool dropped);
  Step Wait(absl::Time now);
  bool HasWaitedTooLong(absl::Time now) const { return now - waiting_since_ > kMostWaitTime; }
  Step Close(const char* reason, Http2Error error);
  // Ends a call on both sides, for `why`. The stream is not known any more afterwards.
  void EndCall(Streams::iterator stream, const absl::Status& why, absl::Time now,
               std::string* to_server);
  // Tells the client; with `bare` alone where it may not be told why.
  void Refuse(uint32_t stream, const absl::Status& why, bool client_ended, Http2Error bare);
  void Complete(Stream* stream);
  void GiveBackBytes(Stream* stream);
  absl::Status WhyNotOpened() const;
  void ForgetAnswered(Streams::iterator stream);
  bool IsTooSlow(const Stream& stream, absl::Time now) const;

  GuardTotals* const totals_;
  Streams streams_;
  FrameReader server_frames_;
  bool server_spoke_ = false;
  bool server_frame_dropped_ = false;
  Block server_block_ = Block::kNone;  // of a header block that has not ended
  std::string to_client_;
  std::string close_reason_;
  absl::Time
      since_;  // of the connection, until its first frame; then of the frame that is not whole
  absl::Time last_frame_ = absl::InfinitePast();
  absl::Time waiting_since_ = absl::InfiniteFuture();
  bool has_preface_ = false;
  bool is_partial_ = true;  // a preface or frame is awaited that is not whole
  // Frames but large DATA, and resets of calls that are young.
  TokenBucket frames_{20'000, 20'000};
  TokenBucket resets_{512, 512};
  bool is_paid_ = false;  // the frame at hand has its token
  int incomplete_calls_ = 0;
  uint32_t highest_seen_ = 0;   // stream that the client opened
  uint32_t highest_given_ = 0;  // stream that the server knows of
  uint32_t block_stream_ = 0;   // whose header block has not ended
  size_t block_bytes_ = 0;
  int block_frames_ = 0;
  bool block_dropped_ = false;
  absl::Time block_since_;
  // A header block may be kept from the server once its decoder holds no state: the client has
  // acknowledged a table of size 0, and a block has told the server so.
  bool acknowledged_ = false;
  // The client's decoder wants to hear of a smaller table in the block that comes next, which must
  // be gRPC's.
  bool shrinks_table_ = false;
  bool decoder_is_empty_ = false;
};

}  // namespace bulkhead
