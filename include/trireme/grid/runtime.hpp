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

/// Runs `local` on every rank of `world`. If it throws on any rank, all ranks throw together:
/// SharedError with the message on the lowest such rank, SilentError elsewhere. The error is thus
/// reported once, and no rank is left waiting. `local` must not communicate. Collective.
void together(Communicator& world, const std::function<void()>& local);

class NodeClaim;

/// Software of the ranks.
struct Software {
  std::string kokkos;           ///< version: "4.7.1"
  std::string execution_space;  ///< "Serial"
  int threads = 1;              ///< threads per rank
  std::string mpi;              ///< "MPICH 4.0.2"
};

/// MPI and Kokkos from construction to destruction. Exactly one per process, in main.
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
  /// "2 ranks, Kokkos 3.4.1 Serial, MPICH 4.0.2"
  std::string description() const;

  void together(const std::function<void()>& local) { grid::together(*world_, local); }

  /// Runs `work`, which may communicate. An error that the other ranks do not know ends all ranks
  /// before any memory is destroyed that a running collective may still write to.
  ExitCode guard(const std::function<ExitCode()>& work);

  /// Ends all ranks with this error's code. For errors that the other ranks do not know. Does not
  /// return.
  [[noreturn]] void abort(const Error& error);

  /// Returns `code`, with which main() is about to end. The process also ends with it if
  /// MPI_Finalize takes longer than TRIREME_END_SECONDS (60). Without this call, the code of the
  /// last guard(), or ExitCode::failed, is used.
  ExitCode ends_with(ExitCode code) { return code_ = code; }

 private:
  std::chrono::seconds end_limit_{60};
  ExitCode code_ = ExitCode::failed;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<NodeClaim> error_claim_;
};

/// Thrown on the one rank that reports an error that ends all ranks.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Thrown on the other ranks, which print nothing.
class SilentError : public Error {
 public:
  explicit SilentError(ExitCode code) : Error("reported by another rank", code) {}
};

/// The communicators of the process grid. Communicators of axes that split the weights are splits
/// of a replica's communicator. Collective.
class Grid {
 public:
  /// `stages`: placement of the stages. Without it, each pipeline rank has one stage.
  Grid(Communicator& world, const layout::ProcessGrid& process_grid,
       const layout::StageMap& stages);
  Grid(Communicator& world, const layout::ProcessGrid& process_grid)
      : Grid(world, process_grid, {process_grid.size(Axis::pipeline)}) {}

  /// Gives every communicator of more than one rank a transport for its views, including those of
  /// part_of_tensor_axis. The world keeps MPI. Called before the first verb on views. Collective.
  void use_transports(const TransportFactory& factory);

  Communicator& world() { return world_; }
  Communicator& communicator(Axis axis) { return *axes_[axis]; }
  /// The ranks that together hold the weights once, in rank order.
  Communicator& model() { return *model_; }
  /// The ranks with the same weights, in rank order: the ranks of the data and context axes.
  Communicator& replicas();
  /// This rank's group of `ranks` consecutive replicas; replicas() if that is all of them. `ranks`
  /// must divide the number of replicas. Later calls return the same communicator. Collective on
  /// the replicas.
  Communicator& shard_group(int ranks);
  /// The pipeline ranks of the first and the last stage, which both hold tied embeddings; on every
  /// other rank, and where one rank has both stages, this rank alone.
  Communicator& embedding() { return *embedding_; }
  /// The ranks of the tensor axis with the same `colour`, in the axis's order. Later calls with the
  /// same `name` return the same communicator. Collective on the tensor axis.
  Communicator& part_of_tensor_axis(const std::string& name, int colour);
  /// Another communicator of an axis's ranks, whose messages need no order relative to messages on
  /// the axis itself. Later calls with the same `name` return the same communicator. Collective on
  /// the axis.
  Communicator& another(Axis axis, const std::string& name);
  /// The grid of this rank's part of the data axis, one of `parts` equal parts of consecutive
  /// positions; this grid itself if it is the only part. Later calls return the same grid.
  /// Collective on the world.
  Grid& equal_part(int parts);
  /// The ranks at the same position in each part, in the order of the parts.
  Communicator& across_parts(int parts);
  /// The ranks of the data axis on this rank's side of position `first`: the ranks before it, or
  /// the ranks from it on. Later calls return the same communicator. Collective on the data axis.
  Communicator& part_of_data_axis(int first);
  /// Another communicator of the data axis's ranks, or of all ranks, whose views always go through
  /// MPI: ranks may send and receive in any order. Later calls with the same `name` return the same
  /// communicator. Collective on these ranks.
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
