// Calls of the service on a transport of the test's, with an engine of the test's behind them.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "runtime/service/call_transport.h"
#include "runtime/service/packed_reader.h"
#include "runtime/service/service_core.h"
#include "tests/runtime/service/fake_engine.h"
#include "tests/runtime/service/letter_tokenizer.h"

namespace bulkhead {

inline RequestOrigin ArrivedNow() {
  return {.arrived_ns = static_cast<uint64_t>(MonotonicNanos())};
}

// A front end that has parsed its client's message already.
class SerializedRequest final : public CallRequest {
 public:
  explicit SerializedRequest(const google::protobuf::Message& message,
                             RequestOrigin origin = ArrivedNow())
      : CallRequest(origin), bytes_(message.SerializeAsString()) {}
  size_t bytes() const override { return bytes_.size(); }
  absl::Status Parse(google::protobuf::Message& message) override {
    message.ParseFromString(bytes_);
    return absl::OkStatus();
  }

 private:
  const std::string bytes_;
};

// Keeps what it is told to send. The test says when a write is done, and when the call closes.
class FakeTransport final : public CallTransport {
 public:
  void OnAccepted() override { accepted = true; }
  void Write(MessagePieces message) override { written.push_back(Joined(message)); }
  void SetTrailer(const std::string& key, const std::string& value) override {
    trailers[key] = value;
  }
  void End(const absl::Status& status, std::optional<MessagePieces> last) override {
    EXPECT_FALSE(end.has_value()) << "ended twice";
    end = status;
    if (last.has_value()) written.push_back(Joined(*last));
  }
  std::function<bool()> Dropper() override {
    return [this] { return ++drops > drops_refused; };
  }

  bool accepted = false;
  std::atomic<int> drops{0};
  int drops_refused = 0;
  std::vector<std::string> written;
  std::map<std::string, std::string> trailers;
  std::optional<absl::Status> end;
};

class CallFixture : public testing::Test {
 protected:
  // `tokenizer`: null: letters.
  explicit CallFixture(const Tokenizer* tokenizer = nullptr) {
    ServingParts parts;
    parts.inbox = &engine_;
    parts.control = &engine_;
    parts.rules.tokenizer = tokenizer != nullptr ? tokenizer : &tokenizer_;
    parts.rules.served_model_names = {"letters"};
    parts.rules.vocab_size = LetterTokenizer::kVocabSize;
    parts.rules.max_model_len = kTestModelLen;
    parts.rules.grammars = std::make_shared<structured::GrammarCache>(
        [] {
          std::vector<std::string> tokens;
          for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
          return tokens;
        },
        LetterTokenizer::kVocabSize, size_t{8} << 20);
    core_.SetReady(std::move(parts));
  }
  template <typename Kind>
  std::shared_ptr<Kind> Start(const google::protobuf::Message& request) {
    auto call = std::make_shared<Kind>(&core_, &transport_);
    call->Start(std::make_unique<SerializedRequest>(request));
    return call;
  }
  // Until the notification nothing else is done there.
  std::shared_ptr<absl::Notification> HoldTextWorker(size_t bytes = 1) {
    const auto release = std::make_shared<absl::Notification>();
    EXPECT_TRUE(core_.text_worker.Post(bytes, [release] { release->WaitForNotification(); }).ok());
    return release;
  }
  // What was posted before is done.
  void WaitForTextWorker() {
    std::promise<void> done;  // ThreadSanitizer does not see what an absl::Notification orders
    while (!core_.text_worker.Post(1, [&done] { done.set_value(); }).ok())
      std::this_thread::yield();
    done.get_future().wait();
  }
  static v1::GenerateRequest TextRequest() {
    v1::GenerateRequest request;
    request.set_request_id("r");
    request.set_text("ab");
    return request;
  }
  v1::GenerateEvent Written(size_t index) const {
    v1::GenerateEvent event;
    EXPECT_TRUE(event.ParseFromString(transport_.written.at(index)));
    return event;
  }

  LetterTokenizer tokenizer_;
  FakeEngine engine_;
  FakeTransport transport_;
  ServiceCore core_{HostQuotas()};
};

}  // namespace bulkhead
