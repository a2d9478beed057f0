#include "comm/sealed_frames.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/check.h"

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

}  // namespace bulkhead
