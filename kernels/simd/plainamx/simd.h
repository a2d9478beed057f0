// The vectors beside emulated tiles: those of plain, under its name.
#pragma once

#include "kernels/simd/plain/simd.h"
