// The vectors used with emulated tiles: plain's, in this namespace.
#pragma once

#include "kernels/simd/plain/simd.h"
