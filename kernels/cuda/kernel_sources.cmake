# The kernels, for nvcc (CMakeLists.txt beside this) and for the emulator (tests/kernels/cuda).
set(BH_CUDA_KERNELS add append_kv attend_bf16 attend_f16 attend_int4 attend_int8 combine draw embed fill
                    fill_in_sampled gather_inputs gemm linear norm_rope read_all rms_norm select_candidates select_rows
                    swiglu unpack write_late)
list(TRANSFORM BH_CUDA_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)
list(TRANSFORM BH_CUDA_KERNELS APPEND .cu)
