// ShmBus: a ring of chunks with one writer and many readers. Readers sleep in a futex.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "comm/control_bus.h"
#include "comm/region.h"

namespace bulkhead {

class ShmBus final : public ControlBus {
 public:
  explicit ShmBus(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  absl::Status Publish(absl::string_view message) override;
  absl::Status Receive(std::string* message) override;

 private:
  std::shared_ptr<Region> region_;
  uint32_t chunks_ = 0;  // published by the writer, or consumed by this reader
};

}  // namespace bulkhead
