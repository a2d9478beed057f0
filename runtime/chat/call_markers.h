// The markers around calls, by format.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/chat/call_header.h"
#include "runtime/chat/tagged_arguments.h"

namespace bulkhead {

// Tags of calls whose arguments are in tags.
struct FunctionTags {
  absl::string_view open, close;  // around the name; open is empty if nothing precedes it
  ArgumentTags arguments;
};

// The text between a marker and the JSON or the arguments of a call.
enum class BeforeCall {
  kNothing,
  kHeader,      // the name, as ReadCallHeader reads it
  kMayBeHeader  // or nothing
};

struct CallMarkers {
  // The first num_opening begin calls; the others surround several calls and are ignored. A bracket
  // at the end of a marker belongs to the list.
  std::vector<absl::string_view> markers = {};
  size_t num_opening = 1;
  std::vector<absl::string_view> ends = {};  // what may follow a call
  const FunctionTags* functions = nullptr;   // null: calls are JSON
  absl::string_view list_end = "";           // ends a list of calls in Python's form; else empty
  BeforeCall before = BeforeCall::kNothing;
  absl::string_view inner = "";  // what may follow a marker, before a call or a list, else empty
  bool may_be_list = false;      // a list of calls in JSON
  absl::string_view quote = "";  // around strings in Gemma's arguments; else empty
};
CallMarkers MarkersOf(ToolFormat format);

// Texts that begin a call inside open reasoning, and so end it: longer than the marker if reasoning
// may mention the marker. None for Hermes, whose reasoning drafts calls before making them.
std::vector<absl::string_view> CallsInReasoning(ToolFormat format);

}  // namespace bulkhead
