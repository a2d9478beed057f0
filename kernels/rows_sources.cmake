# Sources of the ops that work row by row, and of the reference backends, for kernels/CMakeLists.txt.
set(BH_ROWS_SOURCES
  reference/input_quantizer.cc
  reference/kv_quantizer.cc
  reference/number_format.cc
  reference/ordered_attention.cc
  reference/ordered_backend.cc
  reference/ordered_math.cc
  reference/plain_backend.cc
  reference/quantized_weight.cc
  reference/reference_backend.cc
  reference/sequence_cache.cc
  cpu/attention_plan.cc
  cpu/row_ops.cc)
# Compiled once per instruction set.
set(BH_ROWS_ISA_SOURCES
  cpu/attention.cc
  cpu/row_kernels.cc)
