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

/// What the ranks of a communicator have of the same elements, for kernels that put it together.
struct Summands {
  const std::byte* own = nullptr;     ///< [n], this rank's
  const std::byte* others = nullptr;  ///< [ranks − 1, n], those of the others in rank order
  std::byte* out = nullptr;           ///< [n]; may be `own`
  std::int64_t n = 0;
  int rank = 0;
  int ranks = 1;
};

/// What moves the memory of Exec between the ranks of one communicator without passing through
/// MPI: NCCL. One queue, in the order of the calls: what was put first ends before the next begins.
/// Calls return at once; the queue goes on beside the kernels of Exec, behind which it is put, and
/// which are put behind it, by events. All ranks call the collective ones in the same order.
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

  /// What is put from here on begins behind what is on `exec` by now.
  virtual void begin_behind(const Exec& exec) = 0;
  /// One group: its transfers go on together, and it ends when all of them have met their partners,
  /// which may be in a later group of the other rank's queue only if that queue gets there by
  /// itself. Between two ranks sends and receives match in order.
  virtual void exchange(std::span<const Transfer> group) = 0;
  /// offsets [ranks + 1] in bytes; this rank's part is in its place in `all`.
  virtual void all_gather(std::byte* all, std::span<const Bytes> offsets) = 0;
  virtual void broadcast(std::byte* data, Bytes bytes, int root) = 0;
  /// Calls `launch` with these summands, in its turn, on the instance of Exec that runs what it
  /// launches before what is put next.
  virtual void run(void (*launch)(const Summands&, const Exec&), const Summands& summands) = 0;

  /// A place in the queue: the end of what has been put so far.
  struct Place {
    std::int64_t number = 0;
    std::unique_ptr<Event> event;  ///< of those queues that are streams
  };
  virtual void record(Place& place) = 0;
  /// Tries to put `exec` behind `place`: true when what is launched there from now on finds the
  /// results. Streams wait by themselves, at once; other queues once they got there.
  virtual bool continue_behind(const Exec& exec, const Place& place) = 0;
  /// Whether the queue has gone past `place`.
  virtual bool passed(const Place& place) = 0;

  /// Moves what does not move by itself, and throws Error if the transport has failed.
  virtual void progress() = 0;
};

/// Makes the transport of a communicator of two ranks or more. Collective on it.
using TransportFactory = std::function<std::unique_ptr<Transport>(Communicator& communicator)>;

/// Loads NCCL, or RCCL with HIP, where there are two ranks or more: if one rank cannot, all throw.
/// Before the first make_nccl_transport, which would leave the others waiting. Collective.
void load_nccl(Runtime& runtime);
/// By NCCL; built where its header was found (TRIREME_NCCL). Every rank has a device of its own.
std::unique_ptr<Transport> make_nccl_transport(Communicator& communicator);
/// "NCCL 2.28.3 (/usr/lib/libnccl.so.2)"; empty where it is not loaded.
std::string nccl_name();

}  // namespace trireme::grid
