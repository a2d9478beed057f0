// CallTable: the open calls of one connection, by the client's stream and by the server's. gRPC
// takes 12 KiB for a call once it has 80 bytes of HEADERS; so a call is held here until it can be
// answered or kMinForwardedBytes of it have come. gRPC ignores a stream id that does not increase:
// calls have ids of the server's side, in the order in which they are forwarded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/service/guard/http2_frame.h"

namespace bulkhead {

// gRPC's 12 KiB, with 160 bytes for each of at most 248 fields of metadata (kMaxMetadataBytes),
// come to 52 KiB. A held call takes fewer bytes than these, as much spare capacity of their string
// and about 200 bytes of bookkeeping: in all less than 3 KiB of its kOpenCallBytes.
inline constexpr size_t kMinForwardedBytes = 1024;
// On the server's side a stream without a call: not a client's, so that none is ever opened. gRPC
// decodes its header blocks, counts its DATA in the connection's window, and ignores it otherwise.
inline constexpr uint32_t kNoCall = 2;

struct GuardedCall {
  bool is_held() const { return server_stream == 0; }

  // `claimed`: when its bytes were claimed; until then equal to `opened`.
  absl::Time opened, claimed, progress;
  int64_t claimed_bytes = 0;  // from request_bytes; given back when answered
  int64_t bytes = 0;          // bytes of its DATA
  uint32_t server_stream = 0;
  bool client_ended = false;
  bool answered = false;
  bool server_ended = false;
  bool is_incomplete = true;  // neither ended nor answered
  std::string held;           // its frames so far, in order
};

class CallTable {
 public:
  using Calls = absl::flat_hash_map<uint32_t, GuardedCall>;  // by the client's stream
  using Iterator = Calls::iterator;

  Iterator begin() { return calls_.begin(); }
  Iterator end() { return calls_.end(); }
  const Calls& calls() const { return calls_; }
  Iterator Find(uint32_t client_stream) { return calls_.find(client_stream); }
  Iterator FindServers(uint32_t server_stream);
  Iterator Open(uint32_t client_stream, absl::Time now);

  // Forwards a client's frame to the server, or holds it; the latter only if `may_hold`. Without a
  // call (end()) it goes to kNoCall.
  void Pass(Iterator call, absl::string_view frame, bool may_hold, std::string* to_server);
  // The DATA of a held call goes to kNoCall, so that the client gets its window back.
  void Erase(Iterator call, std::string* to_server);
  void Clear();

  // The highest of the client's streams that the server knows of.
  uint32_t highest_given() const { return highest_given_; }

 private:
  Calls calls_;
  absl::flat_hash_map<uint32_t, uint32_t> client_streams_;  // by the server's
  uint32_t next_server_stream_ = 1;                         // at most the client's own
  uint32_t highest_given_ = 0;
};

}  // namespace bulkhead
