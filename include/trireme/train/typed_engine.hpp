#pragma once

#include <trireme/train/audit.hpp>
#include <trireme/train/engine.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/rank_checkpoint.hpp>
#include <trireme/train/step_actions.hpp>
#include <trireme/train/step_results.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::train {

/// The engine for one set of number types. Without programs it can only evaluate.
template <class P>
class TypedEngine final : public Engine {
 public:
  using T = typename P::Compute;

  TypedEngine(const deck::Config& config, const architecture::Architecture& architecture,
              grid::Grid& grid, const plan::Machine& machine,
              std::span<const schedule::Program> programs);

  void initialise() override;
  void train_step(std::int64_t step, const data::Samples& samples) override;
  void timed_step(std::int64_t step, const data::Samples& samples) override;
  void overlapping_step(std::int64_t step, const data::Samples& samples,
                        bool next_follows) override;
  void audit_state(std::int64_t step) override;
  schedule::Timeline timeline() override;
  StepResult result() override;
  StepResult result_of(std::int64_t step) override;
  Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                      const std::vector<std::int32_t>& bytes_of_token) override;
  std::vector<Score> score(const data::Requests& requests) override;
  std::vector<std::vector<std::int32_t>> likeliest(const data::Requests& requests) override;
  std::vector<checkpoint::SliceView> share() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override;
  std::string description() const override;

 private:
  /// Calls `step` for each worker of local training on this rank, and then takes the outer steps
  /// due after step `number`; or calls `step` once without local training.
  template <class OneStep>
  void for_workers(std::int64_t number, const OneStep& step);
  /// Calls `use` with the weights of evaluations: with local training, the shared weights.
  template <class Use>
  void with_shared_weights(const Use& use);
  /// Evaluates this rank's groups of `samples` samples. Calls begin(number of earlier groups of
  /// this rank) before each program.
  void evaluate_groups(std::int64_t samples, const std::function<void(std::int64_t)>& begin);
  /// Sums `values` over all ranks, in place. Ranks without a request's tokens have zeros.
  void sum_of_requests(std::vector<double>& values);
  void served_step(std::int64_t step, const data::Samples& samples, bool next_follows);
  void overlap(std::int64_t step, const data::Samples& samples, bool next_follows);
  /// Begins a training step, and returns the executor of its program.
  Executor& begin_step(std::int64_t step, const data::Samples& samples);
  /// Trains a step, with an audit if one is due; `run` runs a part of its program.
  void take_step(std::int64_t step, const std::function<void(StepPhase)>& run);
  void run(const Executor& executor, StepPhase part = StepPhase::whole);
  void publish(const PlacedInstr& placed, StepPhase part) const;  ///< publishes to the watchdog
  void run_timed(const Executor& executor, StepPhase part);
  void run_recorded(const Executor& executor);
  void begin_clock();
  Seconds since_zero(Clock::time_point t) const { return seconds(t - timed_from_); }
  /// Makes room for an overlapping step in the timeline. Returns the step's index there, 0 or 1;
  /// −1: the step is not recorded.
  int make_room(const Executor& executor);

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Grid& grid_;
  const plan::Machine& machine_;
  kernels::Handle handle_;
  EngineParts<P> parts_;
  StepActions<P> actions_;
  StepResults<P> results_;
  RankCheckpoint<P> checkpoint_;
  std::optional<Audit<P>> audit_;
  std::vector<Executor> executors_;  ///< one per program
  bool begun_ = false;               ///< whether the last step has begun the next step
  schedule::Timeline timeline_;
  int recorded_parts_ = 0;          ///< number of overlapping steps in the timeline
  std::ptrdiff_t latest_part_ = 0;  ///< index of the first event of the last recorded step
  Clock::time_point timed_from_;
};

extern template class TypedEngine<model::Fp32>;
extern template class TypedEngine<model::Fp64>;
extern template class TypedEngine<model::MixedBf16>;
extern template class TypedEngine<model::MixedFp16>;

}  // namespace trireme::train
