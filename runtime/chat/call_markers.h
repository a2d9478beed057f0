// What stands around calls, by format.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/call_header.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

// Tags of calls whose arguments are in tags.
struct FunctionTags {
  absl::string_view open, close;  // around the name; open is empty where nothing is before it
  ArgumentTags arguments;
};

// What is between a marker and the JSON or the arguments of a call.
enum class BeforeCall {
  kNothing,
  kHeader,      // the name, as ReadCallHeader reads it
  kMayBeHeader  // or nothing
};

struct CallMarkers {
  // The first num_opening begin calls; the others are around several and say nothing. A bracket at
  // the end of one is the list's.
  std::vector<absl::string_view> markers = {};
  size_t num_opening = 1;
  std::vector<absl::string_view> ends = {};  // what may stand after a call
  const FunctionTags* functions = nullptr;   // null: calls are JSON
  absl::string_view list_end = "";           // of a list of calls in Python's form, else empty
  BeforeCall before = BeforeCall::kNothing;
  absl::string_view inner = "";  // what may follow a marker, before a call or a list, else empty
  bool may_be_list = false;      // of calls in JSON
  absl::string_view quote = "";  // around strings in arguments of Gemma's form, else empty
};
CallMarkers MarkersOf(ToolFormat format);

// What begins a call inside of open reasoning, which ends there: more than the marker where
// reasoning may mention that. None of Hermes: reasoning drafts its calls before they are made.
std::vector<absl::string_view> CallsInReasoning(ToolFormat format);

}  // namespace bulkhead
