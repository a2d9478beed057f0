// The structured output of a request: its grammar's automaton. Errors as in request_builder.h, and
// RESOURCE_EXHAUSTED (STRUCTURED_OUTPUT) if grammars of other requests leave no room.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "bulkhead/v1/generation.pb.h"
#include "runtime/service/request_builder.h"
#include "runtime/structured/automaton.h"

namespace bulkhead {

inline constexpr size_t kMaxGrammarTextBytes = 256;  // each: prefix, suffix, free_until, free_from

// Null if `request` asks for no grammar. Compiling may take some tenths of a second.
absl::StatusOr<std::shared_ptr<structured::Automaton>> BuildGrammar(
    const v1::GenerateRequest& request, const RequestRules& rules);

// As BuildGrammar if the grammar is compiled already, else null; returns at once.
std::shared_ptr<structured::Automaton> CompiledGrammar(const v1::GenerateRequest& request,
                                                       const RequestRules& rules);

}  // namespace bulkhead
