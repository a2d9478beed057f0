#include "comm/local/local_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/status.h"
#include "comm/shm/shm_group.h"
#include "comm/tree/multi_host_group.h"
#include "comm/wait.h"

namespace bulkhead {
namespace {

// There are no other ranks to lose: only the watchdog's own limits apply.
class SingleLiveness final : public GroupLiveness {
 public:
  void Beat() override {}
  absl::Status Check(absl::Duration) override {
    const absl::MutexLock lock(&mutex_);
    return lost_;
  }
  void Rearm() override {}
  void ReportIdle(absl::Duration) override {}
  Stragglers FindStragglers() override { return {}; }
  int fd() const override { return -1; }
  void Abort(const absl::Status& why) override {
    const absl::MutexLock lock(&mutex_);
    lost_.Update(why);
  }
  void Ending() override {}
  bool CoordinatorEnded() override { return false; }

 private:
  absl::Mutex mutex_;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

class SingleExchange final : public GroupExchange {
 public:
  explicit SingleExchange(SingleLiveness& liveness) : liveness_(liveness) {
    const absl::StatusOr<RankTopology> topology = TopologyFrom(0, {HostIdentity()});
    BH_CHECK(topology.ok());
    topology_ = *topology;
  }
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration) override {
    BH_RETURN_IF_ERROR(liveness_.Check(absl::InfiniteDuration()));
    return std::vector<std::string>{std::string(mine)};
  }

 private:
  SingleLiveness& liveness_;
  RankTopology topology_;
};

class SingleBus final : public ControlBus {
 public:
  absl::Status Publish(absl::string_view) override { return absl::OkStatus(); }
  absl::Status Receive(std::string*) override {
    return absl::FailedPreconditionError("a group of one has no readers");
  }
};

// With one rank the partial sum is the sum.
class SingleCommunicator final : public Communicator {
 public:
  SingleCommunicator(const CommLimits& limits, Buffer partial)
      : limits_(limits), partial_(std::move(partial)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }

  MatrixView PartialSum(int64_t rows, int64_t cols) override {
    BH_CHECK(rows >= 0 && cols >= 0 && rows * cols <= limits_.max_sum_elements);
    view_ = MatrixView(partial_.data(), DType::kF32, rows, cols);
    return view_;
  }
  absl::StatusOr<ConstMatrixView> AllReduceSum() override { return ConstMatrixView(view_); }
  absl::Status GatherCols(ConstMatrixView part, absl::Span<const int64_t> cols_of_rank,
                          MatrixView out) override {
    BH_CHECK(cols_of_rank.size() == 1 && cols_of_rank[0] == part.cols());
    BH_CHECK(out.rows() == part.rows() && out.cols() == part.cols());
    for (int64_t row = 0; row < part.rows(); ++row) {
      std::memcpy(out.F32(row), part.F32(row), part.cols() * sizeof(float));
    }
    return absl::OkStatus();
  }

 private:
  CommLimits limits_;
  Buffer partial_;
  MatrixView view_;
};

class SingleGroup final : public Group {
 public:
  GroupExchange& exchange() override { return exchange_; }
  ControlBus& bus() override { return bus_; }
  GroupLiveness& liveness() override { return liveness_; }
  void AllowSpinning(bool) override {}
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const CommLimits& limits,
                                                        MemoryLedger& ledger) override {
    absl::StatusOr<Buffer> partial =
        ledger.Take(MemoryCategory::kCommunication, CommunicationBytes(limits, 1));
    if (!partial.ok()) return MarkAgreed(WithExitCode(partial.status(), ExitCode::kDoesNotFit));
    return std::make_unique<SingleCommunicator>(limits, *std::move(partial));
  }
  void Leave(const absl::Status&) override {}

 private:
  SingleLiveness liveness_;
  SingleExchange exchange_{liveness_};
  SingleBus bus_;
};

// Messages in flight: by kind, sender and receiver.
struct Post {
  std::atomic<int64_t>* tensor_bytes = nullptr;  // sent so far
  absl::Mutex mutex;
  std::map<std::array<int, 3>, std::deque<std::string>> boxes ABSL_GUARDED_BY(mutex);
};

class LocalLink final : public LeaderLink {
 public:
  LocalLink(int node, int num_nodes, std::shared_ptr<Region> region, std::shared_ptr<Post> post)
      : node_(node), num_nodes_(num_nodes), region_(std::move(region)), post_(std::move(post)) {}
  int node() const override { return node_; }
  int num_nodes() const override { return num_nodes_; }
  void set_may_spin(bool may_spin) override { may_spin_ = may_spin; }

  absl::Status Transfer(LinkKind kind, absl::Span<const Outgoing> sends,
                        absl::Span<const Incoming> receives, int64_t deadline_ns) override {
    for (const Outgoing& out : sends) {
      BH_CHECK(out.node != node_ && out.bytes > 0 && out.bytes <= kMaxLinkMessageBytes);
      if (kind == LinkKind::kTensors && post_->tensor_bytes != nullptr) {
        *post_->tensor_bytes += out.bytes;
      }
      const absl::MutexLock lock(&post_->mutex);
      post_->boxes[{static_cast<int>(kind), node_, out.node}].emplace_back(
          static_cast<const char*>(out.data), out.bytes);
    }
    for (const Incoming& in : receives) {
      BackOff back_off(may_spin_);
      std::string message;
      while (!TryTake({static_cast<int>(kind), in.node, node_}, message)) {
        region_->set_awaited_node(in.node, MonotonicNanos());
        BH_RETURN_IF_ERROR(region_->abort_status());
        if (MonotonicNanos() > deadline_ns) return absl::DeadlineExceededError("");
        back_off.Pause();
      }
      BH_RETURN_IF_ERROR(Put(message, in));
    }
    region_->set_awaited_node(-1, MonotonicNanos());
    return absl::OkStatus();
  }

