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

/// Addresses that the kernel must release page by page when this process dies, before it closes
/// files and the launcher notices. Neighbours report the death in these milliseconds. All pages are
/// the kernel's page of zeros, so the only cost is 4 MiB of page tables.
class HeadStart {
 public:
  HeadStart();
  ~HeadStart();
  HeadStart(const HeadStart&) = delete;
  HeadStart& operator=(const HeadStart&) = delete;
  /// Maps the next part, which takes 20 ms.
  void grow();

 private:
  char* memory_ = nullptr;
  std::size_t mapped_ = 0;
};

/// Ends a job that hangs or has lost a rank and reports the state of all ranks once per job: on
/// stderr, in `<directory>/log.txt` and as the event `stop`. Every process then exits with code 1.
///
/// Each rank publishes its activity (Heartbeat) in `<directory>/heartbeat/<node>`, which the ranks
/// of its node map. One thread per rank, which never calls MPI, ends the job when
/// - a rank of its node dies: at once;
/// - a rank computes for longer than `limit` without publishing. The limit applies to one
///   operation, so it must exceed the longest one (a checkpoint, a step without communication);
/// - every rank has waited for longer than `limit`. A rank may wait longer while others progress.
///   If all ranks of a node wait, its threads read the other nodes' files and detect a node whose
///   ranks are all dead. This needs a file system that the nodes share.
///
/// After a job was suspended as a whole, the limit starts anew.
///
/// Construction is collective; the ranks are watched from then until the object is destroyed, also
/// by an exception. Runtime::abort silences the watchdog.
class Watchdog {
 public:
  /// `node` names this rank's node; "" means the host's name.
  Watchdog(Runtime& runtime, const std::string& directory, Seconds limit, std::string node = "");
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Checks whether a neighbour on the node is dead. Called from waits, because a busy machine may
  /// not schedule the watchdog's thread in time.
  static void glance();
  enum class Claim : std::uint8_t {
    none,   ///< there is no watchdog
    first,  ///< this rank is the first of the job to end it
    taken   ///< another rank ends the job
  };
  /// Keeps the watchdogs of all ranks quiet, because another error message ends this job.
  static Claim silence();

 private:
  struct Node {
    std::string name;
    std::string path;
    std::vector<int> ranks;  ///< world ranks
    std::int64_t clock = 0;  ///< as last read
    Clock::time_point changed;
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
  std::int64_t patience_from_ = 0;        ///< earlier silence does not count
  Clock::time_point published_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  CrashDelay crash_delay_;  ///< delays the crash of a library that another rank's death causes
};

}  // namespace trireme::grid
