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

/// A simulated device with CUDA's and NCCL's functions (cuda_runtime.cpp, nccl.cpp), for code that
/// uses streams. Streams keep their work until the host waits, and then run it in an order chosen
/// by the test: work not ordered by a stream or an event runs in the wrong order in some of them.
/// In addition, every access to memory known to the device is compared with all earlier accesses by
/// vector clocks (Fidge 1988, Mattern 1989), so that a missing event is found in any order.
namespace trireme::testing {

/// Accesses declared in advance: bytes from `begin` on.
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
  /// Called whenever it is the first entry of its stream.
  virtual void arrive() {}
  virtual bool ready() const { return true; }
  /// Performs a part of its work. Returns true when it has ended.
  virtual bool run() = 0;

 private:
  std::string label_;
};

class RecordedDevice {
 public:
  enum class MemoryKind : std::uint8_t { pageable, pinned, device };
  /// NCCL's objects, maintained by nccl.cpp.
  struct Nccl {
    int communicators = 0;
    int open_groups = 0;
  };
  Nccl nccl;

  /// A position in the work of the host (thread 0) and of all streams.
  using Clock = std::vector<std::int64_t>;

  /// Begins a test. `schedule` selects the streams' order: 0 as created, 1 reversed, others mixed.
  void restart(int schedule);
  /// Errors so far, and all objects that are outstanding or not destroyed.
  std::vector<std::string> problems_at_end();
  const std::vector<std::string>& problems() const { return problems_; }
  void problem(const std::string& what);

  /// Makes a function fail with this code after `skip` more calls.
  void fail(const std::string& function, int code, int skip = 0);
  /// Called by every function of the two libraries: counts the call, and returns a failure's code.
  int enter(const char* function);
  int calls(const std::string& function) const;
  /// Drops all outstanding work, for tests of failures that end a job.
  void abandon();

  int make_stream(bool ordered_with_default, int priority);
  void destroy_stream(int stream);
  int make_event();
  void destroy_event(int event);
  int streams() const { return static_cast<int>(streams_.size()) - 1; }  ///< existing streams
  int urgent_streams() const { return urgent_; }
  int events() const { return static_cast<int>(events_.size()); }

  /// Adds work to a stream; a destroyed stream is reported as a problem.
  void add(int stream, std::unique_ptr<StreamWork> work, const Accesses& accesses);
  void launch(int stream, const std::string& label, const Accesses& accesses,
              std::function<void()> body);
  void copy(int stream, void* to, const void* from, std::size_t bytes);
  void record(int event, int stream);
  void wait(int stream, int event);
  /// Runs a part of one stream's first entry. Returns false if none can run.
  bool move_on();
  /// Returns whether the event's work has ended; advances the device if not. `stuck`: it never
  /// will.
  bool query(int event, bool& stuck);
  void synchronize(int stream);
  bool idle(int stream) const;
  /// Records that the host accesses memory.
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
  std::map<int, Stream> streams_;  // 0: default stream
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
