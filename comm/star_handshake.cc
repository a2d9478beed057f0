#include "comm/star_handshake.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "comm/sealed_frames.h"
#include "memory/status.h"

namespace bulkhead {
namespace {

constexpr int kNonceBytes = 32;
constexpr int kNodeBytes = sizeof(int32_t);

// Rank 0 sends a nonce; the caller its node, a nonce and a proof; rank 0 its proof. A proof covers
// both nonces and the role, so none can be used twice or sent back.
std::string Proof(absl::string_view key, absl::string_view role, absl::string_view nonces,
                  absl::string_view node) {
  return Mac(key, absl::StrCat(role, nonces, node));
}

}  // namespace

absl::StatusOr<Introduction> GreetCaller(const Socket& socket, absl::string_view key,
                                         int64_t deadline_ns) {
  const std::string nonce = RandomBytes(kNonceBytes);
  BH_RETURN_IF_ERROR(SendAll(socket, nonce, deadline_ns));
  BH_ASSIGN_OR_RETURN(const std::string answer,
                      ReceiveExactly(socket, kNodeBytes + kNonceBytes + kMacBytes, deadline_ns));
  const absl::string_view all = answer;
  const absl::string_view node = all.substr(0, kNodeBytes);
  const std::string nonces = absl::StrCat(nonce, all.substr(kNodeBytes, kNonceBytes));
  if (!SameMac(Proof(key, "caller", nonces, node), all.substr(kNodeBytes + kNonceBytes))) {
    return absl::UnauthenticatedError("a caller does not hold the group's key");
  }
  BH_RETURN_IF_ERROR(SendAll(socket, Proof(key, "rank 0", nonces, node), deadline_ns));
  Introduction who;
  int32_t number = 0;
  std::memcpy(&number, node.data(), sizeof(number));
  who.node = number;
  who.session_key = Proof(key, "session", nonces, node);
  return who;
}

absl::StatusOr<std::string> IntroduceTo(const Socket& socket, absl::string_view key, int node,
                                        int64_t deadline_ns) {
  BH_ASSIGN_OR_RETURN(const std::string theirs, ReceiveExactly(socket, kNonceBytes, deadline_ns));
  const auto number = static_cast<int32_t>(node);
  const std::string name(reinterpret_cast<const char*>(&number), sizeof(number));
  const std::string nonce = RandomBytes(kNonceBytes);
  const std::string nonces = theirs + nonce;
  const std::string mine = absl::StrCat(name, nonce, Proof(key, "caller", nonces, name));
  BH_RETURN_IF_ERROR(SendAll(socket, mine, deadline_ns));
  BH_ASSIGN_OR_RETURN(const std::string proof, ReceiveExactly(socket, kMacBytes, deadline_ns));
  if (!SameMac(Proof(key, "rank 0", nonces, name), proof)) {
    return absl::UnauthenticatedError("who answers does not hold the group's key");
  }
  return Proof(key, "session", nonces, name);
}

}  // namespace bulkhead
