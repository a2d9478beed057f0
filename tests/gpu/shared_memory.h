// Host memory that a GPU sees at the same address, so that tests whose arrays are vectors run on
// one.
#pragma once

namespace bulkhead {

// From now on `new` gives memory that GPU 0 reads and writes, over the bus. Once it is used up
// (256 MiB at a time) `new` goes on as before. Dies when there is no GPU.
void ShareNewMemory();

}  // namespace bulkhead
