#include "launcher/bench/collectives.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "memory/matrix.h"

namespace bulkhead {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kOffsets = 64;
constexpr int64_t kOffsetElements = 16;  // a cache line: no part is less aligned than another
constexpr int64_t kModulus = 1021;

absl::Status Wrong(Collective collective, int64_t bytes, int64_t at, float got, float expected) {
  return WithExitCode(
      absl::InternalError(absl::StrFormat("%s of %d bytes: element %d is %g and must be %g",
                                          kCollectiveNames[static_cast<int>(collective)], bytes, at,
                                          got, expected)),
      ExitCode::kBug);
}

absl::string_view BytesOf(const float* data, int64_t bytes) {
  return {reinterpret_cast<const char*>(data), static_cast<size_t>(bytes)};
}

// Whether `got` [bytes / 4] is the part of `rank`, as far as it was sent.
absl::Status CheckPart(Collective collective, int rank, int64_t call, const char* got,
                       int64_t bytes) {
  for (int64_t i = 0; i < bytes / kFloatBytes; ++i) {
    float value = 0;
    std::memcpy(&value, got + i * kFloatBytes, kFloatBytes);
    const float expected = MessagePattern::Value(rank, MessagePattern::OffsetOf(call) + i);
    if (value != expected) return Wrong(collective, bytes, i, value, expected);
  }
  return absl::OkStatus();
}

class AllReduce final : public MeasuredCollective {
 public:
  AllReduce(int64_t bytes, const CollectiveTools& tools)
      : tools_(tools), elements_(bytes / kFloatBytes) {}

  absl::Status Call(int64_t call) override {
    const MatrixView partial = tools_.comm.PartialSum(1, elements_);
    std::memcpy(partial.F32(), tools_.pattern.Part(call), elements_ * kFloatBytes);
    BH_ASSIGN_OR_RETURN(sum_, tools_.comm.AllReduceSum());
    return absl::OkStatus();
  }
  absl::Status Check(int64_t call) const override {
    for (int64_t i = 0; i < elements_; ++i) {
      float expected = 0;
      for (int rank = 0; rank < tools_.comm.size(); ++rank) {
        expected += MessagePattern::Value(rank, MessagePattern::OffsetOf(call) + i);
      }
      const float got = sum_.F32()[i];
      if (got != expected) {
        return Wrong(Collective::kAllReduce, elements_ * kFloatBytes, i, got, expected);
      }
    }
    return absl::OkStatus();
  }

 private:
  const CollectiveTools tools_;
  const int64_t elements_;
  ConstMatrixView sum_;
};

// To rank 0, the only one that can check.
class Gather final : public MeasuredCollective {
 public:
  Gather(int64_t bytes, const CollectiveTools& tools)
      : tools_(tools),
        elements_(bytes / kFloatBytes / tools.comm.size()),
        cols_of_rank_(tools.comm.size(), elements_),
        all_(tools.comm.rank() == 0 ? bytes / kFloatBytes : 0) {}

  absl::Status Call(int64_t call) override {
    auto* part = reinterpret_cast<const std::byte*>(tools_.pattern.Part(call));
    MatrixView out;
    if (tools_.comm.rank() == 0) {
      out = MatrixView(reinterpret_cast<std::byte*>(all_.data()), DType::kF32, 1,
                       static_cast<int64_t>(all_.size()));
    }
    return tools_.comm.GatherCols(ConstMatrixView(part, DType::kF32, 1, elements_), cols_of_rank_,
                                  out);
  }
  absl::Status Check(int64_t call) const override {
    for (int rank = 0; rank < tools_.comm.size() && !all_.empty(); ++rank) {
      BH_RETURN_IF_ERROR(CheckPart(Collective::kGather, rank, call,
                                   reinterpret_cast<const char*>(all_.data() + rank * elements_),
                                   elements_ * kFloatBytes));
    }
    return absl::OkStatus();
  }

