#include "runtime/service/grpc/tokenizer_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "runtime/service/local_call.h"
#include "runtime/service/packed_message.h"
#include "runtime/service/refusal.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace bulkhead {

using Chunk = ::vllm::grpc::engine::GetTokenizerChunk;

void TokenizerCall::Start(std::unique_ptr<CallRequest> request) {
  const absl::Status ready = Prepare(*request);
  request = nullptr;
  // The client must read all of it in the time allowed for an unread answer.
  core_->answers.unread().Add(this, hold_.bytes(), transport_->Dropper());
  if (!ready.ok()) return End(ready);
  WriteNext();
}

absl::Status TokenizerCall::Prepare(CallRequest& request) {
  BH_RETURN_IF_ERROR(WhyTooLarge(request.bytes(), LocalCall::kMaxControlBytes));
  ::vllm::grpc::engine::GetTokenizerRequest message;
  BH_RETURN_IF_ERROR(request.Parse(message));
  BH_ASSIGN_OR_RETURN(const std::shared_ptr<const ServingParts> parts,
                      core_->state.ForControl(v1::GetModelInfoRequest()));
  if (!parts->tokenizer_archive.ok()) {
    return WithReason(parts->tokenizer_archive.status(), reason::kTextNotSupported);
  }
  archive_ = *parts->tokenizer_archive;
  BH_ASSIGN_OR_RETURN(hold_, core_->answers.Admit(kTokenizerChunkBytes + 128));
  return absl::OkStatus();
}

void TokenizerCall::WriteNext() {
  const absl::string_view data =
      absl::string_view(archive_->zip).substr(written_bytes_, kTokenizerChunkBytes);
  written_bytes_ += data.size();
  std::string chunk;
  chunk.reserve(data.size() + 128);
  PackString(Chunk::kDataFieldNumber, data, &chunk);
  if (written_bytes_ < archive_->zip.size()) return transport_->Write({std::move(chunk)});
  PackString(Chunk::kSha256FieldNumber, archive_->sha256, &chunk);
  transport_->End(absl::OkStatus(), MessagePieces{std::move(chunk)});
}

void TokenizerCall::OnWritten(bool ok) {
  if (ok) return WriteNext();
  End(ClientGone());
}

void TokenizerCall::End(const absl::Status& status) {
  core_->errors.Add(status);
  transport_->End(status, std::nullopt);
}

void TokenizerCall::OnClosed() {
  core_->answers.unread().Remove(this);
  hold_.ShrinkTo(0);
  core_->pressure.CallEnded();
}

}  // namespace bulkhead
