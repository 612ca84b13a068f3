#pragma once

#include <trireme/base/clock.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/data/batch_reader.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/rank_parts.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace trireme::train {

/// Parts of a training step: an audited step repeats the passes before its one update.
enum class StepPart : std::uint8_t {
  whole,
  passes,  ///< forward and backward passes with their messages, without sums over replicas
  update   ///< the rest
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
    std::int64_t bytes = 0;  ///< bytes of text in predicted tokens
  };

  /// Arguments must outlive this.
  StepActions(const deck::Config& config, RankParts<P>& parts, const kernels::Handle& handle);
  StepActions(const StepActions&) = delete;
  StepActions& operator=(const StepActions&) = delete;

  /// Begins step `step` ≥ 1 on its global samples.
  void begin_training(std::int64_t step, const data::Samples& samples);
  /// Begins an evaluation: micro-batch m takes group first_group + m of this data rank's groups of
  /// `micro` windows. `bytes_of_token` per id.
  void begin_evaluation(const data::Windows& file, std::int64_t windows, std::int64_t first_group,
                        const std::vector<std::int32_t>& bytes_of_token);
  const Counted& counted() const { return counted_; }
  /// The next passes compute the samples of this data rank, and start no reductions.
  void compute_samples_of(int data_rank);
  /// Starts the reductions that the last passes have not started, in their order.
  void start_reductions();

  std::int64_t step() const { return step_; }
  /// Number of the current training step.
  const data::Batch& batch() const { return batch_; }
  /// Time at which the input of the last instruction had arrived.
  Clock::time_point began() const { return began_; }
  void has_begun() { began_ = Clock::now(); }

  void forward(const Step& step) override;
  void evaluate(const Step& step) override;
  void backward(const Step& step) override;
  void backward_input(const Step& step) override;
  void backward_weight(const Step& step) override;
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

 private:
  /// Host copy of a slot's batch fields, in pinned memory on devices.
  struct HostSlot {
    StagingBuffer memory;
    std::vector<std::span<std::int32_t>> fields;  ///< by their number in the objective
    Event copied;
  };

  /// Starts the reduction of a layer's gradients.
  void complete(Stage stage, std::int64_t layer);
  void sum_shared_layers();
  void finish_fp8();
  model::MicroContext context(Micro micro) const;
  bool is_first(Stage stage) const { return stage == 0; }
  bool is_last(Stage stage) const { return stage == parts_.parameters.shard().last_stage(); }
  bool reads_samples(Stage stage) const { return is_first(stage) || is_last(stage); }
  /// Moves the received input or gradient to the memory that the stage reads.
  void take_input(const Step& step);
  void take_output_gradient(const Step& step);
  HostSlot host_slot() const;
  /// Where samples are read: the slot's fields, or with a context axis those of whole samples, of
  /// which take_own_fields takes this rank's.
  data::BatchFields whole_fields(const HostSlot& host) const;
  void take_own_fields(const HostSlot& host) const;
  /// The slot's host memory, after the previous copy from it has completed.
  HostSlot& free_slot(const Step& step);
  /// Copies the fields that the stage reads into its slot.
  void upload(const Step& step);
  /// Function that a backward pass calls after each layer; to be made before the pass starts.
  typename model::RankModel<P>::LayerDone layer_done(const Step& step);

  const deck::Config& config_;
  RankParts<P>& parts_;
  const deck::BatchSchedule batches_;
  data::Batch batch_;
  std::int64_t samples_before_ = 0;                        ///< the step
  int data_rank_ = 0;                                      ///< whose samples are computed
  bool reduces_ = true;                                    ///< while it computes them
  std::vector<std::pair<Stage, std::int64_t>> completed_;  ///< layers, if it does not
  const kernels::Handle& handle_;
  typename model::RankModel<P>::Between between_;  ///< moves messages under way
  std::vector<HostSlot> host_slots_;
  /// Fields of whole samples, with a context axis: memory and views of it.
  std::vector<std::vector<std::int32_t>> samples_of_fields_;
  std::vector<std::span<std::int32_t>> whole_fields_;
  std::unique_ptr<data::BatchReader> reader_;
  std::int64_t step_ = 0;
  const data::Samples* samples_ = nullptr;
  const data::Windows* windows_ = nullptr;
  const std::vector<std::int32_t>* bytes_of_token_ = nullptr;
  std::int64_t all_windows_ = 0;
  std::int64_t first_group_ = 0;
  Counted counted_;
  Clock::time_point began_;
};

extern template class StepActions<model::Fp32>;
extern template class StepActions<model::Fp64>;
extern template class StepActions<model::MixedBf16>;
extern template class StepActions<model::MixedFp16>;

}  // namespace trireme::train
