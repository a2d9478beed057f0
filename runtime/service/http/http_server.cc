#include "runtime/service/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/status.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "runtime/service/http/http_connection.h"
#include "runtime/service/http/openai_error.h"
#include "runtime/service/http/routes.h"
#include "runtime/service/refusal.h"
#include "runtime/service/tls/client_listener.h"

namespace bulkhead {
namespace {

using boost::asio::ip::tcp;

constexpr std::chrono::milliseconds kTick{250};
constexpr int kTicksPerBody = 4;  // ticks between bodies refused under pressure

// Best effort: the socket's buffer is empty, so a few bytes fit.
void RefuseConnection(int fd) {
  const std::string body =
      ErrorJson(WithReason(absl::UnavailableError("too many connections are open; try again later"),
                           reason::kTooManyCalls),
                503);
  const std::string answer = absl::StrCat(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n",
      "Retry-After: 1\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  send(fd, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  shutdown(fd, SHUT_WR);
  close(fd);
}

}  // namespace

struct HttpServer::Parts {
  Parts(ServiceCore* service_core, std::unique_ptr<ClientListener> bound, const Options& options)
      : core(service_core),
        is_metrics(options.metrics_only),
        count(is_metrics ? core->host.metrics_connections : core->host.http_connections),
        listener(std::move(bound)),
        timer(io),
        origins(is_metrics ? std::vector<std::string>() : options.allowed_origins),
        routes(service_core, options.chats, is_metrics ? RouteSet::kMetricsOnly : RouteSet::kAll) {
    handler = [this](HttpRequest request, const std::shared_ptr<HttpExchange>& exchange) {
      if (origins.IsPreflight(request)) {
        return exchange->Answer(AllowedOrigins::PreflightAnswer(), [](bool) {});
      }
      routes.Serve(std::move(request), exchange);
    };
    takes_body = [this](const HttpRequest& request) { return routes.TakesBody(request); };
    if (!core->access.is_on()) return;
    gate = [this](const HttpRequest& request, absl::string_view authorization, RoleSet roles) {
      const RoleSet need = origins.IsPreflight(request) ? kNoRole : routes.NeedOf(request);
      return core->access.Check(need, authorization, roles);
    };
  }

  bool Take(const AcceptedClient& client) {
    boost::asio::post(io, [this, fd = client.fd, roles = client.roles] { Admit(fd, roles); });
    return true;
  }

  // The rest runs on the front end's thread.
  void Admit(int fd, RoleSet roles) {
    // Operators can still observe a server under pressure.
    const bool pressed = !is_metrics && core->host.resident_bytes_at_ready > 0 &&
                         core->pressure.percent() >= HostPressure::kRefuseConnections;
    if (stopping || pressed || (!HasRoom() && !CloseLongestIdle())) {
      core->host.closed.AddReason("TOO_MANY_CONNECTIONS");
      return RefuseConnection(fd);
    }
    tcp::socket socket(io);
    boost::system::error_code ec;
    socket.assign(tcp::v4(), fd, ec);  // the family of an accepted socket does not matter
    if (ec) {
      close(fd);
      return;
    }
    socket.non_blocking(true, ec);
    count.Add(1);
    const uint64_t id = ++last_id;
    const HttpCaller caller = {.handler = &handler,
                               .takes_body = &takes_body,
                               .gate = gate ? &gate : nullptr,
                               .origins = &origins,
                               .roles = roles};
    auto connection =
        std::make_shared<HttpConnection>(io, std::move(socket), core, caller, user, [this, id] {
          connections.erase(id);
          count.Sub(1);
          SayIfAllClosed();
        });
    connections[id] = connection;
    connection->Start();
  }

  int max_connections() const {
    return is_metrics ? kMetricsConnections : core->quotas.max_http_connections;
  }

  bool HasRoom() const { return connections.size() < static_cast<size_t>(max_connections()); }

  bool CloseLongestIdle() {
    std::shared_ptr<HttpConnection> longest;
    for (const auto& [id, connection] : connections) {
      if (!connection->is_idle()) continue;
      if (longest == nullptr || connection->since() < longest->since()) longest = connection;
    }
    if (longest == nullptr) return false;
    longest->Close("TOO_MANY_CONNECTIONS");
    return true;
  }

  void SayIfAllClosed() {
    if (stopping && connections.empty() && !all_closed.HasBeenNotified()) all_closed.Notify();
  }

