// The file of a node, in mapped memory: the state of each rank, and a robust mutex that the rank
// holds while it lives. Other ranks of the node detect the rank's death by the mutex.
#include <trireme/grid/node_file.hpp>

#include <trireme/base/check.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

namespace trireme::grid {

struct alignas(64) NodeFile::Header {
  std::atomic<std::int64_t> clock{0};
  std::atomic<Verdict> verdict{Verdict::none};
};

struct alignas(64) NodeFile::Slot {
  SharedState state;
  pthread_mutex_t lock;
};

namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Error(text("cannot use the heartbeat file ", path, ": ", std::strerror(errno),
                   "; make the run's directory writable or set [run] watchdog = \"00:00:00\""));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags, 0666)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

std::size_t NodeFile::bytes(int ranks) {
  return sizeof(Header) + static_cast<std::size_t>(ranks) * sizeof(Slot);
}

NodeFile::Header& NodeFile::header() const {
  return *static_cast<Header*>(memory_);
}

NodeFile::Slot& NodeFile::slot(int i) const {
  return reinterpret_cast<Slot*>(static_cast<std::byte*>(memory_) + sizeof(Header))[i];
}

void NodeFile::create(const std::string& path, int ranks) {
  const Descriptor file(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC);
  // Zeros mean no verdict and absent ranks. Writing them makes a full disk an error here instead of
  // a SIGBUS later.
  const std::vector<char> zeros(bytes(ranks), 0);
  if (file.get() < 0 ||
      pwrite(file.get(), zeros.data(), zeros.size(), 0) != static_cast<ssize_t>(zeros.size()))
    fail(path);
}

NodeFile::NodeFile(const std::string& path, int ranks, int mine) : ranks_(ranks), mine_(mine) {
  const Descriptor file(path, O_RDWR | O_CLOEXEC);
  if (file.get() < 0) fail(path);
  memory_ = mmap(nullptr, bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory_ == MAP_FAILED) fail(path);
}

NodeFile::~NodeFile() {
  munmap(memory_, bytes(ranks_));
}

void NodeFile::enter() {
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_t* lock = &slot(mine_).lock;
  const bool made = pthread_mutex_init(lock, &kind) == 0 && pthread_mutex_lock(lock) == 0;
  pthread_mutexattr_destroy(&kind);
  check(made,
        "heartbeat: this system has no robust mutexes between processes; set [run] watchdog = "
        "\"00:00:00\"");
}

void NodeFile::leave() {
  pthread_mutex_unlock(&slot(mine_).lock);
}

SharedState& NodeFile::state(int i) {
  return slot(i).state;
}

NodeFile::Lock NodeFile::watch(int i, std::chrono::milliseconds limit) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const std::int64_t nanoseconds = until.tv_nsec + limit.count() % 1000 * 1'000'000;
  until.tv_sec += limit.count() / 1000 + nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  pthread_mutex_t* lock = &slot(i).lock;
  switch (limit.count() > 0 ? pthread_mutex_timedlock(lock, &until) : pthread_mutex_trylock(lock)) {
    case 0:
      pthread_mutex_unlock(lock);
      return Lock::released;
    case EOWNERDEAD:
      pthread_mutex_unlock(lock);  // not made consistent, so the next check finds the death too
      return Lock::died;
    case ENOTRECOVERABLE:
      return Lock::died;
    default:
      return Lock::held;
  }
}

std::atomic<Verdict>& NodeFile::verdict() {
  return header().verdict;
}

std::atomic<std::int64_t>& NodeFile::clock() {
  return header().clock;
}

void NodeFile::publish() {
  msync(memory_, bytes(ranks_), MS_SYNC);
}

NodeFile::Snapshot NodeFile::read(const std::string& path, int ranks) {
  Snapshot found;
  const Descriptor file(path, O_RDONLY | O_CLOEXEC);
  // The units give the copy the alignment of Header and Slot.
  struct alignas(64) Unit {
    std::byte bytes[64];
  };
  std::vector<Unit> copy((bytes(ranks) + sizeof(Unit) - 1) / sizeof(Unit));
  if (file.get() < 0 ||
      pread(file.get(), copy.data(), bytes(ranks), 0) != static_cast<ssize_t>(bytes(ranks)))
    return found;
  const auto* start = reinterpret_cast<const std::byte*>(copy.data());
  found.clock = reinterpret_cast<const Header*>(start)->clock.load();
  const auto* slots = reinterpret_cast<const Slot*>(start + sizeof(Header));
  for (int i = 0; i < ranks; ++i) found.ranks.push_back(slots[i].state.read());
  return found;
}

NodeClaim::NodeClaim() {
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node_);
  MPI_Comm_set_errhandler(node_, MPI_ERRORS_RETURN);
  int rank = 0;
  MPI_Comm_rank(node_, &rank);
  const MPI_Aint bytes = rank == 0 ? sizeof(int) : 0;
  void* own = nullptr;
  if (MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, node_, &own, &window_) !=
      MPI_SUCCESS)
    return;
  MPI_Aint size = 0;
  int unit = 0;
  MPI_Win_shared_query(window_, 0, &size, &unit, &claimed_);
  if (rank == 0) std::atomic_ref(*claimed_).store(0);
  MPI_Barrier(node_);
}

NodeClaim::~NodeClaim() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  MPI_Comm_free(&node_);
}

bool NodeClaim::win() {
  return claimed_ == nullptr || std::atomic_ref(*claimed_).exchange(1) == 0;
}

}  // namespace trireme::grid
