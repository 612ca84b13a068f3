// A Kokkos tool that writes the regions, kernels, fences and deep copies of each rank as a trace
// for ui.perfetto.dev.
//
//   KOKKOS_TOOLS_LIBS=…/libtrireme-trace.so mpiexec -n 4 trireme train my.toml
//
// writes trace/rank_000000.json and so on; see docs/observability.md. Kokkos finds the functions
// below by name and calls them (Kokkos Tools' C interface, impl/Kokkos_Profiling_C_Interface.h).
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

/// The rank from the launcher's environment: Hydra and Cray's PMI, Open MPI, PMIx, PALS, Flux,
/// Slurm.
int rank_of_process() {
  for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PALS_RANKID",
                           "FLUX_TASK_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return 0;
}

/// Index of the calling thread in its trace.
int thread_number() {
  static std::atomic<int> threads{0};
  thread_local const int mine = threads++;
  return mine;
}

std::string quoted(const char* name) {
  std::string out = "\"";
  for (const char* c = name == nullptr ? "" : name; *c != '\0'; ++c) {
    if (*c == '"' || *c == '\\') out += '\\';
    out += static_cast<unsigned char>(*c) < 0x20 ? ' ' : *c;
  }
  return out + '"';
}

/// One rank's file: a JSON array of events in the Trace Event Format, one per line, without the
/// final bracket. The format allows this, so the file of a killed run can be read.
class Trace {
 public:
  Trace() {
    const char* folder = std::getenv("TRIREME_TRACE");
    if (folder == nullptr || *folder == '\0') folder = "trace";
    if (const char* steps = std::getenv("TRIREME_TRACE_STEPS"))
      if (std::sscanf(steps, "%lld-%lld", &first_step_, &last_step_) == 1) last_step_ = first_step_;
    std::error_code error;  // reported below if the file cannot be opened
    std::filesystem::create_directories(folder, error);
    char name[32];
    std::snprintf(name, sizeof name, "/rank_%06d.json", rank_);
    const std::string path = folder + std::string(name);
    file_.reset(std::fopen(path.c_str(), "w"));
    if (!file_) {
      std::fprintf(stderr, "trireme-trace: cannot write %s: %s\n", path.c_str(),
                   std::strerror(errno));
      return;
    }
    std::fprintf(
        file_.get(),
        "[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}},\n",
        rank_, rank_);
  }

  /// Writes the beginning of an event while recording; returns whether the caller must write its
  /// end.
  bool begin(const char* category, const char* name) {
    if (!is_recording()) return false;
    const std::string text = quoted(name);
    const std::lock_guard lock(mutex_);
    write_head('B');
    std::fprintf(file_.get(), ",\"cat\":\"%s\",\"name\":%s},\n", category, text.c_str());
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    write_head('E');
    std::fputs("},\n", file_.get());
  }

  /// Steps are counted by their regions, starting at 1 in each job.
  void end_step() {
    ++steps_done_;
    const std::lock_guard lock(mutex_);
    if (file_) std::fflush(file_.get());
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  /// Recording starts at the end of the step before first_step_, or at the beginning of the run,
  /// and stops at the end of last_step_.
  bool is_recording() const {
    return file_ && steps_done_ + 1 >= first_step_ && steps_done_ < last_step_;
  }

  /// Microseconds since 1970, so that ranks of several nodes share an axis; steady within a run.
  void write_head(char phase) {
    using std::chrono::duration_cast, std::chrono::nanoseconds;
    const auto passed =
        duration_cast<nanoseconds>(std::chrono::steady_clock::now() - steady_begin_);
    const long long now = begin_ns_ + passed.count();
    std::fprintf(file_.get(), "{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03lld", phase,
                 rank_, thread_number(), now / 1000, now % 1000);
  }

  const int rank_ = rank_of_process();
  const std::chrono::steady_clock::time_point steady_begin_ = std::chrono::steady_clock::now();
  const long long begin_ns_ = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                  std::chrono::system_clock::now().time_since_epoch())
                                  .count();
  std::unique_ptr<std::FILE, Close> file_;
  std::mutex mutex_;
  long long first_step_ = 1;
  long long last_step_ = 10;
  std::atomic<long long> steps_done_{0};
};

std::unique_ptr<Trace> trace;

/// Open regions and deep copies of this thread, whose ends are reported without an identifier.
struct Open {
  bool written;
  bool is_step;
};
thread_local std::vector<Open> open_regions;
thread_local std::vector<bool> open_copies;

void begin(const char* category, const char* name, std::uint64_t* number) {
  *number = trace && trace->begin(category, name) ? 1 : 0;
}
void end(std::uint64_t number) {
  if (trace && number == 1) trace->end();
}

}  // namespace

#define TRIREME_TOOL extern "C" __attribute__((visibility("default"))) void

struct SpaceHandle {
  char name[64];
};

TRIREME_TOOL kokkosp_init_library(int, std::uint64_t, std::uint32_t, void*) {
  trace = std::make_unique<Trace>();
}
TRIREME_TOOL kokkosp_finalize_library() {
  trace.reset();
}

TRIREME_TOOL kokkosp_begin_parallel_for(const char* name, std::uint32_t, std::uint64_t* number) {
  begin("for", name, number);
}
TRIREME_TOOL kokkosp_begin_parallel_reduce(const char* name, std::uint32_t, std::uint64_t* number) {
  begin("reduce", name, number);
}
TRIREME_TOOL kokkosp_begin_parallel_scan(const char* name, std::uint32_t, std::uint64_t* number) {
  begin("scan", name, number);
}
TRIREME_TOOL kokkosp_begin_fence(const char* name, std::uint32_t, std::uint64_t* number) {
  begin("fence", name, number);
}
TRIREME_TOOL kokkosp_end_parallel_for(std::uint64_t number) {
  end(number);
}
TRIREME_TOOL kokkosp_end_parallel_reduce(std::uint64_t number) {
  end(number);
}
TRIREME_TOOL kokkosp_end_parallel_scan(std::uint64_t number) {
  end(number);
}
TRIREME_TOOL kokkosp_end_fence(std::uint64_t number) {
  end(number);
}

TRIREME_TOOL kokkosp_push_profile_region(const char* name) {
  const bool is_step = std::strcmp(name, "step") == 0;
  open_regions.push_back({trace && trace->begin("region", name), is_step});
}
TRIREME_TOOL kokkosp_pop_profile_region() {
  if (open_regions.empty()) return;
  const Open last = open_regions.back();
  open_regions.pop_back();
  if (!trace) return;
  if (last.written) trace->end();
  if (last.is_step) trace->end_step();
}

TRIREME_TOOL kokkosp_begin_deep_copy(SpaceHandle, const char* to, const void*, SpaceHandle,
                                     const char* from, const void*, std::uint64_t bytes) {
  const std::string name =
      std::string("copy ") + from + " to " + to + ", " + std::to_string(bytes) + " bytes";
  open_copies.push_back(trace && trace->begin("copy", name.c_str()));
}
TRIREME_TOOL kokkosp_end_deep_copy() {
  if (open_copies.empty()) return;
  if (trace && open_copies.back()) trace->end();
  open_copies.pop_back();
}
