#pragma once

#include <trireme/base/types.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/tensor/views.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace trireme::grid {

class Communicator;
class Runtime;

/// Inputs of all ranks for the same elements, for kernels that reduce them.
struct Summands {
  const std::byte* own = nullptr;     ///< [n], this rank's input
  const std::byte* others = nullptr;  ///< [ranks − 1, n], inputs of the other ranks in rank order
  std::byte* out = nullptr;           ///< [n]; may be `own`
  std::int64_t n = 0;
  int rank = 0;
  int ranks = 1;
};

/// Interface of libraries such as NCCL that move memory of Exec between the ranks of one
/// communicator without MPI. A transport is one in-order queue: each entry ends before the next
/// entry begins. Calls return at once. The queue runs concurrently with the kernels of Exec;
/// begin_behind() and continue_behind() order the queue with the kernels. All ranks make the
/// collective calls in the same order.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  struct Transfer {
    std::byte* data = nullptr;
    Bytes bytes = 0;
    int peer = 0;  ///< never this rank
    bool sends = false;
  };

  /// Entries queued from now on begin after the work queued on `exec` so far.
  virtual void begin_behind(const Exec& exec) = 0;
  /// One group of concurrent transfers. The group ends when all its transfers have matched. Sends
  /// and receives between two ranks match in order. Groups that wait for each other in a cycle
  /// deadlock.
  virtual void exchange(std::span<const Transfer> group) = 0;
  /// Rank r has the bytes offsets[r] … offsets[r + 1] − 1 of `all`; this rank's part is in place.
  virtual void all_gather(std::byte* all, std::span<const Bytes> offsets) = 0;
  virtual void broadcast(std::byte* data, Bytes bytes, int root) = 0;
  /// Calls `launch` with `summands` and an instance of Exec. Kernels that it launches on this
  /// instance run after all earlier entries and before all later entries.
  virtual void run(void (*launch)(const Summands&, const Exec&), const Summands& summands) = 0;

  /// A position in the queue: the end of all entries so far.
  struct Place {
    std::int64_t number = 0;
    std::unique_ptr<Event> event;  ///< for queues that are streams
  };
  virtual void record(Place& place) = 0;
  /// Tries to order `exec` after `place`. Returns true if work launched on `exec` from now on sees
  /// the results. Streams can always do this; other queues only after they have reached `place`.
  virtual bool continue_behind(const Exec& exec, const Place& place) = 0;
  /// Whether the queue has passed `place`.
  virtual bool passed(const Place& place) = 0;

  /// Advances transfers that need the host's help. Throws Error if the transport has failed.
  virtual void progress() = 0;
};

/// Creates the transport of a communicator of at least two ranks. Collective on the communicator.
using TransportFactory = std::function<std::unique_ptr<Transport>(Communicator& communicator)>;

/// Loads NCCL, or RCCL with HIP, if there are at least two ranks. If one rank fails, all ranks
/// throw. Does nothing in builds without NCCL. Call it before the first make_nccl_transport().
/// Collective.
void load_nccl(Runtime& runtime);
/// A transport that uses NCCL. Every rank must have its own device. Error in builds without NCCL
/// (TRIREME_NCCL). Collective on the communicator.
std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator);
/// Text such as "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"; "" if NCCL is not loaded.
std::string nccl_name();

}  // namespace trireme::grid
