// The text part of Llama 4.
#pragma once

#include "runtime/model/family.h"

namespace bulkhead::families {

Family llama4();

}  // namespace bulkhead::families
