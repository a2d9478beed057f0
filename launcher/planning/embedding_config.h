// What an embedding model says of its embeddings, in the files of sentence-transformers:
// modules.json and the config.json of its pooling module.
#pragma once

#include <string>

#include "runtime/service/request_builder.h"

namespace bulkhead {

// Of the model in `dir`, whose hidden states have `hidden_size` elements. The last token's are
// served, whole, with or without normalization; `size` is 0 for anything else, and why_not says
// what it is.
EmbeddingRules ReadEmbeddingRules(const std::string& dir, int64_t hidden_size);

}  // namespace bulkhead
