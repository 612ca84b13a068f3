#pragma once

#include <trireme/data/batch.hpp>
#include <trireme/model/rank_model.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/transfers.hpp>
#include <trireme/train/worker.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace trireme::train {

/// The worker for one choice of number types: the rank's stages, and what each instruction of a
/// program does with them.
template <class P>
class TypedWorker final : public Worker, private Actions {
 public:
  using T = typename P::Compute;

  TypedWorker(const deck::Config& config, const architecture::Architecture& architecture,
              grid::Grid& grid, const schedule::Program* program, Mode mode);

  void initialise() override;
  void train_step(std::int64_t step, const data::Samples& samples) override;
  void timed_step(std::int64_t step, const data::Samples& samples) override;
  schedule::Timeline timeline() override;
  StepResult result() override;
  Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                      const std::vector<std::int32_t>& bytes_of_token) override;
  std::vector<HostArray> save() override;
  void load(const checkpoint::Reader& reader) override;
  std::vector<plan::MemoryRow> memory() const override;
  double measure_peak() override;
  std::string description() const override;

 private:
  struct HostSlot {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };
  /// What an evaluation reads and counts.
  struct Evaluating {
    const data::Windows* file = nullptr;
    std::int64_t windows = 0;
    const std::vector<std::int32_t>* bytes_of_token = nullptr;
    std::int64_t tokens = 0;
    std::int64_t bytes = 0;
  };

  void forward(const Step& step) override;
  void evaluate(const Step& step) override;
  void backward(const Step& step) override;
  void backward_input(const Step& step) override;
  void backward_weight(const Step& step) override;
  void send_activation(const Step& step) override;
  void receive_activation(const Step& step) override;
  void send_gradient(const Step& step) override;
  void receive_gradient(const Step& step) override;
  void reduce_gradients(const Step& step) override;
  void reduce_tied(const Step& step) override;
  void gradient_norm(const Step& step) override;
  void optimizer_step(const Step& step) override;

  using Clock = std::chrono::steady_clock;

  void begin_step(std::int64_t step, const data::Samples& samples);
  void run(const Executor& executor);
  void publish(const Step& step) const;  ///< to the watchdog
  void run_timed(const Executor& executor);
  data::Batch batch() const { return {config_.batch.global, config_.batch.micro, data_.size()}; }
  model::MicroContext context(Micro micro) const;
  bool is_first(Stage stage) const { return stage == 0; }
  bool is_last(Stage stage) const { return stage == parameters_.shard().last_stage(); }
  /// Makes the stage's input: tokens and targets of the micro-batch, or what has arrived.
  void take_input(const Step& step);
  void take_output_gradient(const Step& step);
  void upload(const Step& step);
  typename model::RankModel<P>::LayerDone layer_done(const Step& step);
  /// A sum over the data axis of what the last stage knows, on every rank.
  template <class N>
  N from_last_stage(N mine, const char* what);

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Grid& grid_;
  grid::Communicator& data_;
  grid::Communicator& pipeline_;
  grid::Communicator& tensor_;
  bool training_;
  Exec exec_;
  model::TensorAxis axis_;
  model::Parameters<P> parameters_;
  std::optional<Executor> executor_;
  std::optional<model::RankModel<P>> model_;
  std::optional<Transfers<T>> transfers_;
  std::optional<optim::Optimizer<P>> optimizer_;
  std::optional<optim::GradientReducer<typename P::Gradient>> reducer_;
  std::vector<HostSlot> host_slots_;
  const data::Samples* samples_ = nullptr;
  Evaluating evaluating_;
  std::int64_t step_ = 0;
  int micro_batches_ = 1;
  schedule::Timeline timeline_;
  Clock::time_point began_;  ///< the instruction that runs: its input has arrived
};

extern template class TypedWorker<model::Fp32>;
extern template class TypedWorker<model::Fp64>;

}  // namespace trireme::train