 private:
  bool TryTake(const std::array<int, 3>& box, std::string& message) {
    const absl::MutexLock lock(&post_->mutex);
    std::deque<std::string>& messages = post_->boxes[box];
    if (messages.empty()) return false;
    message = std::move(messages.front());
    messages.pop_front();
    return true;
  }
  absl::Status Put(const std::string& message, const Incoming& in) {
    const auto bytes = static_cast<int64_t>(message.size());
    if (in.length != nullptr) {
      BH_CHECK(in.rows == 1 && bytes <= in.row_bytes);
      std::memcpy(in.data, message.data(), bytes);
      *in.length = bytes;
      return absl::OkStatus();
    }
    if (bytes != in.row_bytes * in.rows) {
      return WithExitCode(
          absl::InternalError(absl::StrCat("node ", in.node, " sends ", bytes, " bytes where node ",
                                           node_, " expects ", in.row_bytes * in.rows)),
          ExitCode::kBug);
    }
    for (int64_t row = 0; row < in.rows; ++row) {
      std::memcpy(static_cast<char*>(in.data) + row * in.stride_bytes,
                  message.data() + row * in.row_bytes, in.row_bytes);
    }
    return absl::OkStatus();
  }

  const int node_;
  const int num_nodes_;
  const std::shared_ptr<Region> region_;
  const std::shared_ptr<Post> post_;
  bool may_spin_ = false;
};

// One link per node leader; `regions` [nodes]: an abort there ends their waits.
std::vector<std::unique_ptr<LeaderLink>> NewLocalLinks(
    const std::vector<std::shared_ptr<Region>>& regions, std::atomic<int64_t>* tensor_bytes) {
  const auto post = std::make_shared<Post>();
  post->tensor_bytes = tensor_bytes;
  std::vector<std::unique_ptr<LeaderLink>> links;
  for (size_t node = 0; node < regions.size(); ++node) {
    links.push_back(std::make_unique<LocalLink>(
        static_cast<int>(node), static_cast<int>(regions.size()), regions[node], post));
  }
  return links;
}

// An exchange with another topology: the same ranks on other nodes.
class RenamedExchange final : public GroupExchange {
 public:
  RenamedExchange(GroupExchange& real, const RankTopology& topology)
      : real_(real), topology_(topology) {}
  const RankTopology& topology() const override { return topology_; }
  absl::StatusOr<std::vector<std::string>> AllGather(absl::string_view mine,
                                                     absl::Duration timeout) override {
    return real_.AllGather(mine, timeout);
  }

 private:
  GroupExchange& real_;
  const RankTopology& topology_;
};

}  // namespace

std::unique_ptr<Group> NewSingleGroup() { return std::make_unique<SingleGroup>(); }

std::vector<std::unique_ptr<Group>> NewLocalGroups(int size) {
  std::vector<std::unique_ptr<Group>> groups;
  if (size == 1) {
    groups.push_back(NewSingleGroup());
    return groups;
  }
  const absl::StatusOr<SharedMemory> memory = NewThreadSharedMemory(Region::Bytes(size));
  BH_CHECK(memory.ok());
  const std::vector<std::string> identities(size, HostIdentity());
  for (int rank = 0; rank < size; ++rank) {
    const absl::StatusOr<RankTopology> topology = TopologyFrom(rank, identities);
    BH_CHECK(topology.ok());
    groups.push_back(std::make_unique<ShmGroup>(std::make_shared<Region>(*memory, rank, size),
                                                *topology, &ShareBetweenThreads));
  }
  return groups;
}

std::vector<std::unique_ptr<Group>> NewLocalNodes(const std::vector<int>& node_of_rank,
                                                  std::atomic<int64_t>* tensor_bytes) {
  std::vector<std::string> identities;
  for (const int node : node_of_rank) {
    identities.push_back(absl::StrCat("host", node, " boot 1"));
  }
  const auto size = static_cast<int>(node_of_rank.size());
  // The groups are set up over a common one, as processes are over MPI.
  const std::vector<std::unique_ptr<Group>> bootstrap = NewLocalGroups(size);
  std::vector<std::shared_ptr<Region>> regions;  // by node, as mapped by the leader
  std::vector<SharedMemory> memories;            // by node
  std::vector<RankTopology> worlds;              // by rank
  for (int rank = 0; rank < size; ++rank) {
    worlds.push_back(*TopologyFrom(rank, identities));
    if (worlds[rank].local_rank != 0) continue;
    const int local_size = worlds[rank].local_size;
    memories.push_back(*NewThreadSharedMemory(Region::Bytes(local_size)));
    regions.push_back(std::make_shared<Region>(memories.back(), 0, local_size));
  }
  std::vector<std::unique_ptr<LeaderLink>> links = NewLocalLinks(regions, tensor_bytes);
  std::vector<std::unique_ptr<Group>> groups(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const RankTopology& world = worlds[rank];
      const int node = world.node();
      const bool leader = world.local_rank == 0;
      RenamedExchange exchange(bootstrap[rank]->exchange(), world);
      auto host_liveness = HostLiveness::Connect(exchange, "lo", absl::Minutes(1), &MonotonicNanos);
      BH_CHECK(host_liveness.ok());
      auto region =
          leader ? regions[node]
                 : std::make_shared<Region>(memories[node], world.local_rank, world.local_size);
      auto shm = std::make_unique<ShmGroup>(region, NodeTopology(world), &ShareBetweenThreads);
      groups[rank] = std::make_unique<MultiHostGroup>(
          region, std::move(shm), world, leader ? std::move(links[node]) : nullptr,
          *std::move(host_liveness), &ShareBetweenThreads);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return groups;
}

}  // namespace bulkhead
