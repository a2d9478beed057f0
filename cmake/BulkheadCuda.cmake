# CUDA, NCCL and cuBLASLt are optional. BH_CUDA=AUTO uses what is available, ON requires it, OFF
# builds without. Sets BH_HAS_CUDA, BH_HAS_NCCL and BH_HAS_CUBLASLT; each missing feature is
# replaced by a file *_absent.cc that reports it. Only the static CUDA runtime is linked: the
# program also starts without a driver or NCCL.
set(BH_CUDA AUTO CACHE STRING "AUTO, ON or OFF")
set_property(CACHE BH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(BH_HAS_CUDA FALSE)
set(BH_HAS_NCCL FALSE)
set(BH_HAS_CUBLASLT FALSE)

if(NOT BH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static
     AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.5)
    set(BH_HAS_CUDA TRUE)
  elseif(BH_CUDA STREQUAL "ON")
    message(FATAL_ERROR "BH_CUDA=ON needs nvcc and cudart_static of CUDA 12.5 or later; name the toolkit with "
                        "-DCUDAToolkit_ROOT=DIR, or build without it: -DBH_CUDA=OFF")
  endif()
endif()

if(BH_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
  endif()
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # Debian's CMake does not know this option of nvcc 13.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  find_path(BH_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(BH_NCCL_INCLUDE_DIR)
    # Headers older than 2.27 lack functions that are called if the library has them.
    file(STRINGS ${BH_NCCL_INCLUDE_DIR}/nccl.h BH_NCCL_WINDOWS REGEX "ncclCommWindowRegister" LIMIT_COUNT 1)
    if(BH_NCCL_WINDOWS)
      set(BH_HAS_NCCL TRUE)
    else()
      message(STATUS "${BH_NCCL_INCLUDE_DIR}/nccl.h is older than NCCL 2.27: built without NCCL")
    endif()
  endif()
  find_path(BH_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  if(BH_CUBLASLT_INCLUDE_DIR)
    set(BH_HAS_CUBLASLT TRUE)
  endif()
endif()
message(STATUS "CUDA: ${BH_HAS_CUDA} ${CMAKE_CUDA_COMPILER_VERSION} [${CMAKE_CUDA_ARCHITECTURES}], NCCL: ${BH_HAS_NCCL}, cuBLASLt: ${BH_HAS_CUBLASLT}")
