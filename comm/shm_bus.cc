#include "comm/shm_bus.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status.h"

namespace bulkhead {

// Chunk c (from 0) is in ring slot c % kBusChunks. The writer fills it once every reader has
// consumed chunk c - kBusChunks, and raises its count to c + 1; a reader raises its own count after
// copying the chunk. The counts wrap together, as kBusChunks divides 2^32.
static_assert((kBusChunks & (kBusChunks - 1)) == 0);

absl::Status ShmBus::Publish(absl::string_view message) {
  BH_CHECK(region_->rank() == 0);
  if (region_->size() == 1) return absl::OkStatus();
  size_t sent = 0;
  do {
    for (int reader = 1; reader < region_->size(); ++reader) {
      BH_RETURN_IF_ERROR(region_->Wait(region_->bus(reader), chunks_ + 1 - kBusChunks));
    }
    const absl::string_view piece = message.substr(sent, kBusChunkBytes);
    BusChunk& chunk = region_->bus_chunk(chunks_);
    chunk.message_bytes = static_cast<int64_t>(message.size());
    chunk.piece_bytes = static_cast<int64_t>(piece.size());
    std::memcpy(chunk.piece.data(), piece.data(), piece.size());
    Raise(region_->bus(0), ++chunks_);
    sent += piece.size();
  } while (sent < message.size());
  return absl::OkStatus();
}

absl::Status ShmBus::Receive(std::string* message) {
  BH_CHECK(region_->rank() != 0);
  message->clear();
  int64_t message_bytes = 0;
  do {
    BH_RETURN_IF_ERROR(region_->Wait(region_->bus(0), chunks_ + 1));
    const BusChunk& chunk = region_->bus_chunk(chunks_);
    message_bytes = chunk.message_bytes;
    BH_CHECK(chunk.piece_bytes >= 0 && chunk.piece_bytes <= kBusChunkBytes);
    message->append(chunk.piece.data(), chunk.piece_bytes);
    Raise(region_->bus(region_->rank()), ++chunks_);
  } while (static_cast<int64_t>(message->size()) < message_bytes);
  return absl::OkStatus();
}

}  // namespace bulkhead
