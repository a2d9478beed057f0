#include "runtime/service/guard/header_reader.h"

#include <nghttp2/nghttp2.h>
#include <openssl/crypto.h>

#include "base/check.h"

namespace bulkhead {
namespace {

constexpr size_t kMaxPathBytes = 256;
constexpr size_t kMaxAuthorizationBytes = 1024;
constexpr char kNoKey[] = "?";  // never equal to "Bearer KEY"

}  // namespace

HeaderReader::HeaderReader() { BH_CHECK(nghttp2_hd_inflate_new(&inflater_) == 0); }

HeaderReader::~HeaderReader() {
  Clear();
  nghttp2_hd_inflate_del(inflater_);
}

bool HeaderReader::Read(absl::string_view block) {
  const auto* next = reinterpret_cast<const uint8_t*>(block.data());
  size_t left = block.size();
  while (true) {
    nghttp2_nv field;
    int flags = 0;
    const ssize_t taken = nghttp2_hd_inflate_hd2(inflater_, &field, &flags, next, left, 1);
    if (taken < 0) return false;
    next += taken;
    left -= static_cast<size_t>(taken);
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      Take({reinterpret_cast<const char*>(field.name), field.namelen},
           {reinterpret_cast<const char*>(field.value), field.valuelen});
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
      nghttp2_hd_inflate_end_headers(inflater_);
      return true;
    }
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0 && left == 0) return true;
  }
}

void HeaderReader::Take(absl::string_view name, absl::string_view value) {
  if (name == ":path") {
    path_ = std::string(value.substr(0, kMaxPathBytes));
  } else if (name == "authorization") {
    const bool is_key = authorization_.empty() && value.size() <= kMaxAuthorizationBytes;
    authorization_ = is_key ? std::string(value) : kNoKey;
  }
}

void HeaderReader::Clear() {
  OPENSSL_cleanse(authorization_.data(), authorization_.size());
  authorization_.clear();
  path_.clear();
}

}  // namespace bulkhead
