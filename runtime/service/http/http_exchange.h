// HttpExchange: one request and its answer, as its handler sees them. The connection implements it.
#pragma once

#include <functional>
#include <memory>

#include "runtime/service/http/http_message.h"

namespace bulkhead {

class HttpExchange {
 public:
  // `ok`: everything was written; else the client is gone.
  using Written = std::function<void(bool ok)>;
  virtual ~HttpExchange() = default;

  // Any thread. `work` runs on the front end's thread, soon, in order.
  virtual void Post(std::function<void()> work) = 0;
  // Closes the connection; any thread, any time.
  virtual std::function<bool()> Dropper() = 0;

  // The rest is called on the front end's thread. Once the client is gone, everything is ignored
  // except Written(false).

  // Called once if the client goes before the answer is complete; at once if it already has.
  virtual void WhenGone(std::function<void()> gone) = 0;
  // The whole answer.
  virtual void Answer(HttpAnswer answer, Written written) = 0;
  // Instead of Answer: an answer in events, then Finish. Sends may overlap; they are sent in order.
  virtual void BeginEvents() = 0;
  virtual void Send(BodyParts parts, Written written) = 0;
  virtual void Finish(Written written) = 0;
};

}  // namespace bulkhead
