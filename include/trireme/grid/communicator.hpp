#pragma once

#include <trireme/grid/operation.hpp>
#include <trireme/grid/operation_pool.hpp>
#include <trireme/grid/transport_queue.hpp>
#include <trireme/tensor/views.hpp>

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace trireme::grid {

/// Observer of the inputs and results of a communicator's verbs on views, except broadcasts.
/// gives() gets a verb's input when the verb starts, receives() gets the result after the wait for
/// it. Kernels that these functions launch on the verb's Exec see the values.
class Witness {
 public:
  struct Message {
    const char* verb = "";
    std::string_view communicator;
    const std::byte* data = nullptr;
    std::int64_t elements = 0;
    int size = 0;  ///< bytes of an element
  };
  virtual ~Witness() = default;
  virtual void gives(const Message& message) = 0;
  virtual void receives(const Message& message) = 0;
};

enum class Reduction : std::uint8_t { sum, maximum, minimum };

enum class Verb : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send
};

/// Verbs on views that a rank has started, without receives (see Communicator::traffic).
struct Traffic {
  std::int64_t operations = 0;
  std::int64_t bytes = 0;
  bool operator==(const Traffic&) const = default;
};

/// An outstanding verb. Wait for the verb through its communicator, which must outlive the request.
/// Do not destroy an active request: MPI or the transport still accesses the verb's memory.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(operation_, other.operation_);
    std::swap(queued_, other.queued_);
    std::swap(result_, other.result_);
    return *this;
  }
  bool active() const { return operation_ != nullptr || queued_ != nullptr; }

 private:
  friend class Communicator;
  Operation* operation_ = nullptr;
  Queued* queued_ = nullptr;  ///< the verb's entry with a transport
  Witness::Message result_;   ///< result to show to the witness; empty without a witness
};

