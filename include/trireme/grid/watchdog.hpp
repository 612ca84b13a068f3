#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/base/types.hpp>
#include <trireme/grid/hang_report.hpp>
#include <trireme/grid/node_file.hpp>
#include <trireme/grid/runtime.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace trireme::grid {

/// Ends a job that hangs or has lost a rank, and says which ranks are where: on stderr, in
/// `<directory>/log.txt` and as the event `stop`, once per job, and then exit code 1 for every
/// process.
///
/// Each rank publishes what it does (Heartbeat) to `<directory>/heartbeat/<node>`, which the ranks
/// of its node map. A thread per rank, which calls nothing of MPI, ends the job when
/// - a rank of its node dies: at once;
/// - a rank computes for longer than `limit` without publishing: the limit is per operation, so it
///   must be longer than the longest one (a checkpoint, a step without a communication);
/// - every rank has waited for longer than `limit`. A rank may wait longer where others progress.
///   Where all ranks of a node wait, its threads read the other nodes' files, and notice a node
///   whose ranks are all gone; that needs a file system that nodes share.
/// A job that was suspended as a whole gets its limit afresh.
///
/// Collective construction, behind which the ranks are watched; it ends with the object, also on
/// the way of an exception, and Runtime::abort silences it.
class Watchdog {
 public:
  /// `node` names this rank's node; "": the host's name.
  Watchdog(Runtime& runtime, const std::string& directory, Seconds limit, std::string node = "");
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Whether a neighbour on the node is dead, for who waits anyway: a busy machine may not let the
  /// thread run in time.
  static void glance();
  /// Another message ends this job: the watchdogs of all ranks keep quiet.
  static void silence();

 private:
  struct Node {
    std::string name;
    std::string path;
    std::vector<int> ranks;  ///< In the world.
    std::int64_t clock = 0;  ///< When it was last read.
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
  void conclude(const std::string& report) const;  ///< says it and records the event
  [[noreturn]] void end_all();

  std::string directory_;
  std::string verdict_path_;
  int log_ = -1;
  Seconds limit_;
  std::chrono::milliseconds interval_;
  std::vector<Node> nodes_;
  std::size_t here_ = 0;  ///< This rank's node.
  std::unique_ptr<NodeFile> file_;
  /// Memory that a dying process must give back page by page before its files close and its
  /// launcher notices: the milliseconds in which its neighbours report it.
  std::vector<char> head_start_;
  enum class Fate : std::uint8_t { lives, left, died };
  std::vector<std::atomic<Fate>> fates_;  ///< Of the node's ranks.
  std::int64_t patience_from_ = 0;        ///< Silence before this does not count.
  Clock::time_point published_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace trireme::grid