 private:
  const CollectiveTools tools_;
  const int64_t elements_;  // of each rank
  const std::vector<int64_t> cols_of_rank_;
  std::vector<float> all_;
};

// The exchange of start-up, through mailboxes.
class AllGather final : public MeasuredCollective {
 public:
  AllGather(int64_t bytes, const CollectiveTools& tools)
      : tools_(tools), part_bytes_(bytes / tools.comm.size()) {}

  absl::Status Call(int64_t call) override {
    BH_ASSIGN_OR_RETURN(
        all_, tools_.group.exchange().AllGather(BytesOf(tools_.pattern.Part(call), part_bytes_),
                                                absl::InfiniteDuration()));
    return absl::OkStatus();
  }
  absl::Status Check(int64_t call) const override {
    for (size_t rank = 0; rank < all_.size(); ++rank) {
      if (static_cast<int64_t>(all_[rank].size()) != part_bytes_) {
        return WithExitCode(
            absl::InternalError(absl::StrCat("all_gather: rank ", rank, " brought ",
                                             all_[rank].size(), " bytes, not ", part_bytes_)),
            ExitCode::kBug);
      }
      BH_RETURN_IF_ERROR(CheckPart(Collective::kAllGather, static_cast<int>(rank), call,
                                   all_[rank].data(), part_bytes_));
    }
    return absl::OkStatus();
  }

 private:
  const CollectiveTools tools_;
  const int64_t part_bytes_;
  std::vector<std::string> all_;
};

// A step plan over the control bus, until all ranks have confirmed it with a sum of one element.
class Broadcast final : public MeasuredCollective {
 public:
  Broadcast(int64_t bytes, const CollectiveTools& tools) : tools_(tools), bytes_(bytes) {}

  absl::Status Call(int64_t call) override {
    if (tools_.comm.rank() == 0) {
      BH_RETURN_IF_ERROR(tools_.group.bus().Publish(BytesOf(tools_.pattern.Part(call), bytes_)));
    } else {
      BH_RETURN_IF_ERROR(tools_.group.bus().Receive(&message_));
    }
    *tools_.comm.PartialSum(1, 1).F32() = 1;
    return tools_.comm.AllReduceSum().status();
  }
  absl::Status Check(int64_t call) const override {
    if (tools_.comm.rank() == 0) return absl::OkStatus();
    if (static_cast<int64_t>(message_.size()) != bytes_) {
      return WithExitCode(absl::InternalError(absl::StrCat("broadcast: ", message_.size(),
                                                           " bytes came, not ", bytes_)),
                          ExitCode::kBug);
    }
    return CheckPart(Collective::kBroadcast, 0, call, message_.data(), bytes_);
  }

 private:
  const CollectiveTools tools_;
  const int64_t bytes_;
  std::string message_;
};

}  // namespace

MessagePattern::MessagePattern(int rank, int64_t max_elements) {
  own_.reserve(max_elements + kOffsets * kOffsetElements);
  for (int64_t i = 0; i < max_elements + kOffsets * kOffsetElements; ++i) {
    own_.push_back(Value(rank, i));
  }
}

float MessagePattern::Value(int rank, int64_t index) {
  return static_cast<float>((index * (2 * rank + 3) + rank) % kModulus);
}

int64_t MessagePattern::OffsetOf(int64_t call) { return call % kOffsets * kOffsetElements; }

std::unique_ptr<MeasuredCollective> MakeCollective(Collective collective, int64_t bytes,
                                                   const CollectiveTools& tools) {
  switch (collective) {
    case Collective::kAllReduce:
      return std::make_unique<AllReduce>(bytes, tools);
    case Collective::kGather:
      return std::make_unique<Gather>(bytes, tools);
    case Collective::kAllGather:
      return std::make_unique<AllGather>(bytes, tools);
    case Collective::kBroadcast:
      break;
  }
  return std::make_unique<Broadcast>(bytes, tools);
}

int64_t UnitBytes(Collective collective, int ranks) {
  const bool shared_out = collective == Collective::kGather || collective == Collective::kAllGather;
  return shared_out ? kFloatBytes * ranks : kFloatBytes;
}

}  // namespace bulkhead
