// Whose calls ConnectionRules accepts, and how many.
#include <memory>

#include "runtime/service/guard/connection_rules.h"
#include "runtime/service/guard/refused_call.h"
#include "runtime/service/refusal.h"

namespace bulkhead {
namespace {

constexpr int kManyIncompleteCalls = 64;
// Limit while none may be held. gRPC's clients acknowledge the settings before their first call.
constexpr int kMaxUnheldCalls = 8;

}  // namespace

ConnectionRules::ConnectionRules(GuardTotals* totals, absl::Time now, RoleSet roles)
    : totals_(totals),
      roles_(roles),
      headers_(totals->access == nullptr ? nullptr : std::make_unique<HeaderReader>()),
      since_(now) {}

ConnectionRules::~ConnectionRules() = default;

absl::Status ConnectionRules::WhyNotOpened() const {
  if (totals_->is_stopping) return IsStopping();
  if (totals_->refuses_calls) return HostIsShortOfMemory();
  if (!totals_->has_open_call()) {
    return TooManyCalls(totals_->counters->open_calls.now(), totals_->quotas.max_open_calls);
  }
  // The last slots are not for connections with many incomplete calls.
  if (incomplete_calls_ >= kManyIncompleteCalls && totals_->is_short_of_calls()) {
    return TooManyIncompleteCalls(incomplete_calls_, "few calls are left for all connections");
  }
  if (incomplete_calls_ >= kMaxUnheldCalls && !decoder_is_empty_) {
    return TooManyIncompleteCalls(incomplete_calls_,
                                  "the client has not acknowledged the server's settings");
  }
  return absl::OkStatus();
}

absl::Status ConnectionRules::WhyNotAllowed() const {
  if (headers_ == nullptr) return absl::OkStatus();
  return totals_->access->Check(NeedOfMethod(headers_->path()), headers_->authorization(), roles_);
}

ConnectionRules::Step ConnectionRules::OpenCall(uint32_t stream, size_t block_bytes, bool ends,
                                                absl::Time now) {
  if (const absl::Status why = WhyNotOpened(); !why.ok()) {
    Refuse(stream, why, ends, Http2Error::kRefusedStream);
  } else if (const absl::Status not_allowed = WhyNotAllowed(); !not_allowed.ok()) {
    if (++refused_callers_ > kMaxRefusedCallers) {
      return Close("UNAUTHENTICATED", Http2Error::kEnhanceYourCalm);
    }
    Refuse(stream, not_allowed, ends, Http2Error::kInadequateSecurity);
  } else if (block_bytes > kMaxMetadataBytes) {
    Refuse(stream, MetadataTooLarge(block_bytes, kMaxMetadataBytes), ends,
           Http2Error::kEnhanceYourCalm);
  } else {
    totals_->counters->open_calls.Add(1);
    ++incomplete_calls_;
    calls_.Open(stream, now);
  }
  return Step::kTaken;
}

ConnectionRules::Step ConnectionRules::ReadBlock(absl::string_view block) {
  constexpr size_t kPriorityBytes = 5;
  if (headers_ == nullptr) return Step::kTaken;
  headers_->Clear();
  const size_t before = (block_flags_ & frame_flag::kPriority) != 0 ? kPriorityBytes : 0;
  if (block.size() < before || !headers_->Read(block.substr(before))) {
    return Close("BAD_HEADERS", Http2Error::kCompressionError);
  }
  return Step::kTaken;
}

}  // namespace bulkhead
