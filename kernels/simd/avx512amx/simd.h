// The vectors beside tiles: those of avx512vnni, under its name.
#pragma once

#include "kernels/simd/avx512vnni/simd.h"
