// A step's attention work, listed on the host: an item per split of a sequence's context, the
// longest first. Blocks share the items of one-token sequences, so that a grid of a fixed size is
// evenly busy whatever lengths the sequences have. Items of sequences of several tokens come in
// rounds, of as many sequences as have room for their sums.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attend/cuda_kernels.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_sizes.h"

namespace bulkhead {

class AttendList {
 public:
  // Copies for steps in flight, on the host: each is being copied to the device.
  static constexpr int kCopies = 2;
  // Sequences of several tokens whose splits are computed, and then added up, together.
  struct Round {
    int first_item = 0;
    int num_items = 0;
    int first_combined = 0;
    int num_combined = 0;  // tokens
    int max_tokens = 0;    // maximum in a sequence
  };

  // Memory layout: 16 bytes that begin with the number of one-token items and the offset of their
  // work, in words from here; these items, then those of rounds; the tokens that rounds combine;
  // the work before each of the first items, and the total. Room for any step:
  static int64_t Bytes(const StepLimits& limits, const CudaAttentionSplits& splits) {
    const int64_t max_items = int64_t{limits.max_num_seqs} * splits.per_context;
    return 16 * (1 + max_items + limits.max_num_batched_tokens) + 4 * (max_items + 1);
  }
  static const cuda::AttendItem* ItemsOf(const int32_t* list) {
    return reinterpret_cast<const cuda::AttendItem*>(list + 4);
  }
  const cuda::CombineItem* CombinedOf(const int32_t* list) const {
    return reinterpret_cast<const cuda::CombineItem*>(ItemsOf(list) + num_items_);
  }

  // Writes the list of a step whose index is in host memory; returns its bytes.
  int64_t Fill(const StepIndex& host_index, const CudaAttentionSplits& splits, int32_t* list);

  // Of the step that it was filled for.
  int num_tokens() const { return num_tokens_; }
  bool has_decodes() const { return has_decodes_; }  // sequences of one token
  // Largest number of tokens of a sequence of several tokens with one split; 0: there is none.
  int max_whole_tokens() const { return max_whole_tokens_; }
  const std::vector<Round>& rounds() const { return rounds_; }

 private:
  // Splits of one sequence with equal lengths.
  struct Run {
    cuda::AttendItem first;
    int count = 0;
    int tokens = 0;    // of each
    int row_step = 0;  // from one split's sums to the next's
  };

  void AddSplits(int seq, int tokens, int split_tokens, int row0, int row_step);
  void PutItems(int32_t* list);

  std::vector<Run> runs_;  // not in the list yet
  std::vector<cuda::CombineItem> combined_;
  std::vector<Round> rounds_;
  std::vector<int32_t> work_before_;  // before each item
  int num_items_ = 0;
  int num_tokens_ = 0;
  bool has_decodes_ = false;
  int max_whole_tokens_ = 0;
};

}  // namespace bulkhead
