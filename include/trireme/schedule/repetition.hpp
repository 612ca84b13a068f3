#pragma once

#include <trireme/schedule/program.hpp>
#include <trireme/schedule/schedules.hpp>
#include <trireme/schedule/timeline.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

/// Properties of programs of many micro-batches, from programs of few micro-batches. After the
/// first 2 p micro-batches, a schedule on p pipeline ranks repeats the passes of p micro-batches
/// until the last micro-batches.
namespace trireme::schedule {

/// The two short steps that represent a step of m micro-batches: m is few + repeats (more − few).
/// `repeats` is 0 if the step is short itself.
struct ShortSteps {
  int few = 0;
  int more = 0;
  double repeats = 0;

  explicit ShortSteps(const ProgramLayout& layout);
  /// The value of the whole step, given the values of the two short steps.
  double extended(double of_few, double of_more) const {
    return of_few + repeats * (of_more - of_few);
  }
};

/// Counts of one rank's computing instructions.
struct RowCounts {
  int slots = 0;  ///< largest number of saved micro-batches
  /// Forward and backward passes that directly follow a pass of the same direction. Weight halves
  /// are not counted.
  int forward_again = 0;
  int backward_again = 0;
  bool splits_backward = false;  ///< whether a backward pass is separated into two halves
};
RowCounts count_row(std::span<const Instr> row);
/// Counts of each rank of a named schedule. Kept for the next call with the same arguments.
const std::vector<RowCounts>& row_counts(ScheduleKind kind, const ProgramLayout& layout);

/// Times of ranks in a simulated step.
struct RankTimes {
  std::vector<Seconds> end;   ///< end of each rank's last pass
  std::vector<Seconds> busy;  ///< time of its passes and of the starts of its sends
};

/// The passes of a program in an order in which they can be simulated without a queue.
class PassOrder {
 public:
  /// `program` has computing instructions alone, and completes.
  explicit PassOrder(const Program& program);

  /// The times as simulate() finds them under independent channels with sufficient send buffers. In
  /// a program of several steps, `end` is the time between each rank's last backward passes of the
  /// first and of the repeated step, and `busy` a mean of the steps.
  RankTimes times(const Cost& cost) const;

 private:
  struct Pass {
    std::int32_t source = -1;  ///< index of the pass whose message it needs; -1 if it needs none
    std::uint32_t rank = 0;
    std::uint32_t times = 0;  ///< index of its durations
  };

  ProgramLayout layout_;
  std::vector<Pass> passes_;
  /// By rank: index of the last backward pass of each step.
  std::vector<std::vector<std::int32_t>> step_ends_;
};

/// The ends of the ranks' passes in a named schedule of any number of micro-batches.
class RepeatedPasses {
 public:
  RepeatedPasses(ScheduleKind kind, const ProgramLayout& layout);
  /// See RankTimes::end. A repetition takes at least as long as the work of the slowest rank.
  std::vector<Seconds> ends(const Cost& cost) const;

 private:
  ShortSteps steps_;
  PassOrder few_;
  std::optional<PassOrder> more_;
};

}  // namespace trireme::schedule
