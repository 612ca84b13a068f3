#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/requests.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/step_records.hpp>
#include <trireme/train/vocabulary_passes.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trireme::train {

/// Parts of a training step. An audited step repeats the passes before its single update.
enum class StepPhase : std::uint8_t {
  whole,
  passes,  ///< instructions before Op::reduce_gradients
  update   ///< the rest of the step
};
constexpr bool belongs_to(StepPhase part, schedule::Op op) {
  return part == StepPhase::whole ||
         (part == StepPhase::passes) == (op < schedule::Op::reduce_gradients);
}

/// Executes each instruction of a program on a rank's stages.
template <class P>
class StepActions final : public Actions {
 public:
  using T = typename P::Compute;

  /// Amount of text that an evaluation has read, on ranks of the last stage.
  struct Counted {
    std::int64_t samples = 0;
    std::int64_t targets = 0;  ///< targets that count in the loss
    std::int64_t bytes = 0;    ///< bytes of text in predicted tokens
  };

  /// Arguments must outlive this object.
  StepActions(const deck::Config& config, EngineParts<P>& parts, const kernels::Handle& handle);
  StepActions(const StepActions&) = delete;
  StepActions& operator=(const StepActions&) = delete;

  /// Begins step `step` ≥ 1 on the samples of its global batch.
  void begin_training(std::int64_t step, const data::Samples& samples);
  /// Begins an evaluation of windows [0, windows). Micro-batch m is group first_group + m of this
  /// rank's groups (see evaluate_as). `bytes_of_token`: bytes of text of each token id.
  void begin_evaluation(const data::Windows& file, std::int64_t windows, std::int64_t first_group,
                        const std::vector<std::int32_t>& bytes_of_token);
  /// Begins an evaluation of requests. The first tensor rank of the last stage writes to `results`,
  /// which must be zero: for each request Σ loss, and the number of tokens that are not the most
  /// likely token; or, if requests want tokens, the ids of the most likely tokens.
  void begin_requests(const data::Requests& requests, std::int64_t first_group,
                      std::vector<double>& results);
  /// Bytes of device memory for the results of requests.
  Bytes score_bytes() const { return score_memory_ ? score_memory_->capacity() : 0; }
  const Counted& counted() const { return counted_; }
  /// With local training: the next steps train worker `worker`.
  void train_worker(std::int64_t worker) { worker_ = worker; }
  std::int64_t worker() const { return worker_; }
  /// Sets this rank's number among the `ranks` ranks that divide an evaluation's samples.
  void evaluate_as(int rank, int ranks) {
    evaluator_ = rank;
    evaluators_ = ranks;
  }
  int evaluator() const { return evaluator_; }
  int evaluators() const { return evaluators_; }
  /// The next passes compute the samples of data rank `data_rank` and start no reductions.
  void compute_samples_of(int data_rank);
  /// Waits for sums of a shared vocabulary, if there is one.
  void finish();
  /// Starts the reductions postponed since compute_samples_of(), in the order of the passes.
  void start_reductions();

  std::int64_t step() const { return step_; }
  /// Sets the last step to the step of a checkpoint.
  void resume(std::int64_t step) { step_ = step; }
  /// Samples of a step's global batch, over all workers.
  std::int64_t batch_samples(std::int64_t step) const { return batches_.global(step); }
  /// Targets of a step's global batch that count in the loss, over all workers.
  std::int64_t batch_targets(std::int64_t step) const;
  /// Batch of the current training step.
  const data::Batch& batch() const { return batch_; }
  /// Time at which the input of the last instruction arrived.
  Clock::time_point began() const { return began_; }
  void has_begun() { began_ = Clock::now(); }

  void forward(const PlacedInstr& placed) override;
  void evaluate(const PlacedInstr& placed) override;
  void backward(const PlacedInstr& placed) override;
  void backward_input(const PlacedInstr& placed) override;
  void backward_weight(const PlacedInstr& placed) override;
  void shared_vocabulary(const PlacedInstr& placed) override;
  void send_activation(const PlacedInstr& placed) override;
  void receive_activation(const PlacedInstr& placed) override;
  void send_gradient(const PlacedInstr& placed) override;
  void receive_gradient(const PlacedInstr& placed) override;
  void begin_group() override;
  void end_group() override;
  void reduce_gradients(const PlacedInstr& placed) override;
  void reduce_tied(const PlacedInstr& placed) override;
  void gradient_norm(const PlacedInstr& placed) override;
  void optimizer_step(const PlacedInstr& placed) override;
  void begin_tied(const PlacedInstr& placed) override;
  void begin_norm(const PlacedInstr& placed) override;

  /// Results of overlapping steps.
  const StepRecords& records() const { return *records_; }

 private:
  /// Host copy of a slot's batch fields, in pinned memory on devices.
  struct HostSlot {
    StagingBuffer memory;
    std::vector<std::span<std::int32_t>> fields;  ///< by index in the objective
    Event copied;
  };

