#pragma once

#include <trireme/grid/transport.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::grid {

enum class Reduction : std::uint8_t;

/// One verb of a communicator on its transport.
struct Queued {
  const char* verb = "";
  std::int64_t number = 0;
  std::int64_t turn = 0;  ///< number of the verb among the verbs of all queues of this process
  int peer = -1;          ///< world rank of the other end of a send or receive
  bool held = false;      ///< owned by a Request
  bool ended = false;     ///< `place` is recorded; false until the end of the verb's group
  Exec exec;
  Transport::Place place;
};

/// The verbs of one communicator on a transport. Sums are taken in rank order.
class TransportQueue {
 public:
  TransportQueue(std::unique_ptr<Transport> transport, std::string name, int rank, int ranks);
  ~TransportQueue();

  /// See Communicator. offsets [ranks + 1] in elements; `size`: bytes of an element.
  template <class T>
  void all_reduce(const Exec& exec, Queued& queued, T* data, std::int64_t n, Reduction reduction);
  template <class T>
  void reduce_scatter(const Exec& exec, Queued& queued, T* mine, const T* all,
                      std::span<const std::int64_t> offsets);
  void all_gather(const Exec& exec, Queued& queued, std::byte* all,
                  std::span<const std::int64_t> offsets, Bytes size);
  /// Without the part that this rank sends to itself.
  void all_to_all(const Exec& exec, Queued& queued, std::byte* all,
                  std::span<const std::int64_t> offsets, std::byte* mine,
                  std::span<const std::int64_t> sent_offsets, Bytes size);
  void broadcast(const Exec& exec, Queued& queued, std::byte* data, Bytes bytes, int root);
  /// Adds a transfer to the open group, or makes a group of this transfer alone.
  void transfer(const Exec& exec, Queued& queued, const Transport::Transfer& transfer);
  void begin_group();
  void end_group(const Exec& exec);

  /// Returns an entry for a verb. A released entry is reused once the transport has passed the
  /// entry's place and all earlier entries can be reused.
  Queued& take(const char* verb, std::int64_t number, int peer);
  void release(Queued& queued) { queued.held = false; }
  /// See Transport.
  bool continue_behind(Queued& queued);
  bool passed(const Queued& queued) const { return transport_->passed(queued.place); }
  void progress() { transport_->progress(); }

  const std::string& name() const { return name_; }
  /// The first entry outside the open group that the transport has not passed, or null.
  const Queued* oldest();
  /// Enlarges the buffer for the other ranks' summands to at least `bytes`. May wait.
  void reserve_scratch(Bytes bytes);
  Bytes scratch_bytes() const { return static_cast<Bytes>(scratch_.extent(0)); }

 private:
  template <class T>
  void begin_segments(T* out, const T* all, std::span<const std::int64_t> offsets, bool shares);
  void retire();
  void end(Queued& queued, const Exec& exec);

  std::unique_ptr<Transport> transport_;
  std::string name_;
  int rank_;
  int ranks_;
  bool grouping_ = false;
  std::vector<Transport::Transfer> group_;
  std::vector<Queued*> members_;  ///< verbs of the open group
  std::vector<Bytes> byte_offsets_;
  std::vector<std::int64_t> offsets_;
  Kokkos::View<std::byte*, Memory> scratch_;
  std::vector<std::unique_ptr<Queued>> all_;
  std::vector<Queued*> idle_;
  std::deque<Queued*> under_way_;
};

/// All queues of this process.
std::span<TransportQueue* const> transport_queues();

}  // namespace trireme::grid
