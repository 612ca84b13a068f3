#pragma once

#include <trireme/architecture/outer_steps.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/arena.hpp>

#include <cstdint>
#include <vector>

namespace trireme::optim {

/// The mean of the differences of all workers of local training, by two rounds of messages: each
/// rank receives its part of all differences, takes their mean in the order of the workers, and
/// sends it to all. The bits of the mean thus do not depend on which ranks train which workers. D:
/// type of the messages.
template <class D>
class OuterExchange {
 public:
  /// `across`: the ranks at the same place of all groups; each trains `workers_per_rank`
  /// consecutive workers. Memory for `elements` at a time.
  OuterExchange(grid::Communicator& across, const deck::ParallelConfig& parallel,
                std::int64_t elements);
  /// Waits for what is in flight, unless an error ends the run: other ranks may be gone.
  ~OuterExchange();
  OuterExchange(const OuterExchange&) = delete;
  OuterExchange& operator=(const OuterExchange&) = delete;

  /// Elements of an exchange, at most.
  std::int64_t elements() const { return elements_; }
  /// Whether differences were sent that forget() has not ended.
  bool in_flight() const { return state_ != State::idle; }
  void forget() { state_ = State::idle; }
  Bytes bytes() const { return memory_.capacity(); }

  /// Begins an exchange of `n` elements, the same number on all ranks. Its differences are to be
  /// written before send().
  void begin(std::int64_t n);
  /// [n], of a worker of this rank.
  View1<D> difference(std::int64_t worker_on_rank) const;
  /// Sends the differences. Collective, as the following ones.
  void send(const Exec& exec);
  /// Waits for the differences, and sends the mean of this rank's part.
  void sum(const Exec& exec);
  /// Waits for the mean.
  void finish(const Exec& exec);
  /// The mean [n] of all workers, after finish().
  View1<D> mean() const { return View1<D>(mean_.data(), static_cast<std::size_t>(n_)); }

  /// Continues with a mean that a checkpoint holds, which is to be written to mean().
  void resume(std::int64_t n);

 private:
  enum class State : std::uint8_t { idle, sending, gathering, complete };

  View2<D> received() const;

  grid::Communicator& across_;
  std::int64_t per_rank_;
  std::int64_t elements_;
  Arena memory_;
  View1<D> differences_;  // [workers per rank · elements]
  View1<D> received_;     // [workers · part of the elements]; one group: the differences
  View1<D> mean_;         // [elements]
  std::int64_t n_ = 0;
  State state_ = State::idle;
  std::vector<grid::Request> transfers_;
  grid::Request gather_;
  std::vector<std::int64_t> counts_;  ///< elements of each rank's part
};

}  // namespace trireme::optim