/// Communication among a group of ranks, such as the ranks of an axis. A verb is a collective, a
/// send or a receive, on views or on host memory. All ranks make their collective calls in the same
/// order. A wait also advances the other outstanding verbs of this process.
///
/// Do not touch result views or change input views before the wait. T: float, double, Bf16, Fp16.
/// Without a transport, a verb on views first waits for the kernels on `exec`, and device memory is
/// staged through a host buffer. Maxima, minima and sums of integers then have at most 2^31 − 1
/// elements.
///
/// With a transport, the verbs on views use it. If the transport is a stream, waits do not block
/// the host: work launched on `exec` after a wait sees the result.
class Communicator {
 public:
  Communicator(MPI_Comm communicator, std::string name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  /// World rank of this communicator's `rank`.
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

  /// Verbs on views use this transport from now on. All ranks call this function before the first
  /// verb on views. Error on a communicator of one rank, on a communicator with a transport, or if
  /// an MPI verb is outstanding.
  void use(std::unique_ptr<Transport> transport);
  /// Whether transfers are strictly ordered, as on one NCCL communicator: true with a transport.
  bool ordered_groups() const { return transport_ != nullptr; }
  /// Sends and receives of views that are started between begin_group() and end_group() form one
  /// group (schedule::Transport). Wait for their requests only after end_group(). Without a
  /// transport, both functions do nothing.
  void begin_group();
  void end_group(const Exec& exec);
  /// Reserves memory of Exec in which the transport receives the other ranks' summands. A reduction
  /// that needs more memory enlarges the reserve. Does nothing without a transport.
  void reserve_scratch(Bytes bytes);
  /// Bytes of the reserve; 0 without a transport.
  Bytes scratch_bytes() const { return transport_ ? transport_->scratch_bytes() : 0; }

  /// Element-wise reduction of `data` over all ranks, in place. The result is bitwise equal on all
  /// ranks. Sums are taken in rank order, so an element's sum does not depend on the message's
  /// size. T: also std::int64_t. Error for maxima and minima of Bf16 and Fp16.
  template <class T>
  Request start_all_reduce(const Exec& exec, View1<T> data, Reduction reduction);
  template <class T>
  void all_reduce(const Exec& exec, View1<T> data, Reduction reduction, const char* what);

  /// all [sum of counts] = the parts of all ranks in rank order. Counts per rank may be uneven or
  /// zero. `mine` may alias its part of `all`.
  template <class T>
  Request start_all_gather(const Exec& exec, View1<T> all,
                           std::type_identity_t<View1<const T>> mine,
                           std::span<const std::int64_t> counts);
  template <class T>
  void all_gather(const Exec& exec, View1<T> all, std::type_identity_t<View1<const T>> mine,
                  std::span<const std::int64_t> counts, const char* what);

  /// mine [counts[rank]] = this rank's part of the element-wise sum of `all` over all ranks, summed
  /// in rank order. `mine` may alias its part of `all`.
  template <class T>
  Request start_reduce_scatter(const Exec& exec, View1<T> mine,
                               std::type_identity_t<View1<const T>> all,
                               std::span<const std::int64_t> counts);
  template <class T>
  void reduce_scatter(const Exec& exec, View1<T> mine, std::type_identity_t<View1<const T>> all,
                      std::span<const std::int64_t> counts, const char* what);

  /// Sends the r-th part of `mine`, sent[r] elements, to rank r. `all` = the parts for this rank
  /// from all ranks in rank order, received[r] elements from rank r. Counts may be uneven or zero.
  /// Rank a's sent[b] must be rank b's received[a]. No overlap.
  template <class T>
  Request start_all_to_all(const Exec& exec, View1<T> all, std::span<const std::int64_t> received,
                           std::type_identity_t<View1<const T>> mine,
                           std::span<const std::int64_t> sent);
  template <class T>
  void all_to_all(const Exec& exec, View1<T> all, std::span<const std::int64_t> received,
                  std::type_identity_t<View1<const T>> mine, std::span<const std::int64_t> sent,
                  const char* what);

  /// Sends to one rank. Transfers between two ranks on one channel arrive in the order in which
  /// they were started. Without a transport, transfers on different channels may overtake each
  /// other, and a rank may send to itself. `channel` in [0, channels()).
  template <class T>
  Request start_send(const Exec& exec, View1<const T> data, int to, int channel);
  template <class T>
  requires(!std::is_const_v<T>) Request
      start_send(const Exec& exec, View1<T> data, int to, int channel) {
    return start_send(exec, View1<const T>(data), to, channel);
  }
  template <class T>
  Request start_receive(const Exec& exec, View1<T> data, int from, int channel);
  /// Sends and receives of host memory of any length, always by MPI.
  Request start_send(std::span<const std::byte> data, int to, int channel);
  Request start_receive(std::span<std::byte> data, int from, int channel);
  /// Number of channels, at least 16384.
  int channels() const { return channels_; }

  /// Copies `data` of `root` to every rank.
  template <class T>
  void broadcast(const Exec& exec, View1<T> data, int root, const char* what);

  /// Collectives on host memory, for control data. T: float, double, std::int64_t.
  template <class T>
  void all_reduce(std::span<T> data, Reduction reduction, const char* what);
  template <class T>
  T all_reduce(T value, Reduction reduction, const char* what) {
    all_reduce(std::span<T>(&value, 1), reduction, what);
    return value;
  }
  void broadcast(std::span<std::byte> data, int root, const char* what);
  /// Returns `value` of `root` on every rank.
  std::string broadcast(const std::string& value, int root, const char* what);
  /// Returns `value` of every rank in rank order, on every rank.
  std::vector<std::int64_t> all_gather(std::int64_t value, const char* what);
  /// received[r] = rank r's sent[rank()]. received, sent [size()].
  void all_to_all(std::span<std::int64_t> received, std::span<const std::int64_t> sent,
                  const char* what);
  /// Returns the strings of all ranks in rank order on `root`, and an empty vector on other ranks.
  std::vector<std::string> gather(const std::string& value, int root, const char* what);
  void barrier(const char* what);

  /// Waits for the result, if the request is active. Meanwhile, the heartbeat publishes the verb
  /// and `what`. With a transport of streams, only `exec` waits, not the host.
  void wait(Request& request, const char* what);
  /// Waits for the first result, and returns the request's index. Error if no request is active.
  std::size_t wait_for_one(std::span<Request> requests, const char* what);
  /// Whether the result is complete; true for an inactive request. If so, the result is available
  /// as after wait(). Does not block, except to copy the result to a device.
  bool done(Request& request);
  /// Advances the outstanding verbs of all communicators of this process. Passes call it between
  /// layers, because MPICH does not progress by itself.
  void progress();

  /// A communicator of the ranks with equal `colour`, ordered by `position`. Collective.
  std::unique_ptr<Communicator> split(int colour, int position, std::string name);
  /// A communicator of this rank alone. Needs no communication.
  static std::unique_ptr<Communicator> alone(std::string name);
  static std::unique_ptr<Communicator> self() { return alone("self"); }

  /// Stages views through host buffers from now on, as builds for devices always do.
  void stage_through_host() { pool_.stage_through_host(); }
  /// Shows the messages of verbs on views, except for broadcasts, to `witness` from now on; null
  /// stops this. Do not call it while a verb is outstanding whose result `witness` must see.
  void show_to(Witness* witness) { witness_ = witness; }
  /// Skips verbs on views from now on; with out = false, executes them again. Used to measure the
  /// cost of communication: results keep the values that their memory held. All ranks must call it.
  void leave_out(bool out = true) { left_out_ = out; }

  /// Verbs on views since construction or the last reset. On a communicator of one rank, only sends
  /// are counted. Bytes: `data` for all_reduce, broadcast and send, the whole of `all` for
  /// all_gather and reduce_scatter, and `mine` for all_to_all.
  Traffic traffic(Verb verb) const { return traffic_[static_cast<std::size_t>(verb)]; }
  Traffic traffic() const;
  void reset_traffic() { traffic_ = {}; }

 private:
  Operation& take(const char* verb, std::int64_t number);
  Operation& take_collective(const char* verb);
  Request request(Operation& operation);
  template <class T>
  Witness::Message to_show(const char* verb, View1<T> data) const;
  template <class T>
  void gives(const char* verb, View1<T> data) const;
  template <class T>
  Request receives(Request request, const char* verb, View1<T> data) const;
  void show_result(Request& request) const;
  void wait(Operation& operation, const char* what);
  void count(Verb verb, std::size_t bytes);
  void set_offsets(const char* verb, std::span<const std::int64_t> counts, std::size_t all,
                   std::size_t mine);
  template <class T>
  void post_all_reduce(Operation& operation, T* data, std::int64_t n, Reduction reduction);
  Request request(Queued& queued) const;
  void wait(Queued& queued, const char* what);
  Queued& queue_transfer(const Exec& exec, const char* verb, std::byte* data, std::size_t bytes,
                         int peer, int channel);

  MPI_Comm communicator_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  int channels_ = 0;
  int tag_pairs_ = 0;  ///< number of pairs of tags after the channels; a collective uses one pair
  std::int64_t collectives_ = 0;
  std::vector<int> world_ranks_;
  bool left_out_ = false;
  Witness* witness_ = nullptr;
  std::array<Traffic, 6> traffic_;
  OperationPool pool_;
  std::unique_ptr<TransportQueue> transport_;
  std::vector<std::int64_t> offsets_;       ///< offsets of the parts in the verb being started
  std::vector<std::int64_t> sent_offsets_;  ///< likewise of the parts that all_to_all sends
};

}  // namespace trireme::grid
