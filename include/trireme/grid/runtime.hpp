#pragma once

#include <trireme/base/check.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/layout/process_grid.hpp>
#include <trireme/layout/stage_map.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace trireme::grid {

/// Runs `local` on every rank of `world`. If `local` throws on a rank, the lowest such rank throws
/// SharedError with the message, and all other ranks throw SilentError. `local` must not
/// communicate. Collective.
void together(Communicator& world, const std::function<void()>& local);

class NodeClaim;

/// Versions and settings of the libraries with which the ranks run.
struct Software {
  std::string kokkos;           ///< version: "4.7.1"
  std::string execution_space;  ///< name of the Kokkos execution space: "Serial"
  int threads = 1;              ///< threads per rank
  std::string mpi;              ///< first line of MPI's own version text
};

/// Initializes MPI and Kokkos, and finalizes them at destruction. One per process, in main().
class Runtime {
 public:
  Runtime(int& argc, char**& argv);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  Communicator& world() { return *world_; }
  Rank rank() const { return world_->rank(); }
  int ranks() const { return world_->size(); }

  Software software() const;
  /// Number of ranks and software as text: "2 ranks, Kokkos 4.7.1 Serial, " and Software::mpi.
  std::string description() const;

  void together(const std::function<void()>& local) { grid::together(*world_, local); }

  /// Runs `work`, which may communicate, and returns its exit code. SharedError and SilentError are
  /// rethrown. Any other exception of `work` ends all ranks with abort(). Collective.
  ExitCode guard(const std::function<ExitCode()>& work);

  /// Reports an error that the other ranks do not know, and ends all ranks with the error's code.
  /// If several ranks call it, normally only one of them reports.
  [[noreturn]] void abort(const Error& error);

  /// Returns `code`, the exit code that main() is about to return. The process also ends with this
  /// code if MPI_Finalize takes longer than the environment variable TRIREME_END_SECONDS allows
  /// (default 60).
  ExitCode ends_with(ExitCode code) { return code_ = code; }

 private:
  std::chrono::seconds end_limit_{60};
  ExitCode code_ = ExitCode::failed;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<NodeClaim> error_claim_;
};

/// Thrown on the rank that reports an error; the error ends all ranks.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Thrown on the ranks that do not report the error.
class SilentError : public Error {
 public:
  explicit SilentError(ExitCode code) : Error("reported by another rank", code) {}
};

/// The communicators of the process grid. Construction is collective. Later calls of a function,
/// with the same `name` if it takes one, return the same communicator or grid.
class Grid {
 public:
  /// `stages`: placement of the stages. Without `stages`, each pipeline rank has one stage.
  Grid(Communicator& world, const layout::ProcessGrid& process_grid,
       const layout::StageMap& stages);
  Grid(Communicator& world, const layout::ProcessGrid& process_grid)
      : Grid(world, process_grid, {process_grid.size(Axis::pipeline)}) {}

  /// Gives every communicator of more than one rank a transport for its verbs on views, including
  /// communicators that the functions below create later. world(), data_messages() and
  /// world_messages() keep MPI. Call this before the first verb on views. Collective.
  void use_transports(const TransportFactory& factory);

  Communicator& world() { return world_; }
  Communicator& communicator(Axis axis) { return *axes_[axis]; }
  /// The ranks of this rank's replica, which together hold the weights once, in rank order.
  Communicator& model() { return *model_; }
  /// The ranks of the data and context axes, which have the same weights, in rank order.
  Communicator& replicas();
  /// This rank's group of `ranks` consecutive ranks of replicas(). `ranks` must divide the size of
  /// replicas(), and be the same in all calls. Collective on replicas().
  Communicator& shard_group(int ranks);
  /// This rank's group of `ranks` consecutive ranks of replicas(), which divide the experts among
  /// them; conditions as for shard_group(). Its messages need no order relative to others.
  Communicator& experts(int ranks);
  /// The ranks of `among`, replicas() or a shard_group(), with the same position in experts(ranks)
  /// as this rank. Collective on `among`.
  Communicator& with_same_experts(Communicator& among, int ranks);
  /// The pipeline ranks of the first and the last stage, which both hold tied embeddings. On every
  /// other rank, and if one rank has both stages, the communicator has only this rank.
  Communicator& embedding() { return *embedding_; }
  /// The ranks of the tensor axis with the same `colour`. Collective on the tensor axis.
  Communicator& part_of_tensor_axis(const std::string& name, int colour);
  /// Another communicator of an axis's ranks, whose messages need no order relative to messages on
  /// the axis itself. Collective on the axis.
  Communicator& another(Axis axis, const std::string& name);
  /// The grid of the ranks in this rank's part of the data axis, which is divided into `parts`
  /// equal parts of consecutive positions. Collective on the world.
  Grid& equal_part(int parts);
  /// The ranks at the same position as this rank in each part of equal_part(), in the order of the
  /// parts. Collective on the world.
  Communicator& across_parts(int parts);
  /// The ranks of the data axis before position `first` if this rank is one of them, otherwise the
  /// other ranks of the axis. Collective on the data axis.
  Communicator& part_of_data_axis(int first);
  /// Another communicator of the data axis's ranks, or of all ranks, whose verbs on views always
  /// use MPI, so that ranks may send and receive in any order. Collective on these ranks.
  Communicator& data_messages(const std::string& name);
  Communicator& world_messages(const std::string& name);
  /// Communicators of part_of_tensor_axis, by name.
  const std::map<std::string, std::unique_ptr<Communicator>>& parts_of_tensor_axis() const {
    return parts_;
  }
  const layout::ProcessGrid& process_grid() const { return process_grid_; }
  layout::Coordinates coordinates() const { return process_grid_.coordinates(world_.rank()); }

 private:
  std::unique_ptr<Communicator> along(Communicator& larger, Axis axis) const;
  /// This rank's group of `ranks` consecutive ranks of replicas().
  Communicator& part_of_replicas(const std::string& name, int ranks);

  Communicator& world_;
  layout::ProcessGrid process_grid_;
  layout::StageMap stages_;
  std::unique_ptr<Communicator> model_;
  layout::PerAxis<std::unique_ptr<Communicator>> axes_;
  std::unique_ptr<Communicator> replicas_;  ///< null without a context axis
  std::unique_ptr<Communicator> embedding_;
  std::map<std::string, std::unique_ptr<Communicator>> parts_;  ///< parts of the tensor axis
  std::map<std::string, std::unique_ptr<Communicator>> others_;
  std::map<std::string, std::unique_ptr<Communicator>> by_mpi_;  ///< never use a transport
  TransportFactory factory_;
  std::unique_ptr<Communicator> part_world_;  ///< outlives part_, which refers to it
  std::unique_ptr<Grid> part_;                ///< grid of a part of the data axis
};

}  // namespace trireme::grid
