// A message of proto/bulkhead/internal/startup.proto from every rank.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "comm/exchange.h"

namespace bulkhead {

// Result by rank. Collective; errors are GroupExchange::AllGather's, and INTERNAL for data that is
// not such a message.
template <typename Message>
absl::StatusOr<std::vector<Message>> GatherMessages(GroupExchange& exchange, const Message& mine,
                                                    absl::Duration timeout) {
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                      exchange.AllGather(mine.SerializeAsString(), timeout));
  std::vector<Message> messages(texts.size());
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (!messages[rank].ParseFromString(texts[rank])) {
      return absl::InternalError(
          absl::StrCat("what rank ", rank, " sent is no ", Message::descriptor()->name()));
    }
  }
  return messages;
}

}  // namespace bulkhead