  /// Call when all gradients of a block are complete: sums the gradients of shared heads, unless
  /// the model shares layers, and calls GradientReducer::complete().
  void complete(std::int64_t step, Stage stage, std::int64_t block);
  void sum_shared_layers();
  /// Waits for the weights of the tables that a pass of a shared vocabulary reads.
  void read_tables(schedule::Op op);
  void finish_fp8();
  model::MicroContext context(Micro micro) const;
  /// The training step of a pass (this step or the next one), and the micro-batch's index in it.
  std::int64_t step_of_pass(Micro micro) const {
    return step_ + micro / data::micro_batches(batch_);
  }
  Micro micro_of(Micro micro) const {
    return static_cast<Micro>(micro % data::micro_batches(batch_));
  }
  /// The training step of an instruction of a whole step; may be the previous step.
  std::int64_t step_of(const PlacedInstr& placed) const { return step_ + placed.instr.micro; }
  void begin_passes(std::int64_t step);
  void begin_tied_sum(std::int64_t step);
  void begin_norm_sum(std::int64_t step);
  bool is_first(Stage stage) const { return stage == 0; }
  bool is_last(Stage stage) const { return stage == parts_.parameters.shard().last_stage(); }
  bool reads_samples(Stage stage) const {
    const bool first = is_first(stage), last = is_last(stage);
    return std::ranges::any_of(parts_.model->objective().fields, [&](const auto& field) {
      return field.is_read(first, last) && (field.at_layers || !vocabulary_);
    });
  }
  /// Index of a micro-batch among the groups of an evaluation, and number of samples in a group.
  std::int64_t group_of(Micro micro) const;
  std::int64_t samples_of(std::int64_t group) const;
  void read_samples(Micro micro, data::BatchFields fields);
  void reserve_scores();
  /// Writes the results of a group's requests to *results_.
  void take_scores(std::int64_t group);
  void mark_loss(std::int64_t step);
  /// Wait for the stage's input or output gradient, and move it to the memory that the stage reads.
  void take_input(const PlacedInstr& placed);
  void take_output_gradient(const PlacedInstr& placed);
  /// Number of counted targets in each worker's part of a step's batch.
  const std::vector<std::int64_t>& targets_of_workers(std::int64_t step) const;
  /// Number of counted targets in the current worker's part of a step's batch.
  std::int64_t worker_targets(std::int64_t step) const;
  /// Mean number of tokens that are not padding of the samples in the current worker's part of a
  /// step's batch; 0 if samples have no padding.
  double mean_tokens(std::int64_t step) const;
  /// Number of samples before the current worker's samples in a step's batch.
  std::int64_t first_of_worker() const { return worker_ * batch_.global; }
  HostSlot host_slot() const;
  /// Memory for reading samples: the slot's fields, or with a context axis fields of whole samples,
  /// of which take_own_fields copies this rank's part to the slot's fields.
  data::BatchFields whole_fields(const HostSlot& host) const;
  void take_own_fields(const HostSlot& host) const;
  /// The instruction's host slot. Waits for the previous copy from the slot.
  HostSlot& free_slot(const PlacedInstr& placed);
  /// Copies the fields that the stage reads from the host slot to the stage's slot.
  void upload(const PlacedInstr& placed);
  /// The function that a backward pass calls after each block. Also marks a loss that is not
  /// finite.
  typename model::RankModel<P>::BlockDone block_done(const PlacedInstr& placed);
  /// The part of block_done that starts reductions.
  typename model::RankModel<P>::BlockDone sums_done(const PlacedInstr& placed);

  const deck::Config& config_;
  EngineParts<P>& parts_;
  const deck::BatchSchedule batches_;
  data::Batch batch_;
  std::int64_t worker_ = 0;  ///< worker whose part of the global batch is computed
  int evaluator_ = 0;
  int evaluators_ = 1;
  int data_rank_ = 0;    ///< data rank whose samples are computed
  bool reduces_ = true;  ///< whether passes start reductions
  /// Completed blocks whose reductions have not started, while reduces_ is false.
  std::vector<std::pair<Stage, std::int64_t>> completed_;
  const kernels::Handle& handle_;
  typename model::RankModel<P>::Between between_;  ///< advances outstanding messages
  std::vector<HostSlot> host_slots_;
  /// With a context axis, fields of whole samples: memory, and views of it.
  std::vector<std::vector<std::int32_t>> samples_of_fields_;
  std::vector<std::span<std::int32_t>> whole_fields_;
  std::unique_ptr<data::BatchReader> reader_;
  std::optional<VocabularyPasses<P>> vocabulary_;  ///< if pipeline ranks share it
  bool evaluates_ = false;
  std::int64_t step_ = 0;
  const data::Samples* samples_ = nullptr;
  const data::Windows* windows_ = nullptr;
  const data::Requests* requests_ = nullptr;  ///< null: evaluations read windows
  std::vector<double>* results_ = nullptr;    ///< argument of begin_requests()
  std::optional<Arena> score_memory_;
  View2<double> all_scores_;  // [targets of a micro-batch, 2] in score_memory_
  View2<double> scores_;      // all_scores_ if requests are evaluated, otherwise empty
  std::vector<double> host_scores_;
  /// Number of counted targets by worker, for the latest steps, if not all targets count.
  mutable std::map<std::int64_t, std::vector<std::int64_t>> targets_of_step_;
  mutable std::map<std::int64_t, std::vector<double>> mean_tokens_of_step_;  ///< by worker
  double evaluated_tokens_ = 0;  ///< mean_tokens() of the evaluation
  const std::vector<std::int32_t>* bytes_of_token_ = nullptr;
  std::int64_t all_windows_ = 0;
  std::int64_t first_group_ = 0;
  Counted counted_;
  std::optional<StepRecords> records_;  ///< if steps overlap
  bool tied_has_begun_ = false;         ///< whether the sum that reduce_tied ends has begun
  bool norm_has_begun_ = false;
  grid::Request tied_sum_;
  grid::Request loss_sum_;
  int output_slot_ = 0;  ///< slot of the last forward pass, whose output is sent next
  Clock::time_point began_;
};

extern template class StepActions<model::Fp32>;
extern template class StepActions<model::Fp64>;
extern template class StepActions<model::MixedBf16>;
extern template class StepActions<model::MixedFp16>;

}  // namespace trireme::train
