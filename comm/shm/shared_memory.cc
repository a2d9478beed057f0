#include "comm/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/exit_code.h"
#include "base/status.h"

namespace bulkhead {
namespace {

constexpr char kMemfdName[] = "bulkhead";
constexpr int64_t kMinBytes = 4096;

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status SystemError(absl::string_view what) {
  return WithExitCode(absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(errno))),
                      ExitCode::kGroupNotUp);
}

absl::StatusOr<SharedMemory> Map(int fd, int flags, int64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return SystemError(absl::StrCat("cannot map ", FormatBytes(bytes)));
  return SharedMemory(static_cast<std::byte*>(data),
                      [bytes](std::byte* base) { munmap(base, bytes); });
}

// The probe: word 0 holds rank 0's token, word 1 + r rank r's reply.
std::atomic_ref<uint64_t> ProbeWord(const SharedMemory& memory, int index) {
  return std::atomic_ref<uint64_t>(reinterpret_cast<uint64_t*>(memory.get())[index]);
}

uint64_t AnswerOf(uint64_t token, int rank) { return token ^ static_cast<uint64_t>(rank + 1); }

absl::Status NotShared(const std::string& path, absl::string_view why) {
  return WithExitCode(
      absl::FailedPreconditionError(absl::StrCat(
          "cannot map the memory of rank 0 (", path, "): ", why,
          "; the ranks of one host must run as one user and see each other's processes (one PID "
          "namespace, one container), or be told apart by a BULKHEAD_NODE_NAME for each "
          "container")),
      ExitCode::kGroupNotUp);
}

// Opens and maps the memory of rank 0's `ticket`: "pid fd token".
absl::StatusOr<SharedMemory> OpenTicket(const std::string& ticket, int rank, int64_t bytes) {
  const std::vector<std::string> parts = absl::StrSplit(ticket, ' ');
  uint64_t token = 0;
  BH_CHECK(parts.size() == 3 && absl::SimpleAtoi(parts[2], &token));
  const std::string path = absl::StrCat("/proc/", parts[0], "/fd/", parts[1]);
  // Check before opening: in another PID namespace the path may refer to anything.
  char target[64] = {};
  if (readlink(path.c_str(), target, sizeof(target) - 1) < 0) {
    return NotShared(path, std::strerror(errno));
  }
  if (!absl::StartsWith(target, absl::StrCat("/memfd:", kMemfdName))) {
    return NotShared(path, absl::StrCat("it is '", target, "'"));
  }
  const FileDescriptor fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) return NotShared(path, std::strerror(errno));
  struct stat file;
  if (fstat(fd.get(), &file) != 0 || file.st_size != bytes) {
    return NotShared(path, "it has another size");
  }
  BH_ASSIGN_OR_RETURN(SharedMemory memory, Map(fd.get(), MAP_SHARED, bytes));
  if (ProbeWord(memory, 0).load() != token) return NotShared(path, "it is another launch's memory");
  ProbeWord(memory, 1 + rank).store(AnswerOf(token, rank));
  return memory;
}

struct Offer {
  SharedMemory memory;
  uint64_t token = 0;
};

absl::StatusOr<Offer> MakeOffer(int fd, int64_t bytes) {
  if (fd < 0) return SystemError("cannot create a memfd");
  if (ftruncate(fd, bytes) != 0) {
    return SystemError(absl::StrCat("cannot size a memfd to ", FormatBytes(bytes)));
  }
  Offer offer;
  if (getrandom(&offer.token, sizeof(offer.token), 0) != sizeof(offer.token)) {
    return SystemError("getrandom");
  }
  BH_ASSIGN_OR_RETURN(offer.memory, Map(fd, MAP_SHARED, bytes));
  ProbeWord(offer.memory, 0).store(offer.token);
  return offer;
}

// Rank 0: checks all replies; resets the probe's words to zero.
absl::Status CheckAnswers(const Offer& offer, int size) {
  for (int rank = 1; rank < size; ++rank) {
    if (ProbeWord(offer.memory, 1 + rank).load() == AnswerOf(offer.token, rank)) continue;
    return WithExitCode(absl::FailedPreconditionError(absl::StrCat(
                            "what rank ", rank, " wrote to the shared memory is not visible")),
                        ExitCode::kGroupNotUp);
  }
  for (int word = 0; word <= size; ++word) ProbeWord(offer.memory, word).store(0);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedMemory> NewThreadSharedMemory(int64_t bytes) {
  return Map(-1, MAP_PRIVATE | MAP_ANONYMOUS, bytes);
}

absl::StatusOr<SharedMemory> ShareBetweenThreads(GroupExchange& exchange, int64_t bytes,
                                                 absl::Duration timeout) {
  absl::StatusOr<SharedMemory> memory = SharedMemory();
  std::string ticket;
  if (exchange.topology().rank == 0) {
    memory = NewThreadSharedMemory(bytes);
    ticket = absl::StrCat(reinterpret_cast<uintptr_t>(&memory));
  }
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> tickets, exchange.AllGather(ticket, timeout));
  uintptr_t address = 0;
  BH_CHECK(absl::SimpleAtoi(tickets[0], &address));
  if (exchange.topology().rank != 0) {
    memory = *reinterpret_cast<const absl::StatusOr<SharedMemory>*>(address);
  }
  // The agreement also keeps rank 0 here until every rank has mapped it.
  BH_RETURN_IF_ERROR(Agree(exchange, "shared memory", memory.status(), timeout));
  return memory;
}

absl::StatusOr<SharedMemory> ShareBetweenProcesses(GroupExchange& exchange, int64_t bytes,
                                                   absl::Duration timeout) {
  constexpr char kPhase[] = "shared memory";
  const RankTopology& topology = exchange.topology();
  BH_CHECK(bytes >= kMinBytes && topology.size < kMinBytes / 8);
  const bool owner = topology.rank == 0;
  // Open until every rank has mapped it.
  const FileDescriptor fd(owner ? memfd_create(kMemfdName, MFD_CLOEXEC) : -1);
  absl::StatusOr<Offer> offer = owner ? MakeOffer(fd.get(), bytes) : Offer();
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, offer.status(), timeout));

  const std::string ticket =
      owner ? absl::StrCat(getpid(), " ", fd.get(), " ", offer->token) : std::string();
  BH_ASSIGN_OR_RETURN(const std::vector<std::string> tickets, exchange.AllGather(ticket, timeout));
  absl::StatusOr<SharedMemory> memory = offer->memory;
  if (!owner) memory = OpenTicket(tickets[0], topology.rank, bytes);
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, memory.status(), timeout));
  const absl::Status answers = owner ? CheckAnswers(*offer, topology.size) : absl::OkStatus();
  BH_RETURN_IF_ERROR(Agree(exchange, kPhase, answers, timeout));
  return memory;
}

}  // namespace bulkhead
