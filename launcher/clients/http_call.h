// One request of a client command over HTTP/1.1, on a connection of its own: closing it is how a
// client tells the server to stop generating.
#pragma once

#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace bulkhead {

struct HttpTarget {
  std::string address;  // HOST:PORT
  std::string api_key;  // sent as "Authorization: Bearer"; empty: none
  // PEM files. Without authorities there is no TLS; the client's own certificate is optional.
  std::string ssl_ca_certs, ssl_certfile, ssl_keyfile;
};

class HttpCall {
 public:
  // False: no more is wanted, and Send returns OK.
  using OnBody = std::function<bool(absl::string_view bytes)>;

  explicit HttpCall(HttpTarget target);
  ~HttpCall();

  // POSTs the JSON `body`, or GETs where it is empty. Blocks until the answer is whole, of a
  // refusal at most its first 64 KiB; what a status of 200 carries goes to `on_body` as it comes.
  // Call once.
  //
  // UNAVAILABLE names the target where nothing answers (a GET: within 5 s), or what answers does
  // not speak HTTP, or not TLS with these certificates; INVALID_ARGUMENT with exit code 2 names a
  // file that cannot be used; CANCELLED after Cancel. A status other than 200 is a refusal: the
  // error that its JSON names, as "CODE: message", with what to do about it.
  absl::Status Send(const std::string& path, const std::string& body, const OnBody& on_body);

  // Any thread, any time: Send returns at once.
  void Cancel();

 private:
  class Connection;

  absl::Status GetInTime(Connection& connection, const std::string& path, const OnBody& on_body);
  absl::Status Exchange(Connection& connection, const std::string& path, const std::string& body,
                        const OnBody& on_body);
  bool cancelled() const;
  // What Cancel stops; null: nothing. False after Cancel.
  bool SetConnection(Connection* connection);

  const HttpTarget target_;
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  Connection* connection_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// The error of a refused request; `body` is what came with it.
absl::Status RefusalOf(int http_status, absl::string_view body, const std::string& address);

}  // namespace bulkhead
