#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/base/crash_delay.hpp>
#include <trireme/base/types.hpp>
#include <trireme/grid/hang_report.hpp>
#include <trireme/grid/node_file.hpp>
#include <trireme/grid/runtime.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trireme::grid {

/// Mapped memory that delays the end of this process if it dies. The operating system releases the
/// memory page by page before the launcher notices the death. Meanwhile, other ranks of the node
/// report it. The memory costs 4 MiB of page tables.
class HeadStart {
 public:
  HeadStart();
  ~HeadStart();
  HeadStart(const HeadStart&) = delete;
  HeadStart& operator=(const HeadStart&) = delete;
  /// Maps the next quarter of the memory.
  void grow();

 private:
  char* memory_ = nullptr;
  char* pages_ = nullptr;  ///< in memory_, from the boundary of a huge page
  std::size_t mapped_ = 0;
};

/// Ends a job that hangs or has lost a rank and reports the state of all ranks once per job: on
/// stderr, in `<directory>/log.txt` and as the event `stop`. Every process then exits with code 1,
/// or is killed if it does not.
///
/// Each rank publishes its activity (Heartbeat) in `<directory>/heartbeat/<node>`, which the ranks
/// of its node map. One thread per rank, which never calls MPI, ends the job when
/// - a rank of its node dies: at once;
/// - a rank of its node computes for longer than `limit` without publishing. The limit must exceed
///   the longest time between two publications (a checkpoint, a step without communication);
/// - every rank has waited for longer than `limit`. A rank may wait longer while others progress.
///   If all ranks of a node wait, its threads read the other nodes' files and detect a node whose
///   ranks are all dead. This needs a file system that the nodes share.
///
/// After a job was suspended as a whole, the limit starts anew.
///
/// Construction is collective. The ranks are watched until the object is destroyed. Runtime::abort
/// silences all watchdogs, and so does the destruction by an exception.
class Watchdog {
 public:
  /// `limit`: [run] watchdog. `node`: name of this rank's node; "": the host name.
  Watchdog(Runtime& runtime, const std::string& directory, Seconds limit, std::string node = "");
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Reports the death and ends the job if one of the next three ranks of the node is dead. Waits
  /// call it, because a busy machine may not schedule the watchdog's thread in time.
  static void glance();
  enum class Claim : std::uint8_t {
    none,   ///< there is no watchdog
    first,  ///< this rank is the first rank that ends the job
    taken   ///< another rank ends the job
  };
  /// Keeps all watchdogs from reporting, because an error with its own message ends the job.
  static Claim silence();

 private:
  struct Node {
    std::string name;
    std::string path;
    std::vector<int> ranks;     ///< world ranks
    std::int64_t clock = 0;     ///< NodeFile::clock() of the node, as last read
    Clock::time_point changed;  ///< time at which `clock` last changed
  };

  void find_nodes(Communicator& world, const std::string& folder, const std::string& name);
  void start();
  void run();
  void look();
  void obey(Verdict verdict);
  bool speaks_for_node() const;
  void adopt_verdict();
  int next_neighbour() const;
  bool is_dead(int i, std::chrono::milliseconds limit);
  int find_death();
  bool stalled_here(bool& computing);
  bool stalled_elsewhere();
  Sighting sighting(int i);
  std::vector<Sighting> sightings();
  bool claim(Verdict verdict);
  bool claim_for_job(Verdict verdict);
  void report_death(int i);
  void report_hang();
  void say(const std::string& message) const;
  static void record(const std::string& report);  ///< records the report as an event of the run
  [[noreturn]] void end_all();

  std::string directory_;
  std::string verdict_path_;
  int log_ = -1;
  Seconds limit_;
  std::chrono::milliseconds interval_;
  std::vector<Node> nodes_;
  std::size_t here_ = 0;  ///< this rank's node
  std::unique_ptr<NodeFile> file_;
  HeadStart head_start_;
  enum class Fate : std::uint8_t { lives, left, died };
  std::vector<std::atomic<Fate>> fates_;  ///< fates of the node's ranks
  std::int64_t patience_from_ = 0;        ///< the limit counts from this time at the earliest
  Clock::time_point published_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  CrashDelay crash_delay_;  ///< delays crashes in libraries after the death of another rank
};

}  // namespace trireme::grid
