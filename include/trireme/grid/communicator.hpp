#pragma once

#include <trireme/grid/operation.hpp>
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

enum class Reduction : std::uint8_t { sum, maximum, minimum };

enum class Verb : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, send };

/// What a rank hands in or gets, payload only. A receive counts nothing: its sender does.
struct Traffic {
  std::int64_t operations = 0;
  std::int64_t bytes = 0;
  bool operator==(const Traffic&) const = default;
};

/// A verb under way. Waited for through its communicator, which must outlive it; one that is
/// dropped while it runs leaves MPI writing to its memory: an error.
class Request {
 public:
  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  Request(Request&& other) noexcept { *this = std::move(other); }
  Request& operator=(Request&& other) noexcept {
    std::swap(operation_, other.operation_);
    std::swap(queued_, other.queued_);
    return *this;
  }
  bool active() const { return operation_ != nullptr || queued_ != nullptr; }

 private:
  friend class Communicator;
  Operation* operation_ = nullptr;
  Queued* queued_ = nullptr;  ///< on a transport
};

/// Verbs on views among the ranks of one axis. Size one is legal: copies or nothing. Collective
/// calls must come in the same order on all ranks. All waiting tests and yields the core, since a
/// blocking MPI call of more ranks than cores takes a hundred times as long, and moves whatever
/// else is under way in this process.
///
/// Verbs on views wait for `exec` first, unless its launches return when they are done; device
/// memory goes through a buffer on the host, which wait copies back. Views of results must not be
/// touched, and views of inputs not changed, before the wait. Buffers are kept for the next calls.
/// T: float, double, Bf16, Fp16. Only of maxima and minima MPI counts at most 2^31 - 1 elements.
///
/// With a transport the verbs on views go its way, and neither they nor their waits hold up the
/// host: what is launched on `exec` behind a wait finds the result.
class Communicator {
 public:
  Communicator(MPI_Comm communicator, std::string name);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  /// The rank in the whole job of this communicator's `rank`.
  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }

  /// Verbs on views take this way from now on. All ranks do the same; before the first of them.
  void use(std::unique_ptr<Transport> transport);
  /// Whether transfers queue strictly behind each other, as on one NCCL communicator. Channels of
  /// MPI are independent.
  bool ordered_groups() const { return transport_ != nullptr; }
  /// Sends and receives that are started between these are one group (schedule::Transport); their
  /// requests may be waited for when it has ended. Without a transport they are no group.
  void begin_group();
  void end_group(const Exec& exec);
  /// Bytes of Exec's memory that a transport's sums take: as many as were reserved, or as the
  /// largest sum so far took. Without a transport nothing is reserved.
  void reserve_scratch(Bytes bytes);
  Bytes scratch_bytes() const { return transport_ ? transport_->scratch_bytes() : 0; }

  /// Element-wise reduction of `data` over all ranks, in place. The result is the same bits on all
  /// ranks; sums are added in rank order, so that an element's sum is the same bits however many
  /// elements share the message and wherever it stands among them. T: also std::int64_t.
  template <class T>
  Request start_all_reduce(const Exec& exec, View1<T> data, Reduction reduction);
  template <class T>
  void all_reduce(const Exec& exec, View1<T> data, Reduction reduction, const char* what);

  /// all [sum of counts] = the parts of every rank in rank order; counts per rank, uneven or zero
  /// allowed. `mine` may be its own place inside `all`.
  template <class T>
  Request start_all_gather(const Exec& exec, View1<T> all,
                           std::type_identity_t<View1<const T>> mine,
                           std::span<const std::int64_t> counts);
  template <class T>
  void all_gather(const Exec& exec, View1<T> all, std::type_identity_t<View1<const T>> mine,
                  std::span<const std::int64_t> counts, const char* what);

  /// mine [counts[rank]] = this rank's part of the element-wise sum of `all` over all ranks, added
  /// in rank order. `mine` may be its own place inside `all`.
  template <class T>
  Request start_reduce_scatter(const Exec& exec, View1<T> mine,
                               std::type_identity_t<View1<const T>> all,
                               std::span<const std::int64_t> counts);
  template <class T>
  void reduce_scatter(const Exec& exec, View1<T> mine, std::type_identity_t<View1<const T>> all,
                      std::span<const std::int64_t> counts, const char* what);

  /// Between two ranks; transfers of one channel arrive in the order in which they were started,
  /// channels overtake each other. A rank may send to itself. `channel` in [0, channels()).
  template <class T>
  Request start_send(const Exec& exec, View1<const T> data, int to, int channel);
  template <class T>
  requires(!std::is_const_v<T>) Request
      start_send(const Exec& exec, View1<T> data, int to, int channel) {
    return start_send(exec, View1<const T>(data), to, channel);
  }
  template <class T>
  Request start_receive(const Exec& exec, View1<T> data, int from, int channel);
  /// At least 16384.
  int channels() const { return channels_; }

  /// `data` of `root`, on every rank.
  template <class T>
  void broadcast(const Exec& exec, View1<T> data, int root, const char* what);

  /// The control plane, on host memory. Sums of floating-point numbers as above.
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

  /// Until the result is there. What the rank waits for goes to the heartbeat.
  void wait(Request& request, const char* what);
  /// True when the result is there, as after wait. Does not wait, except for its copy to a device.
  bool done(Request& request);
  /// Moves what is under way in this process, on whatever communicator: MPICH moves nothing by
  /// itself. Called between layers.
  void progress();

  /// The ranks of equal `colour` as a communicator of their own, ordered by `position`. Collective.
  std::unique_ptr<Communicator> split(int colour, int position, std::string name);
  /// This rank alone; costs no communication.
  static std::unique_ptr<Communicator> alone(std::string name);
  static std::unique_ptr<Communicator> self() { return alone("self"); }

  /// Sends views through buffers on the host, as for devices, whose memory MPI need not know.
  void stage_through_host() { staged_ = true; }
  /// Verbs on views do nothing from now on: results are what their memory held. For measuring what
  /// communication costs. All ranks must agree.
  void leave_out(bool out = true) { left_out_ = out; }

  /// Verbs on views since the start or the last reset, those of one rank alone not counted, sends
  /// to itself counted. Bytes: all_reduce and broadcast the data, all_gather and reduce_scatter the
  /// whole of `all`, send the data.
  Traffic traffic(Verb verb) const { return traffic_[static_cast<std::size_t>(verb)]; }
  Traffic traffic() const;
  void reset_traffic() { traffic_ = {}; }

 private:
  Operation& take(const char* verb, std::int64_t number);
  Operation& take_collective(const char* verb);
  void give_back(Operation& operation);
  Request request(Operation& operation);
  void wait(Operation& operation, const char* what);
  void finish(Operation& operation);
  void count(Verb verb, std::size_t bytes);
  StagingBuffer take_buffer(std::size_t bytes);
  void give_back(StagingBuffer& buffer);
  std::byte* bring_to_host(Operation& operation, const Exec& exec, const std::byte* data,
                           std::size_t bytes);
  void copy_back(Operation& operation, const Exec& exec, const std::byte* from, std::byte* to,
                 std::size_t bytes) const;
  void set_offsets(const char* verb, std::span<const std::int64_t> counts, std::size_t all,
                   std::size_t mine);
  template <class T>
  void post_all_reduce(Operation& operation, T* data, std::int64_t n, Reduction reduction);
  std::size_t operations_in_flight() const;
  Request request(Queued& queued) const;
  void wait(Queued& queued, const char* what);
  Queued& queue_transfer(const Exec& exec, const char* verb, std::byte* data, std::size_t bytes,
                         int peer, int channel);

  MPI_Comm communicator_;
  std::string name_;
  int rank_ = 0;
  int size_ = 1;
  int channels_ = 0;
  int tag_pairs_ =
      0;  ///< Behind the channels, for collectives of messages that are under way at once.
  std::int64_t collectives_ = 0;
  std::vector<int> world_ranks_;
  bool staged_ = !exec_on_host;
  bool left_out_ = false;
  std::array<Traffic, 5> traffic_;
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> idle_operations_;
  std::vector<StagingBuffer> idle_buffers_;
  std::unique_ptr<TransportQueue> transport_;
  std::vector<std::int64_t> offsets_;  ///< of the parts of the verb that is being started
};

}  // namespace trireme::grid
