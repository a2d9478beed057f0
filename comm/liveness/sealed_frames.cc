#include "comm/liveness/sealed_frames.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

constexpr size_t kHeadBytes = sizeof(uint32_t) + 1;

std::string FrameMac(absl::string_view key, uint64_t number, absl::string_view kind_and_text) {
  const absl::string_view count(reinterpret_cast<const char*>(&number), sizeof(number));
  return Mac(key, absl::StrCat(count, kind_and_text));
}

}  // namespace

std::string Mac(absl::string_view key, absl::string_view text) {
  std::string mac(kMacBytes, '\0');
  unsigned int length = 0;
  const unsigned char* done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(mac.data()), &length);
  BH_CHECK(done != nullptr && length == kMacBytes);
  return mac;
}

bool SameMac(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string RandomBytes(int count) {
  std::string bytes(count, '\0');
  BH_CHECK(getrandom(bytes.data(), count, 0) == count);
  return bytes;
}

std::string FrameSealer::Seal(FrameKind kind, absl::string_view text) {
  text = text.substr(0, kMaxFrameTextBytes);
  const auto length = static_cast<uint32_t>(text.size());
  std::string body(1, static_cast<char>(kind));
  absl::StrAppend(&body, text);
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&length), sizeof(length)),
                      body, FrameMac(key_, sent_++, body));
}

absl::StatusOr<bool> FrameOpener::Next(Frame& frame) {
  uint32_t length = 0;
  if (buffer_.size() < kHeadBytes) return false;
  std::memcpy(&length, buffer_.data(), sizeof(length));
  if (length > kMaxFrameTextBytes) return absl::DataLossError("a frame is too long");
  if (buffer_.size() < kHeadBytes + length + kMacBytes) return false;
  const absl::string_view all = buffer_;
  const absl::string_view body = all.substr(sizeof(length), 1 + length);
  if (!SameMac(FrameMac(key_, opened_, body), all.substr(kHeadBytes + length, kMacBytes))) {
    return absl::DataLossError("a frame was not authenticated with the group's key");
  }
  ++opened_;
  frame.kind = static_cast<FrameKind>(body[0]);
  frame.text = std::string(body.substr(1));
  buffer_.erase(0, kHeadBytes + length + kMacBytes);
  return true;
}

namespace {

constexpr int kNonceBytes = 32;
constexpr int64_t kProofNanos = 10'000'000'000;
constexpr int64_t kHandshakeNanos = 2'000'000'000;
constexpr int64_t kAcceptNanos = 10'000'000;
constexpr size_t kMaxHandshakes = 64;
constexpr int kRankBytes = sizeof(int32_t);

// A handshake in progress on its own thread, which is joined before the socket is closed.
struct Handshake {
  Socket socket;
  std::future<absl::StatusOr<CallerIdentity>> who;

  bool ended() const { return who.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

// Rank 0 sends a nonce; the caller its rank, a nonce and a proof; rank 0 its proof. A proof covers
// both nonces and the role, so it cannot be replayed or reflected.
std::string Proof(absl::string_view key, absl::string_view role, absl::string_view nonces,
                  absl::string_view rank) {
  return Mac(key, absl::StrCat(role, nonces, rank));
}

}  // namespace

absl::StatusOr<CallerIdentity> AuthenticateCaller(const Socket& socket, absl::string_view key,
                                                  int64_t deadline_ns) {
  const std::string nonce = RandomBytes(kNonceBytes);
  BH_RETURN_IF_ERROR(SendAll(socket, nonce, deadline_ns));
  BH_ASSIGN_OR_RETURN(const std::string answer,
                      ReceiveExactly(socket, kRankBytes + kNonceBytes + kMacBytes, deadline_ns));
  const absl::string_view all = answer;
  const absl::string_view rank = all.substr(0, kRankBytes);
  const std::string nonces = absl::StrCat(nonce, all.substr(kRankBytes, kNonceBytes));
  if (!SameMac(Proof(key, "caller", nonces, rank), all.substr(kRankBytes + kNonceBytes))) {
    return absl::UnauthenticatedError("a caller does not hold the group's key");
  }
  BH_RETURN_IF_ERROR(SendAll(socket, Proof(key, "rank 0", nonces, rank), deadline_ns));
  CallerIdentity who;
  int32_t number = 0;
  std::memcpy(&number, rank.data(), sizeof(number));
  who.rank = number;
  who.session_key = Proof(key, "session", nonces, rank);
  return who;
}

std::vector<Caller> AcceptCallers(const std::vector<ListeningSocket>& listeners,
                                  absl::string_view key, std::set<int> wanted,
                                  int64_t deadline_ns) {
  std::vector<Caller> callers;
  std::list<Handshake> handshakes;
  while (!wanted.empty() && MonotonicNanos() < deadline_ns) {
    if (handshakes.size() < kMaxHandshakes) {
      Socket socket = AcceptFrom(listeners, MonotonicNanos() + kAcceptNanos);
      if (socket.is_open()) {
        Handshake& handshake = handshakes.emplace_back(Handshake{std::move(socket), {}});
        const int64_t limit_ns = std::min(deadline_ns, MonotonicNanos() + kHandshakeNanos);
        handshake.who = std::async(std::launch::async, [&socket = handshake.socket, key, limit_ns] {
          return AuthenticateCaller(socket, key, limit_ns);
        });
      }
    } else {
      handshakes.front().who.wait_for(std::chrono::nanoseconds(kAcceptNanos));
    }
    for (auto at = handshakes.begin(); at != handshakes.end();) {
      if (!at->ended()) {
        ++at;
        continue;
      }
      const absl::StatusOr<CallerIdentity> who = at->who.get();
      if (who.ok() && wanted.erase(who->rank) > 0) {
        callers.push_back({*who, std::move(at->socket)});
      }
      at = handshakes.erase(at);
    }
  }
  for (const Handshake& handshake : handshakes) shutdown(handshake.socket.fd(), SHUT_RDWR);
  return callers;
}

absl::StatusOr<std::string> AuthenticateTo(const Socket& socket, absl::string_view key, int rank,
                                           int64_t deadline_ns) {
  BH_ASSIGN_OR_RETURN(const std::string theirs, ReceiveExactly(socket, kNonceBytes, deadline_ns));
  const auto number = static_cast<int32_t>(rank);
  const std::string name(reinterpret_cast<const char*>(&number), sizeof(number));
  const std::string nonce = RandomBytes(kNonceBytes);
  const std::string nonces = theirs + nonce;
  const std::string mine = absl::StrCat(name, nonce, Proof(key, "caller", nonces, name));
  BH_RETURN_IF_ERROR(SendAll(socket, mine, deadline_ns));
  // Wait longer: rank 0 may already have accepted this connection, and accepts only one per rank.
  BH_ASSIGN_OR_RETURN(const std::string proof,
                      ReceiveExactly(socket, kMacBytes, deadline_ns + kProofNanos));
  if (!SameMac(Proof(key, "rank 0", nonces, name), proof)) {
    return absl::UnauthenticatedError("the other end does not hold the group's key");
  }
  return Proof(key, "session", nonces, name);
}

}  // namespace bulkhead
