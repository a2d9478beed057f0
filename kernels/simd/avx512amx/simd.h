// The vectors used with tiles: avx512vnni's, in this namespace.
#pragma once

#include "kernels/simd/avx512vnni/simd.h"
