// Settings of an embedding model, from the files of sentence-transformers: modules.json and the
// config.json of its pooling module.
#pragma once

#include <string>

#include "runtime/service/request_builder.h"

namespace bulkhead {

// Settings of the model in `dir`, whose hidden states have `hidden_size` elements. Only the last
// token's whole state is served, with or without normalization; for anything else `size` is 0 and
// why_not says why.
EmbeddingRules ReadEmbeddingRules(const std::string& dir, int64_t hidden_size);

}  // namespace bulkhead