  std::vector<std::shared_ptr<HttpConnection>> All() const {
    std::vector<std::shared_ptr<HttpConnection>> all;
    all.reserve(connections.size());
    for (const auto& [id, connection] : connections) all.push_back(connection);
    return all;
  }

  // One at a time: the memory it frees may be enough for the others.
  void RefuseLargestBody() {
    std::shared_ptr<HttpConnection> largest;
    for (const auto& [id, connection] : connections) {
      const size_t most = largest == nullptr ? 0 : largest->body_bytes();
      if (connection->body_bytes() > most) largest = connection;
    }
    if (largest != nullptr) largest->RefusePartial(HostIsShortOfMemory());
  }

  void Tick() {
    const auto now = HttpConnection::Clock::now();
    const uint64_t refused = core->host.refused_claims;
    const bool bytes_are_wanted = refused != std::exchange(seen_refusals, refused);
    for (const auto& connection : All()) connection->Tick(now, bytes_are_wanted);
    if (++ticks % kTicksPerBody == 0 &&
        core->pressure.percent() >= HostPressure::kCloseConnections) {
      RefuseLargestBody();
    }
    timer.expires_after(kTick);
    timer.async_wait([this](const boost::system::error_code& ec) {
      if (!ec) Tick();
    });
  }

  ServiceCore* const core;
  const bool is_metrics;
  PeakCounter& count;
  std::unique_ptr<ClientListener> listener;
  boost::asio::io_context io{1};
  boost::asio::steady_timer timer;
  const AllowedOrigins origins;
  Routes routes;
  HttpHandler handler;
  std::function<bool(const HttpRequest&)> takes_body;
  HttpGate gate;  // none: every caller may request everything
  std::unordered_map<uint64_t, std::shared_ptr<HttpConnection>> connections;
  uint64_t last_id = 0;
  uint64_t ticks = 0;
  uint64_t seen_refusals = 0;  // of HostCounters::refused_claims; at the last tick
  // Also held by whatever may still post: exchanges, also on the text worker.
  std::shared_ptr<const void> user = std::make_shared<int>();
  bool stopping = false;
  absl::Notification all_closed;  // all connections, after stopping began
  std::atomic<bool> is_shut_down{false};
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Options& options,
                                                              ServiceCore* core) {
  BH_ASSIGN_OR_RETURN(
      std::unique_ptr<ClientListener> listener,
      ClientListener::Bind(options.host, options.port,
                           options.metrics_only ? "--metrics-port" : "--http-port", options.tls));
  auto parts = std::make_unique<Parts>(core, std::move(listener), options);
  Parts* const made = parts.get();
  boost::asio::post(made->io, [made] { made->Tick(); });
  made->thread = std::thread([made] {
    const auto work = boost::asio::make_work_guard(made->io);
    made->io.run();
  });
  made->listener->Start(made->max_connections(), &core->access, &core->host.closed,
                        [made](const AcceptedClient& client) { return made->Take(client); });
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(parts)));
}

HttpServer::HttpServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }

const std::string& HttpServer::target() const { return parts_->listener->target(); }

void HttpServer::Shutdown(absl::Duration grace) {
  if (parts_->is_shut_down.exchange(true)) return;
  parts_->core->Stop(grace);
  parts_->listener->StopListening();
  Parts* const parts = parts_.get();
  boost::asio::post(parts->io, [parts] {
    parts->stopping = true;
    const absl::Status why = parts->core->state.ForNewRequest().status();
    for (const auto& connection : parts->All()) connection->CloseWhenIdle(why);
    parts->SayIfAllClosed();
  });
  // Calls close when their answers have reached the clients that read; connections once the clients
  // have also read other answers.
  const absl::Time until = MonotonicNow() + grace;
  parts->core->calls.WaitUntilClosed(grace);
  parts->all_closed.WaitForNotificationWithTimeout(until - MonotonicNow());
  absl::Notification closed;
  boost::asio::post(parts->io, [parts, &closed] {
    for (const auto& connection : parts->All()) connection->Close();
    parts->timer.cancel();
    closed.Notify();
  });
  closed.WaitForNotification();
  // Every call has ended or ends soon; anything it posts until then comes first.
  while (parts->user.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  parts->listener->Stop(grace);
  boost::asio::post(parts->io, [parts] { parts->io.stop(); });
  parts->thread.join();
}

}  // namespace bulkhead
