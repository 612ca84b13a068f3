#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

/// A device without hardware, behind CUDA's and NCCL's functions (cuda_runtime.cpp, nccl.cpp), for
/// sources that use streams. Streams keep their work until the host waits, and then run it in an
/// order that the test chooses: work that is not ordered by a stream or an event runs in the wrong
/// order in some of them. Besides, every access to memory that the device knows of is compared with
/// all earlier ones by vector clocks (Fidge 1988, Mattern 1989), so that a missing event is found
/// in any order.
namespace trireme::testing {

/// Accesses that are known before: bytes from `begin` on.
struct MemoryRange {
  const void* begin;
  std::size_t bytes;
};
struct Accesses {
  std::vector<MemoryRange> reads, writes;
};

/// One entry of a stream.
class StreamWork {
 public:
  explicit StreamWork(std::string label) : label_(std::move(label)) {}
  StreamWork(const StreamWork&) = delete;
  virtual ~StreamWork() = default;
  const std::string& label() const { return label_; }
  /// Called whenever it is the first of its stream.
  virtual void arrive() {}
  virtual bool ready() const { return true; }
  /// Does a part of its work. True: it has ended.
  virtual bool run() = 0;

 private:
  std::string label_;
};

class RecordedDevice {
 public:
  enum class MemoryKind : std::uint8_t { pageable, pinned, device };
  /// What exists of NCCL, kept by nccl.cpp.
  struct Nccl {
    int communicators = 0;
    int open_groups = 0;
  };
  Nccl nccl;

  /// A position in the work of the host (thread 0) and of all streams.
  using Clock = std::vector<std::int64_t>;

  /// Begins a test. `schedule` chooses the streams' order: 0 as created, 1 reversed, others mixed.
  void restart(int schedule);
  /// What went wrong so far, and whatever is still outstanding or has not been destroyed.
  std::vector<std::string> problems_at_end();
  const std::vector<std::string>& problems() const { return problems_; }
  void problem(const std::string& what);

  /// The `skip`-th next call of a function fails with this code.
  void fail(const std::string& function, int code, int skip = 0);
  /// Called by every function of the two libraries: counts, and returns the code of a failure.
  int enter(const char* function);
  int calls(const std::string& function) const;
  /// Drops all outstanding work, for tests of failures after which a job ends.
  void abandon();

  int make_stream(bool ordered_with_default, int priority);
  void destroy_stream(int stream);
  int make_event();
  void destroy_event(int event);
  int streams() const { return static_cast<int>(streams_.size()) - 1; }  ///< that exist
  int urgent_streams() const { return urgent_; }
  int events() const { return static_cast<int>(events_.size()); }

  /// Adds work to a stream, where destroyed ones are a problem.
  void add(int stream, std::unique_ptr<StreamWork> work, const Accesses& accesses);
  void launch(int stream, const std::string& label, const Accesses& accesses,
              std::function<void()> body);
  void copy(int stream, void* to, const void* from, std::size_t bytes);
  void record(int event, int stream);
  void wait(int stream, int event);
  /// Runs a part of one stream's first entry. False: none can run.
  bool move_on();
  /// Whether the event's work has ended; moves the device on if not. `stuck`: it never will.
  bool query(int event, bool& stuck);
  void synchronize(int stream);
  bool idle(int stream) const;
  /// The host touches memory.
  void host_reads(const void* begin, std::size_t bytes, const std::string& what);
  void host_writes(const void* begin, std::size_t bytes, const std::string& what);

  void* allocate(std::size_t bytes, MemoryKind kind, const std::string& label);
  void free(void* memory);
  MemoryKind kind_of(const void* address) const;

 private:
  struct Mark {
    Clock clock;
    bool reached = false;
  };
  class Recording;
  class Waiting;
  struct Stream {
    std::deque<std::unique_ptr<StreamWork>> work;
    Clock clock;
    std::int64_t ended = 0;
  };
  struct Access {
    std::uintptr_t begin, end;
    bool writes;
    int thread;
    std::int64_t number;
    std::string label;
  };
  struct Block {
    std::size_t bytes;
    MemoryKind kind;
    std::string label;
  };

  static int thread_of(int stream) { return stream + 1; }
  Stream* find(int stream, const char* what);
  std::shared_ptr<Mark>* find_event(int event, const char* what);
  static void join(Clock& into, const Clock& other);
  static std::int64_t at(const Clock& clock, int thread);
  void host_access(const Access& access);
  void note(const Accesses& accesses, int thread, std::int64_t number, const Clock& clock,
            const std::string& label);
  void note(const Access& access, const Clock& clock);
  std::string outstanding() const;

  int schedule_ = 0;
  int next_stream_ = 1, next_event_ = 1, urgent_ = 0;
  std::map<int, Stream> streams_;  // 0: the default one
  std::map<int, std::shared_ptr<Mark>> events_;
  std::set<std::string> known_;
  std::vector<std::string> problems_;
  std::vector<Access> accesses_;
  std::map<std::uintptr_t, Block> blocks_;
  Clock host_;
  std::map<std::string, int> calls_;
  struct Failure {
    std::string function;
    int code, skip;
  };
  std::vector<Failure> failures_;
};

/// The process's device.
RecordedDevice& recorded_device();

}  // namespace trireme::testing
