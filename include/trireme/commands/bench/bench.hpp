#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/base/types.hpp>
#include <trireme/commands/bench/machine.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/plan/block_kernels.hpp>
#include <trireme/plan/typed_sizes.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/train/engine.hpp>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

/// Sections of `trireme bench`: measurements of the machine with the deck's model and ranks.
namespace trireme::commands {

/// One measured value.
struct BenchRow {
  std::string section;
  std::string name;
  double quantity = 0;
  std::string unit;        ///< "1" for ratios
  std::string convention;  ///< counting convention, in a few words
};

using BenchRows = std::vector<BenchRow>;

/// Results of a section: rows for programs, a table for users.
struct BenchReport {
  BenchRows rows;
  std::string table;  ///< "": print the rows

  BenchReport() = default;
  BenchReport(std::initializer_list<BenchRow> list) : rows(list) {}
};

/// Arguments of all sections.
struct BenchSetting {
  grid::Runtime& runtime;
  Session& session;
  std::int64_t rounds;  ///< rounds of each measurement
  BenchMachine& machine;
  /// Kernels are timed by the processor time of their thread, so that other programs and ranks on
  /// the same processor do not count.
  bool processor_time = false;
  bool for_machine_file = false;  ///< leave out values that machine files do not contain
};

/// Each bench_ function measures one section and returns its rows on every rank. Collective.

/// Bandwidth of memory and caches, by the size of the arrays.
BenchReport bench_bandwidth(const BenchSetting& setting);
/// Rates of large square matrix products, and of the products of the deck's model on the slowest
/// rank.
BenchReport bench_matmul(const BenchSetting& setting);
/// All kernels of a training step except matrix products, compared with their roofline.
BenchReport bench_kernels(const BenchSetting& setting);
/// Seconds and bandwidth of collectives and transfers by size, in the world and along each axis of
/// the deck's grid.
BenchReport bench_communication(const BenchSetting& setting);
/// Time to write and to read a checkpoint, compared with plain files of the same size.
BenchReport bench_checkpoint(const BenchSetting& setting);
/// Time by which a background checkpoint delays training. Needs the training file.
BenchReport bench_background(const BenchSetting& setting);
/// Time to build the index of a checkpoint with many arrays and shards.
BenchReport bench_index(const BenchSetting& setting);

/// Whether a machine file contains results of the section.
bool for_machine_file(const std::string& section);
/// The content of a machine file, from the measurements of the sections for which for_machine_file
/// is true. Collective.
std::string machine_file_of(const BenchSetting& setting);

/// Number of ranks on this node. Collective.
std::int64_t ranks_on_this_node(const BenchSetting& setting);

/// Seconds that `work` takes on the slowest rank after a common start. Returns the same value on
/// all ranks. Collective; `work` may be collective too.
Seconds slowest_seconds(grid::Runtime& runtime, const std::function<void()>& work);

double median(std::vector<double> values);

/// The deck's model with its initial weights, ready to train. Sets `program` to the program of a
/// step; `program` must outlive the engine. Collective.
std::unique_ptr<train::Engine> bench_engine(const BenchSetting& setting,
                                            schedule::Program& program);

/// Bytes of two checkpoints of the deck's model with overhead; also enough for one checkpoint and
/// plain files of the same size.
Bytes room_for_checkpoints(const Session& session);

/// A temporary folder in the deck's checkpoint directory. The destructor removes the folder and the
/// parent folders that were created for it.
class BenchFolder {
 public:
  /// Error if the folder is not writable or has less than `bytes` of space. Collective.
  BenchFolder(const BenchSetting& setting, Bytes bytes);
  ~BenchFolder();
  BenchFolder(const BenchFolder&) = delete;
  BenchFolder& operator=(const BenchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  void remove() noexcept;

  std::string path_;
  std::vector<std::string> made_;  ///< created folders, innermost first; on rank 0
};

/// This rank's part of the model, and its work per step.
struct BenchShard {
  architecture::Shard shard;
  plan::TypedSizes sizes;
  std::int64_t layers = 0;      ///< layers on this rank
  std::int64_t micros = 0;      ///< micro-batches per step
  std::int64_t parameters = 0;  ///< trained parameters
  std::int64_t states = 0;      ///< parameters whose optimizer state this rank holds
  bool has_embedding = false;
  bool has_head = false;
  bool logits_again = false;                   ///< logits are recomputed in the backward pass
  bool split_backward = false;                 ///< backward_input and backward_weight are separate
  std::vector<plan::BlockKernel> kernels;      ///< of the layers
  std::vector<plan::BlockKernel> end_kernels;  ///< of the embedding and the head
};

/// This rank's BenchShard. Collective.
BenchShard shard_of(const BenchSetting& setting);

}  // namespace trireme::commands
