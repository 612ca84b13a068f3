// One thread per rank waits for a neighbour's lock, which a death releases at once, and compares
// the progress of all ranks with the limit.
#include <trireme/grid/watchdog.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/folder_owner.hpp>
#include <trireme/base/process.hpp>

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

namespace trireme::grid {
namespace {

using namespace std::chrono_literals;

/// Time for which the thread sleeps between checks. A process that ends may have to wait this long.
constexpr auto tick = 50ms;
/// A thread that did not check for this long was suspended.
constexpr auto suspension = 5s;
/// Size of the mapped memory, whose release takes about 5 ms with pages of 4 KiB.
constexpr std::size_t head_start_bytes = std::size_t{2} << 30;
constexpr std::size_t head_start_chunk = head_start_bytes / 4;
constexpr std::size_t huge_page = std::size_t{2} << 20;
constexpr std::string_view aborting_word = "aborts";
std::atomic<Watchdog*> current_watchdog{nullptr};

bool is_stopped(int pid) {
  const char state = process_entry(pid).state;
  return state == 'T' || state == 't';
}

void write_all(int file, std::string_view message) {
  while (!message.empty()) {
    const ssize_t n = ::write(file, message.data(), message.size());
    if (n <= 0) return;
    message.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// Requests a short time slice, so that Linux 6.12 and newer run this thread soon after it wakes.
void ask_for_short_slices() {
#if defined(SYS_sched_setattr)
  struct {
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes = {sizeof attributes, SCHED_OTHER, 0, getpriority(PRIO_PROCESS, 0), 0,
                  100'000,           0,           0};
  syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

#if defined(MADV_HUGEPAGE)
/// Reads map the system's huge page of zeros. The return of one page splits it into pages, whose
/// table the system fills in a twentieth of the time that mapping them one by one takes. False if
/// there is no such huge page.
bool map_by_splitting(char* chunk, std::size_t page) {
  for (std::size_t i = 0; i < head_start_chunk; i += huge_page) {
    static_cast<void>(static_cast<volatile char*>(chunk)[i]);
    unsigned char next = 0;  // mapped as well only if the page is huge
    if (mincore(chunk + i + page, page, &next) != 0 || (next & 1) == 0) return false;
    if (madvise(chunk + i, page, MADV_DONTNEED) != 0) return false;
  }
  return true;
}
#endif

Seconds seconds(std::int64_t nanoseconds) {
  return static_cast<Seconds>(nanoseconds) * 1e-9;
}

}  // namespace

HeadStart::HeadStart() {
  void* memory = mmap(nullptr, head_start_bytes + huge_page, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;  // the system limits the address space
  memory_ = static_cast<char*>(memory);
  pages_ = memory_ + (huge_page - reinterpret_cast<std::uintptr_t>(memory) % huge_page) % huge_page;
}

HeadStart::~HeadStart() {
  if (memory_ != nullptr) munmap(memory_, head_start_bytes + huge_page);
}

void HeadStart::grow() {
  if (memory_ == nullptr || mapped_ == head_start_bytes) return;
  char* chunk = pages_ + mapped_;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
#if defined(MADV_HUGEPAGE)
  madvise(chunk, head_start_chunk, MADV_HUGEPAGE);
  const bool is_mapped = map_by_splitting(chunk, page);
  madvise(chunk, head_start_bytes - mapped_, MADV_NOHUGEPAGE);
  if (is_mapped) {
    mapped_ += head_start_chunk;
    return;
  }
#endif
#if defined(MADV_POPULATE_READ)
  if (madvise(chunk, head_start_chunk, MADV_POPULATE_READ) == 0) {
    mapped_ += head_start_chunk;
    return;
  }
#endif
  // Before Linux 5.14, each page costs a page fault, so only one quarter is mapped.
  for (std::size_t i = 0; i < head_start_chunk; i += page)
    static_cast<void>(static_cast<volatile char*>(chunk)[i]);
  mapped_ = head_start_bytes;
}

Watchdog::Watchdog(Runtime& runtime, const std::string& directory, Seconds limit, std::string node)
    : directory_(directory),
      verdict_path_(directory + "/heartbeat/verdict"),
      limit_(limit),
      interval_(static_cast<std::int64_t>(std::clamp(limit * 50, 100.0, 15'000.0))) {
  check(current_watchdog.load() == nullptr, "only one watchdog per process is possible");
  check(limit > 0, "[run] watchdog = ", limit, " s; it must be positive");
  const std::string folder = directory + "/heartbeat";
  runtime.together([&] {
    if (runtime.rank() != 0) return;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
  });
  find_nodes(runtime.world(), folder, node.empty() ? this_process().host : node);
  const Node& mine = nodes_[here_];
  const int ranks = static_cast<int>(mine.ranks.size());
  const auto place = std::find(mine.ranks.begin(), mine.ranks.end(), runtime.rank());
  runtime.together([&] {
    if (place == mine.ranks.begin()) NodeFile::create(mine.path, ranks);
  });
  runtime.together([&] {
    const std::string path = directory_ + "/log.txt";
    log_ = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    check(log_ >= 0, "cannot write ", path, ": ", std::strerror(errno));
    file_ =
        std::make_unique<NodeFile>(mine.path, ranks, static_cast<int>(place - mine.ranks.begin()));
    file_->enter();
  });
  fates_ = std::vector<std::atomic<Fate>>(mine.ranks.size());
  Heartbeat::listen(&file_->state(file_->mine()), runtime.rank());
  patience_from_ = heartbeat_clock();
  runtime.world().barrier("watchdogs");
  current_watchdog = this;
  start();
}

/// Starts the thread with all signals blocked, so that the main thread receives them.
void Watchdog::start() {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    current_watchdog = nullptr;
    Heartbeat::end();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  // The handler of the exception ends the other ranks, whose deaths need no report.
  if (std::uncaught_exceptions() > 0) claim(Verdict::aborting);
  current_watchdog = nullptr;
  Heartbeat::end();
  stopping_ = true;
  thread_.join();
  file_->leave();
  close(log_);
}

void Watchdog::glance() {
  Watchdog* watchdog = current_watchdog.load(std::memory_order_relaxed);
  if (watchdog == nullptr) return;
  const NodeFile& file = *watchdog->file_;
  for (int k = 1; k < std::min(file.ranks(), 4); ++k) {
    const int i = (file.mine() + k) % file.ranks();
    if (watchdog->is_dead(i, 0ms)) watchdog->report_death(i);
  }
}

Watchdog::Claim Watchdog::silence() {
  Watchdog* watchdog = current_watchdog.load();
  if (watchdog == nullptr) return Claim::none;
  return watchdog->claim(Verdict::aborting) ? Claim::first : Claim::taken;
}

void Watchdog::find_nodes(Communicator& world, const std::string& folder, const std::string& name) {
  const std::string joined =
      world.broadcast(join(world.gather(name, 0, "nodes"), "\n"), 0, "nodes");
  std::map<std::string, std::size_t, std::less<>> found;
  int rank = 0;
  for (std::size_t begin = 0; begin <= joined.size(); ++rank) {
    const std::size_t end = std::min(joined.find('\n', begin), joined.size());
    const std::string node = joined.substr(begin, end - begin);
    const auto [at, is_new] = found.emplace(node, nodes_.size());
    if (is_new) nodes_.push_back({node, folder + "/" + node, {}, 0, Clock::now()});
    nodes_[at->second].ranks.push_back(rank);
    if (rank == world.rank()) here_ = at->second;
    begin = end + 1;
  }
}

void Watchdog::run() {
  ask_for_short_slices();
  auto last = Clock::now();
  auto looked = last;
  while (!stopping_) {
    if (file_->ranks() > 1) head_start_.grow();  // a rank alone on its node has no witness
    // The thread sleeps by waiting for a neighbour's lock, so that a death wakes it at once.
    if (const int neighbour = next_neighbour(); neighbour >= 0) {
      if (is_dead(neighbour, tick)) report_death(neighbour);
    } else {
      std::this_thread::sleep_for(tick);
    }
    if (stopping_) return;
    if (const Verdict verdict = file_->verdict(); verdict != Verdict::none) return obey(verdict);
    const auto now = Clock::now();
    if (now - last > suspension) patience_from_ = heartbeat_clock();
    last = now;
    if (const int dead = find_death(); dead >= 0) report_death(dead);
    if (now - looked >= std::min<Clock::duration>(interval_, 1s)) {
      looked = now;
      look();
    }
  }
}

int Watchdog::next_neighbour() const {
  for (int k = 1; k < file_->ranks(); ++k) {
    const int i = (file_->mine() + k) % file_->ranks();
    if (fates_[static_cast<std::size_t>(i)] == Fate::lives) return i;
  }
  return -1;
}

bool Watchdog::is_dead(int i, std::chrono::milliseconds limit) {
  std::atomic<Fate>& fate = fates_[static_cast<std::size_t>(i)];
  if (fate != Fate::lives) return fate == Fate::died;
  const NodeFile::Lock lock = file_->watch(i, limit);
  if (lock == NodeFile::Lock::held) return false;
  // The death of a rank whose watchdog has ended is not reported.
  const bool died = lock == NodeFile::Lock::died && file_->state(i).read().life != RankState::ended;
  fate = died ? Fate::died : Fate::left;
  return died;
}

/// Checks the locks of all other ranks of the node. Returns the first dead rank's index, or −1.
int Watchdog::find_death() {
  int found = -1;
  for (int i = 0; i < file_->ranks(); ++i)
    if (i != file_->mine() && is_dead(i, 0ms) && found < 0) found = i;
  return found;
}

void Watchdog::look() {
  file_->clock() = heartbeat_clock();
  const auto now = Clock::now();
  if (nodes_.size() > 1 && now - published_ >= interval_) {
    published_ = now;
    if (speaks_for_node()) file_->publish();
    adopt_verdict();
  }
  bool computing = false;
  if (!stalled_here(computing)) return;
  if (!computing && !stalled_elsewhere()) return;
  if (claim(Verdict::claimed)) report_hang();
}

/// Whether this rank is the lowest living rank of the node.
bool Watchdog::speaks_for_node() const {
  const auto first = std::find_if(fates_.begin(), fates_.end(),
                                  [](const auto& fate) { return fate == Fate::lives; });
  return first - fates_.begin() == file_->mine();
}

/// Adopts the verdict of another node, if there is one.
void Watchdog::adopt_verdict() {
  std::string word;
  std::ifstream(verdict_path_) >> word;
  if (word.empty()) return;
  Verdict none = Verdict::none;
  file_->verdict().compare_exchange_strong(
      none, word == aborting_word ? Verdict::aborting : Verdict::claimed);
}

/// Whether a rank of this node has computed for too long (then sets `computing`), or all ranks of
/// this node have waited for too long.
bool Watchdog::stalled_here(bool& computing) {
  const std::int64_t now = heartbeat_clock();
  bool all = true;
  bool any = false;
  for (int i = 0; i < file_->ranks(); ++i) {
    const RankState state = file_->state(i).read();
    if (state.life != RankState::alive) continue;
    any = true;
    const bool late = seconds(now - std::max(state.since, patience_from_)) > limit_;
    all = all && late;
    computing = computing || (late && state.waits == 0);
  }
  return any && (all || computing);
}

/// Whether no rank of another node has progressed recently.
bool Watchdog::stalled_elsewhere() {
  bool stalled = true;
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    Node& node = nodes_[k];
    if (k == here_) continue;
    const auto seen = NodeFile::read(node.path, static_cast<int>(node.ranks.size()));
    if (seen.clock != node.clock) {
      node.clock = seen.clock;
      node.changed = Clock::now();
      // Published states are older than the ranks' progress.
      const Seconds late = limit_ - 2 * std::chrono::duration<double>(interval_).count();
      for (const RankState& state : seen.ranks)
        if (state.life == RankState::alive && seconds(seen.clock - state.since) < late)
          stalled = false;
    } else if (Clock::now() - node.changed < 4 * std::max<Clock::duration>(interval_, 1s)) {
      stalled = false;  // not silent for long enough yet
    }
  }
  return stalled;
}

Sighting Watchdog::sighting(int i) {
  Sighting s{file_->state(i).read(), nodes_[here_].name, Sighting::Condition::runs, 0};
  s.age = seconds(heartbeat_clock() - s.state.since);
  if (fates_[static_cast<std::size_t>(i)] == Fate::died)
    s.condition = Sighting::Condition::dead;
  else if (is_stopped(s.state.pid))
    s.condition = Sighting::Condition::stopped;
  return s;
}

std::vector<Sighting> Watchdog::sightings() {
  std::vector<Sighting> out;
  find_death();
  for (int i = 0; i < file_->ranks(); ++i) out.push_back(sighting(i));
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    if (k == here_) continue;
    const auto seen = NodeFile::read(nodes_[k].path, static_cast<int>(nodes_[k].ranks.size()));
    const bool silent = seen.clock == nodes_[k].clock && Clock::now() - nodes_[k].changed > 1s;
    for (const RankState& state : seen.ranks)
      out.push_back({state, nodes_[k].name,
                     silent && state.life == RankState::alive ? Sighting::Condition::silent
                                                              : Sighting::Condition::runs,
                     seconds(seen.clock - state.since)});
  }
  return out;
}

/// Returns true to the first rank of the job that calls it; if the nodes do not share the folder,
/// to the first rank of each node.
bool Watchdog::claim(Verdict verdict) {
  Verdict none = Verdict::none;
  return file_->verdict().compare_exchange_strong(none, verdict) && claim_for_job(verdict);
}

/// True on the first node that claims the report in the shared folder.
bool Watchdog::claim_for_job(Verdict verdict) {
  const int file = open(verdict_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return errno != EEXIST;  // EEXIST: another node reports
  write_all(file, verdict == Verdict::aborting ? aborting_word : "reports");
  close(file);
  return true;
}

/// Reports the dead rank first, because the launcher may then kill this process.
void Watchdog::report_death(int i) {
  Verdict none = Verdict::none;
  if (!file_->verdict().compare_exchange_strong(none, Verdict::claimed)) return;
  // Another node reports if the file of the verdict exists.
  if (nodes_.size() > 1 && access(verdict_path_.c_str(), F_OK) == 0) return;
  const Sighting dead = sighting(i);
  const std::string report = death_report(dead);
  say("trireme: error: " + report);
  std::vector<Sighting> others = sightings();
  std::erase_if(others, [&](const Sighting& s) { return s.state.rank == dead.state.rank; });
  say(hang_report(others, 0));
  record(report);
  claim_for_job(Verdict::claimed);
  end_all();
}

void Watchdog::report_hang() {
  const std::string report = hang_report(sightings(), limit_);
  say("trireme: error: " + report);
  record(report);
  end_all();
}

/// Writes to log.txt first: a launcher that kills the job may not forward the last output.
void Watchdog::say(const std::string& message) const {
  write_all(log_, message);
  write_all(STDERR_FILENO, message);
}

void Watchdog::record(const std::string& report) {
  events::record(events::Stop{events::StopCause::watchdog, static_cast<int>(ExitCode::failed),
                              report.substr(0, report.find_last_not_of('\n') + 1)});
}

/// Ends this process, and those processes of the node that do not end by themselves within 0.5 s,
/// such as stopped processes.
void Watchdog::end_all() {
  file_->verdict() = Verdict::reported;
  const auto until = Clock::now() + 500ms;
  const auto some_live = [&] {
    find_death();
    for (int i = 0; i < file_->ranks(); ++i)
      if (i != file_->mine() && fates_[static_cast<std::size_t>(i)] == Fate::lives) return true;
    return false;
  };
  while (some_live() && Clock::now() < until) std::this_thread::sleep_for(10ms);
  for (int i = 0; i < file_->ranks(); ++i)
    if (i != file_->mine() && fates_[static_cast<std::size_t>(i)] == Fate::lives)
      kill(file_->state(i).read().pid, SIGKILL);
  release_owned_folders();
  _exit(static_cast<int>(ExitCode::failed));
}

void Watchdog::obey(Verdict verdict) {
  // If the process that reports has not ended the job within this time, this process ends.
  const auto until = Clock::now() + (verdict == Verdict::aborting ? 30s : 5s);
  while (Clock::now() < until && file_->verdict() != Verdict::reported) {
    if (stopping_) return;
    std::this_thread::sleep_for(10ms);
  }
  if (!stopping_) _exit(static_cast<int>(ExitCode::failed));
}

}  // namespace trireme::grid
