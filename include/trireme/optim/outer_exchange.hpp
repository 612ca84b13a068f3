#pragma once

#include <trireme/architecture/outer_steps.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// The mean of the differences of all workers of local training, in two rounds of messages: each
/// rank receives its part of all differences, takes the mean in the order of the workers, and sends
/// the mean to all ranks. The bits of the mean do not depend on the assignment of workers to ranks.
/// D: type of the messages.
template <class D>
class OuterExchange {
 public:
  /// `across`: see LocalTraining. Allocates memory for exchanges of up to `elements` elements.
  OuterExchange(grid::Communicator& across, const deck::ParallelConfig& parallel,
                std::int64_t elements);
  /// Waits for outstanding messages, unless an exception ends the run: other ranks may have exited.
  ~OuterExchange();
  OuterExchange(const OuterExchange&) = delete;
  OuterExchange& operator=(const OuterExchange&) = delete;

  /// Largest number of elements of an exchange.
  std::int64_t elements() const { return elements_; }
  /// Whether differences have been sent, or resume() was called, since the last forget().
  bool in_flight() const { return state_ != State::idle; }
  void forget() { state_ = State::idle; }
  Bytes bytes() const { return memory_.capacity(); }

  /// Begins an exchange of `n` ≤ elements() elements, equal on all ranks, before the differences
  /// are written.
  void begin(std::int64_t n);
  /// Memory for the difference [n] of worker number `worker_on_rank` of this rank.
  View1<D> difference(std::int64_t worker_on_rank) const;
  /// Starts sending the differences. send(), sum() and finish() are collective.
  void send(const Exec& exec);
  /// After send(): waits for the differences, and starts sending the mean of this rank's part.
  void sum(const Exec& exec);
  /// Calls sum(), and waits for the mean.
  void finish(const Exec& exec);
  /// The mean difference [n] of all workers, after finish().
  View1<D> mean() const { return View1<D>(mean_.data(), static_cast<std::size_t>(n_)); }

  /// Begins an exchange of `n` elements whose mean the caller writes to mean(), from a checkpoint.
  void resume(std::int64_t n);

 private:
  enum class State : std::uint8_t { idle, sending, gathering, complete };

  View2<D> received() const;

  grid::Communicator& across_;
  std::int64_t per_rank_;
  std::int64_t elements_;
  Arena memory_;
  View1<D> differences_;  // [workers per rank · elements]
  View1<D> received_;  // [workers · elements of the part]; differences_ if `across` has one rank
  View1<D> mean_;      // [elements]
  std::int64_t n_ = 0;
  State state_ = State::idle;
  std::vector<grid::Request> transfers_;
  grid::Request gather_;
  std::vector<std::int64_t> counts_;  ///< elements of each rank's part
};

}  // namespace trireme::optim
