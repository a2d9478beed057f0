#include "kernels/bench/kernels_bench.h"

#include <memory>

#include "base/status.h"
#include "kernels/bench/attention_bench.h"
#include "kernels/bench/machine.h"
#include "kernels/bench/product_bench.h"

namespace bulkhead {

absl::Status MeasureKernels(const KernelsBenchOptions& options,
                            const std::function<void(const KernelResult&)>& on_result) {
  BH_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine,
                      Machine::Create(options.num_threads, options.isa));
  const int32_t head = 0;
  machine->SetWorkspace({.max_num_batched_tokens = 512,
                         .max_num_seqs = 16,
                         .max_model_len = 1024,
                         .max_int8_inputs = 2816,
                         .max_inputs = 2816,
                         .bf16_inputs = true,
                         .bf16_tiles = true},
                        {1, 1, 64, &head});
  MeasureProducts(*machine, options, on_result);
  MeasureAttention(*machine, options, on_result);
  return absl::OkStatus();
}

}  // namespace bulkhead
