#include "intrinsics.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/packing/cuda_packing.h"

namespace bulkhead {
namespace cuda {

struct EmbedParameters {
  const int32_t* tokens = nullptr;  // [T]
  PackedWeight table;
  int64_t first_row = 0;
  Rows out;
};

namespace {

template <WeightFormat kFormat>
BH_DEVICE float NumberAt(const PackedWeight& table, int64_t row, int at) {
  if constexpr (IsQuantized(kFormat)) {
    constexpr bool kInt8 = kFormat == WeightFormat::kInt8;
    const CodePlace place =
        kInt8 ? Int8Place(row, at, table.depth) : Int4Place(row, at, table.depth);
    const uint32_t word = reinterpret_cast<const uint32_t*>(table.numbers)[place.word];
    const int code = static_cast<int>(word >> place.shift & (kInt8 ? 255 : 15));
    const int64_t padded_rows = (table.rows + kTileRows - 1) / kTileRows * kTileRows;
    const uint32_t scaling =
        table.scaling[CellOf(table.chunk_cell[at / kChunkInputs]) * padded_rows + row];
    const int zero = kInt8 ? 128 : static_cast<int>(scaling & kInt4ZeroBits);
    return static_cast<float>(code - zero) * __uint_as_float(ScaleBits(kFormat, scaling));
  } else {
    const uint16_t bits = reinterpret_cast<const uint16_t*>(table.numbers)[row * table.depth + at];
    return kFormat == WeightFormat::kBF16 ? F32OfBf16(bits) : F32OfF16(bits);
  }
}

template <WeightFormat kFormat>
BH_KERNEL(kRowThreads)
Embed(EmbedParameters p) {
  GridDependencySynchronize();
  const int64_t row = p.tokens[int(blockIdx.x)] - p.first_row;
  float* const out = p.out.data + int(blockIdx.x) * p.out.stride;
  const bool here = row >= 0 && row < p.table.rows;
  for (int at = int(threadIdx.x); at < p.table.depth; at += kRowThreads) {
    const int input = p.table.input_at == nullptr ? at : p.table.input_at[at];
    if (input < 0 || input >= p.table.inputs) continue;
    out[input] = here ? NumberAt<kFormat>(p.table, row, at) + 0.0F : 0.0F;
  }
}

CudaKernelOf<EmbedParameters> EmbedKernel(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF16:
      return KernelOf<kRowThreads>("embed f16", Embed<WeightFormat::kF16>);
    case WeightFormat::kInt8:
      return KernelOf<kRowThreads>("embed int8", Embed<WeightFormat::kInt8>);
    case WeightFormat::kInt4:
      return KernelOf<kRowThreads>("embed int4", Embed<WeightFormat::kInt4>);
    default:
      BH_CHECK(format == WeightFormat::kBF16);
      return KernelOf<kRowThreads>("embed bf16", Embed<WeightFormat::kBF16>);
  }
}

const KernelRegistration kRegistered(EmbedKernel(WeightFormat::kBF16),
                                     EmbedKernel(WeightFormat::kF16),
                                     EmbedKernel(WeightFormat::kInt8),
                                     EmbedKernel(WeightFormat::kInt4));

}  // namespace
}  // namespace cuda

void CudaBackend::Embed(const int32_t* tokens, const Linear& table, int64_t first_row,
                        MatrixView out) {
  if (out.empty()) return;
  const PackedLayout layout(table.shape);
  Enqueue(driver_, cuda::EmbedKernel(table.shape.format), cuda::OneBlockPerRow(out),
          {tokens, layout.Parameters(table.shape, table.packed), first_row, cuda::RowsOf(out)});
}

}  // namespace bulkhead
