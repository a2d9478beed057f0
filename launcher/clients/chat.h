// `bulkhead chat`: a conversation with the model of a running server.
#pragma once

#include "absl/status/status.h"
#include "launcher/flags/options.h"

namespace bulkhead {

// In a terminal, reads messages until the user leaves; otherwise standard input is one message. The
// server renders the chat template: the command needs no model.
absl::Status RunChat(const ChatOptions& options);

}  // namespace bulkhead
