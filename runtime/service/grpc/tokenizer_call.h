// TokenizerCall: GetTokenizer of VllmEngine: the archive in chunks, one at a time.
#pragma once

#include <memory>
#include <string>

#include "runtime/service/call_transport.h"
#include "runtime/service/service_core.h"

namespace bulkhead {

inline constexpr size_t kTokenizerChunkBytes = size_t{64} << 10;

class TokenizerCall final : public Call {
 public:
  // `transport`: a stream's.
  TokenizerCall(ServiceCore* core, CallTransport* transport) : core_(core), transport_(transport) {}

  void Start(std::unique_ptr<CallRequest> request) override;
  void OnWritten(bool ok) override;
  void OnCancelled(bool /*deadline_passed*/) override {}  // the write in flight fails
  void OnClosed() override;

 private:
  absl::Status Prepare(CallRequest& request);
  void WriteNext();
  void End(const absl::Status& status);

  ServiceCore* const core_;
  CallTransport* const transport_;
  // Used by one thread at a time.
  std::shared_ptr<const TokenizerArchive> archive_;
  size_t written_bytes_ = 0;
  AnswerBudget::Hold hold_;  // for the chunk in flight
};

}  // namespace bulkhead
