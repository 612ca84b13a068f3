#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/data/requests.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/tensor/arena.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/rank_parts.hpp>
#include <trireme/train/step_records.hpp>
#include <trireme/train/vocabulary_passes.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trireme::train {

/// Parts of a training step: an audited step repeats the passes before its single update.
enum class StepPart : std::uint8_t {
  whole,
  passes,  ///< forward and backward passes with their messages, without sums over replicas
  update   ///< the rest of the step
};
constexpr bool belongs_to(StepPart part, schedule::Op op) {
  return part == StepPart::whole ||
         (part == StepPart::passes) == (op < schedule::Op::reduce_gradients);
}

/// Actions of each instruction of a program on a rank's stages.
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
  StepActions(const deck::Config& config, RankParts<P>& parts, const kernels::Handle& handle);
  StepActions(const StepActions&) = delete;
  StepActions& operator=(const StepActions&) = delete;

  /// Begins step `step` ≥ 1 on its global samples.
  void begin_training(std::int64_t step, const data::Samples& samples);
  /// Begins an evaluation: micro-batch m is group first_group + m of this data rank's groups of
  /// `micro` windows. `bytes_of_token`: bytes by id.
  void begin_evaluation(const data::Windows& file, std::int64_t windows, std::int64_t first_group,
                        const std::vector<std::int32_t>& bytes_of_token);
  /// Begins an evaluation of requests. On the ranks of the last stage, adds their results to
  /// `results`: two per scored request, Σ loss and the number of tokens that are not the most
  /// likely; otherwise the tokens that requests want.
  void begin_requests(const data::Requests& requests, std::int64_t first_group,
                      std::vector<double>& results);
  /// Device memory for the results of requests.
  Bytes score_bytes() const { return score_memory_ ? score_memory_->capacity() : 0; }
  const Counted& counted() const { return counted_; }
  /// With local training: the next steps train this worker.
  void train_worker(std::int64_t worker) { worker_ = worker; }
  std::int64_t worker() const { return worker_; }
  /// Sets the position of this rank among all ranks that share an evaluation.
  void evaluate_as(int rank, int ranks) {
    evaluator_ = rank;
    evaluators_ = ranks;
  }
  int evaluator() const { return evaluator_; }
  int evaluators() const { return evaluators_; }
  /// The next passes compute the samples of this data rank and start no reductions.
  void compute_samples_of(int data_rank);
  /// Waits for messages of a shared vocabulary.
  void finish();
  /// Starts the reductions that the last passes have not started, in their order.
  void start_reductions();

  std::int64_t step() const { return step_; }
  /// Continues after step `step`.
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

  void forward(const Step& step) override;
  void evaluate(const Step& step) override;
  void backward(const Step& step) override;
  void backward_input(const Step& step) override;
  void backward_weight(const Step& step) override;
  void shared_vocabulary(const Step& step) override;
  void send_activation(const Step& step) override;
  void receive_activation(const Step& step) override;
  void send_gradient(const Step& step) override;
  void receive_gradient(const Step& step) override;
  void begin_group() override;
  void end_group() override;
  void reduce_gradients(const Step& step) override;
  void reduce_tied(const Step& step) override;
  void gradient_norm(const Step& step) override;
  void optimizer_step(const Step& step) override;
  void begin_tied(const Step& step) override;
  void begin_norm(const Step& step) override;

  /// Results of overlapping steps.
  const StepRecords& records() const { return *records_; }

 private:
  /// Host copy of a slot's batch fields, in pinned memory on devices.
  struct HostSlot {
    StagingBuffer memory;
    std::vector<std::span<std::int32_t>> fields;  ///< by index in the objective
    Event copied;
  };

  /// Starts the reduction of a layer's gradients.
  void complete(std::int64_t step, Stage stage, std::int64_t layer);
  void sum_shared_layers();
  /// Prepares the tables that a pass of a shared vocabulary reads.
  void read_tables(schedule::Op op);
  void finish_fp8();
  model::MicroContext context(Micro micro) const;
  /// The training step of a pass, which may be the next step, and the micro-batch's index in it.
  std::int64_t step_of_pass(Micro micro) const {
    return step_ + micro / data::micro_batches(batch_);
  }
  Micro micro_of(Micro micro) const {
    return static_cast<Micro>(micro % data::micro_batches(batch_));
  }
  /// The training step that an instruction of a whole step ends, which may be the previous step.
  std::int64_t step_of(const Step& step) const { return step_ + step.instr.micro; }
  /// Called before the first pass of an overlapping step.
  void begin_passes(std::int64_t step);
  void begin_tied_sum(std::int64_t step);
  void begin_norm_sum(std::int64_t step);
  bool is_first(Stage stage) const { return stage == 0; }
  bool is_last(Stage stage) const { return stage == parts_.parameters.shard().last_stage(); }
  bool reads_samples(Stage stage) const {
    return config_.model.packs_documents() || (!vocabulary_ && (is_first(stage) || is_last(stage)));
  }
  /// Index among all ranks of an evaluation's micro-batch, and its number of samples.
  std::int64_t group_of(Micro micro) const;
  std::int64_t samples_of(std::int64_t group) const;
  void read_samples(Micro micro, data::BatchFields fields);
  void reserve_scores();
  /// Adds the results of a group's requests.
  void take_scores(std::int64_t group);
  void mark_loss(std::int64_t step);
  /// Moves the received input or gradient to the memory that the stage reads.
  void take_input(const Step& step);
  void take_output_gradient(const Step& step);
  /// Counted targets of each worker's part of a step's batch.
  const std::vector<std::int64_t>& targets_of_workers(std::int64_t step) const;
  /// Counted targets of the worker that is being trained.
  std::int64_t worker_targets(std::int64_t step) const;
  /// Number of samples before the current worker's samples in a step's batch.
  std::int64_t first_of_worker() const { return worker_ * batch_.global; }
  HostSlot host_slot() const;
  /// Memory for reading samples: the slot's fields, or with a context axis fields of whole samples,
  /// from which take_own_fields takes this rank's part.
  data::BatchFields whole_fields(const HostSlot& host) const;
  void take_own_fields(const HostSlot& host) const;
  /// The slot's host memory, after the previous copy from it has completed.
  HostSlot& free_slot(const Step& step);
  /// Copies the fields that the stage reads into its slot.
  void upload(const Step& step);
  /// Function that a backward pass calls after each layer; call this before the pass starts.
  typename model::RankModel<P>::LayerDone layer_done(const Step& step);
  /// The part of layer_done that starts reductions.
  typename model::RankModel<P>::LayerDone sums_done(const Step& step);

  const deck::Config& config_;
  RankParts<P>& parts_;
  const deck::BatchSchedule batches_;
  data::Batch batch_;
  std::int64_t worker_ = 0;  ///< worker whose part of the global batch is computed
  int evaluator_ = 0;
  int evaluators_ = 1;
  int data_rank_ = 0;                                      ///< data rank whose samples are computed
  bool reduces_ = true;                                    ///< whether its passes start reductions
  std::vector<std::pair<Stage, std::int64_t>> completed_;  ///< completed layers, if not reduces_
  const kernels::Handle& handle_;
  typename model::RankModel<P>::Between between_;  ///< advances outstanding messages
  std::vector<HostSlot> host_slots_;
  /// Fields of whole samples, with a context axis: memory and views of it.
  std::vector<std::vector<std::int32_t>> samples_of_fields_;
  std::vector<std::span<std::int32_t>> whole_fields_;
  std::unique_ptr<data::BatchReader> reader_;
  std::optional<VocabularyPasses<P>> vocabulary_;  ///< if pipeline ranks share it
  bool evaluates_ = false;
  std::int64_t step_ = 0;
  const data::Samples* samples_ = nullptr;
  const data::Windows* windows_ = nullptr;
  const data::Requests* requests_ = nullptr;  ///< null: an evaluation reads windows
  std::vector<double>* results_ = nullptr;    ///< argument of begin_requests()
  std::optional<Arena> score_memory_;
  View2<double> all_scores_;  // [T, 2] of a micro-batch, in score_memory_
  View2<double> scores_;      // all_scores_, or empty unless requests are evaluated
  std::vector<double> host_scores_;
  /// Counted targets of the latest steps by worker, if samples have a mask.
  mutable std::map<std::int64_t, std::vector<std::int64_t>> targets_of_step_;
  const std::vector<std::int32_t>* bytes_of_token_ = nullptr;
  std::int64_t all_windows_ = 0;
  std::int64_t first_group_ = 0;
  Counted counted_;
  std::optional<StepRecords> records_;  ///< if steps overlap
  bool tied_has_begun_ = false;         ///< the sum that reduce_tied ends has begun
  bool norm_has_begun_ = false;
  grid::Request tied_sum_;
  grid::Request loss_sum_;
  Clock::time_point began_;
};

extern template class StepActions<model::Fp32>;
extern template class StepActions<model::Fp64>;
extern template class StepActions<model::MixedBf16>;
extern template class StepActions<model::MixedFp16>;

}  // namespace trireme::train
