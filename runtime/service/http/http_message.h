// An HTTP request as its handler gets it, and the parts of an answer. Independent of the library
// that reads and writes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/service/host_counters.h"
#include "runtime/service/http/body_parts.h"

namespace bulkhead {

// Bytes of request bodies out of HostQuotas::request_bytes, given back at the end. Used by one
// thread at a time.
class BodyClaim {
 public:
  BodyClaim() = default;
  BodyClaim(HostCounters* counters, int64_t limit) : counters_(counters), limit_(limit) {}
  BodyClaim(BodyClaim&& other) noexcept { *this = std::move(other); }
  BodyClaim& operator=(BodyClaim&& other) noexcept {
    std::swap(counters_, other.counters_);
    std::swap(limit_, other.limit_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~BodyClaim() { GiveBack(); }

  // Claims up to `bytes` in all (HostCounters::TakeRequestBytes). False: no change.
  bool GrowTo(int64_t bytes);
  void GiveBack();

 private:
  HostCounters* counters_ = nullptr;
  int64_t limit_ = 0;
  int64_t bytes_ = 0;
};

struct HttpRequest {
  std::string method;            // "GET"
  std::string path;              // without the query
  std::string content_type;      // lower case, without parameters
  std::string request_id;        // X-Request-Id, also of the answer
  std::string origin;            // the sending page's; "?" for several
  bool asks_for_method = false;  // Access-Control-Request-Method is there
  bool keep_alive = true;
  bool takes_chunks = true;  // HTTP/1.1
  std::string body;
  BodyClaim claim;  // covers the body, then what is parsed from it
};

// The current time in the format of Date (RFC 9110, 5.6.7).
std::string HttpDate();

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  BodyParts body;
};

}  // namespace bulkhead
