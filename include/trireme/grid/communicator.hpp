#pragma once

#include <trireme/tensor/views.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trireme::grid {

enum class Reduction : std::uint8_t { sum, maximum, minimum };

/// Host memory between a device and MPI: page-locked where there is such memory, so that copies run
/// at the link's rate.
#if KOKKOS_VERSION >= 40000
using StagingMemory = Kokkos::SharedHostPinnedSpace;
#else
using StagingMemory = Kokkos::HostSpace;
#endif
using StagingBuffer = Kokkos::View<std::byte*, StagingMemory>;

/// A collective under way. Waited for through Communicator::wait; destroying one that is still
/// running is an error.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(request_, other.request_);
    std::swap(staged_, other.staged_);
    return *this;
  }
  bool active() const { return request_ != MPI_REQUEST_NULL; }

 private:
  friend class Communicator;

  /// A result that arrives in `buffer` and belongs at `to`, `bytes` long.
  struct Staged {
    Exec exec;
    StagingBuffer buffer;
    std::byte* to;
    std::size_t bytes;
  };
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::optional<Staged> staged_;
};

/// Verbs on views among the ranks of one axis. Size one is legal and does nothing. Collective calls
/// must come in the same order on all ranks. All waiting tests and yields the core, since a
/// blocking MPI call of more ranks than cores takes a hundred times as long.
class Communicator {
 public:
  Communicator(MPI_Comm communicator, std::string name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

  /// Element-wise reduction of `data` over all ranks, in place; the result is the same bits on all
  /// ranks. The view must not be touched before wait. T: float, double, std::int64_t. Waits for
  /// `exec` first, unless that runs in the calling thread; device memory then goes through a buffer
  /// on the host, which wait copies back. Buffers are kept for the next collectives.
  template <class T>
  Request start_all_reduce(const Exec& exec, View1<T> data, Reduction reduction);

  template <class T>
  void all_reduce(const Exec& exec, View1<T> data, Reduction reduction, const char* what);

  /// The same on host memory: the control plane.
  template <class T>
  void all_reduce(std::span<T> data, Reduction reduction, const char* what);
  template <class T>
  T all_reduce(T value, Reduction reduction, const char* what) {
    all_reduce(std::span<T>(&value, 1), reduction, what);
    return value;
  }

  void broadcast(std::span<std::byte> data, int root, const char* what);
  /// `value` of `root`, on every rank.
  std::string broadcast(const std::string& value, int root, const char* what);
  /// `value` of every rank in rank order, on every rank.
  std::vector<std::int64_t> all_gather(std::int64_t value, const char* what);
  /// Strings of every rank in rank order, on `root`; empty elsewhere.
  std::vector<std::string> gather(const std::string& value, int root, const char* what);

  void barrier(const char* what);
  void wait(Request& request, const char* what);

  /// The ranks of equal `colour` as a communicator of their own, ordered by `position`. Collective.
  std::unique_ptr<Communicator> split(int colour, int position, std::string name);
  /// This rank alone.
  static std::unique_ptr<Communicator> self();

  /// Sends views through buffers on the host, as for devices, whose memory MPI need not know.
  void stage_through_host() { staged_ = true; }

  /// Moves transfers that are under way: MPICH moves nothing by itself. Called between layers.
  void progress();

 private:
  void wait(MPI_Request& request, const char* what);
  StagingBuffer take_buffer(std::size_t bytes);

  MPI_Comm communicator_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  bool staged_ = !exec_on_host;
  std::vector<StagingBuffer> idle_buffers_;
};

}  // namespace trireme::grid
