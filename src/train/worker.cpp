#include <trireme/base/check.hpp>
#include <trireme/data/batch.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/model/stage.hpp>
#include <trireme/optim/gradient_reducer.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/train/executor.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/worker.hpp>

#include <array>
#include <cmath>
#include <numbers>
#include <optional>

namespace trireme::train {

double Evaluation::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

namespace {

template <class T>
HostArray to_host_array(const Exec& exec, const NamedTensor<T>& tensor) {
  HostArray array{tensor.name, dtype_of<T>, tensor.shape,
                  std::vector<std::byte>(static_cast<std::size_t>(tensor.elements()) * sizeof(T))};
  const std::span<T> values(reinterpret_cast<T*>(array.bytes.data()),
                            static_cast<std::size_t>(tensor.elements()));
  copy_to_host<T>(exec, values, tensor.data, "train/save copies an array to the host");
  return array;
}

/// One rank of data parallelism with the whole model.
template <class P>
class TypedWorker final : public Worker, private Actions {
 public:
  using Stage = model::Stage<P>;

  TypedWorker(const deck::Config& config, const architecture::Architecture& architecture,
              grid::Grid& grid, const schedule::Program* program, Mode mode)
      : config_(config),
        architecture_(architecture),
        data_(grid.communicator(Axis::data)),
        training_(mode == Mode::train),
        parameters_(architecture, training_) {
    int slots = 1;
    if (training_) {
      executor_.emplace(*program, grid.coordinates().pipeline);
      slots = executor_->slots();
      micro_batches_ = program->layout.micro_batches;
      optimizer_.emplace(config.optimizer, parameters_);
      reducer_.emplace(data_, parameters_.all_gradients(), config.parallel.bucket_bytes);
    }
    stage_.emplace(architecture, parameters_,
                   typename Stage::Shape{config.batch.micro, slots, training_, false});
    const auto tokens = static_cast<std::size_t>(config.batch.micro * config.model.sequence);
    for (int slot = 0; slot < slots; ++slot)
      host_slots_.push_back({std::vector<std::int32_t>(tokens), std::vector<std::int32_t>(tokens)});
  }

  void initialise() override {
    parameters_.initialise(exec_, static_cast<std::uint64_t>(config_.run.seed));
  }

  void train_step(std::int64_t step, const data::Samples& samples) override {
    step_ = step;
    samples_ = &samples;
    stage_->zero_loss(exec_);
    optimizer_->zero_gradients(exec_);
    reducer_->begin();
    executor_->run(*this);
  }

  StepResult result() override {
    std::array<double, 1> loss{};
    std::array<double, 1> norm{};
    copy_to_host<double>(exec_, loss, stage_->loss(), "train/result reads the loss");
    copy_to_host<double>(exec_, norm, optimizer_->gradient_norm(),
                         "train/result reads the gradient norm");
    const double sum = data_.all_reduce<double>(loss[0], grid::Reduction::sum, "loss");
    return {sum / static_cast<double>(config_.batch.global * config_.model.sequence), norm[0]};
  }

  Evaluation evaluate(const data::Windows& file, std::int64_t windows,
                      const std::vector<std::int32_t>& bytes_of_token) override;

  std::vector<HostArray> save() override {
    std::vector<HostArray> arrays;
    for (const auto& entry : parameters_.entries())
      arrays.push_back(to_host_array(exec_, entry.weight));
    if (training_)
      for (const auto& tensor : optimizer_->state()) arrays.push_back(to_host_array(exec_, tensor));
    return arrays;
  }

  void load(const checkpoint::Reader& reader) override {
    load_weights(exec_, reader, parameters_);
    if (training_)
      for (const auto& tensor : optimizer_->state()) load_array(exec_, reader, tensor);
  }

  std::vector<plan::MemoryRow> memory() const override {
    std::vector<plan::MemoryRow> rows{{"weights", parameters_.weight_bytes()}};
    if (training_) {
      rows.push_back({"gradients", parameters_.gradient_bytes()});
      rows.push_back({"optimizer state", optimizer_->state_bytes()});
    }
    rows.push_back({"saved activations", stage_->saved_bytes()});
    rows.push_back({"scratch", stage_->scratch_bytes()});
    return rows;
  }

  double measure_peak() override {
    return kernels::measure_matmul_peak(exec_, config_.precision.compute);
  }

  std::string description() const override {
    const DType type = config_.precision.compute;
    return text(name_of(type), " products by ", kernels::matmul_backend_name(type));
  }

 private:
  struct HostSlot {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
  };

  data::Batch batch() const { return {config_.batch.global, config_.batch.micro, data_.size()}; }

  model::MicroContext context(Micro micro) const {
    model::MicroContext c;
    c.seed = static_cast<std::uint64_t>(config_.run.seed);
    c.step = static_cast<std::uint32_t>(step_);
    c.first_sample =
        data::first_sample(batch(), 0, micro, data_.rank());  // within the global batch
    c.sequence = config_.model.sequence;
    c.dropout = config_.model.dropout;
    c.loss_scale = 1.0 / static_cast<double>(config_.batch.global * config_.model.sequence);
    return c;
  }

  void upload(int slot) {
    const HostSlot& host = host_slots_[static_cast<std::size_t>(slot)];
    copy_to_device<std::int32_t>(exec_, stage_->tokens(slot), host.tokens);
    copy_to_device<std::int32_t>(exec_, stage_->targets(slot), host.targets);
  }

  typename Stage::LayerDone layer_done(Micro micro) {
    if (micro + 1 < micro_batches_) return [this](std::int64_t) { data_.progress(); };
    return [this](std::int64_t layer) {
      reducer_->complete_from(exec_, parameters_.first_element_of_layer(layer));
    };
  }

  // ---- Actions
  void forward(schedule::Instr instr, int slot) override {
    HostSlot& host = host_slots_[static_cast<std::size_t>(slot)];
    const std::int64_t first = data::first_sample(batch(), step_ - 1, instr.micro, data_.rank());
    samples_->read(first, config_.batch.micro, host.tokens, host.targets);
    upload(slot);
    stage_->forward(exec_, slot, context(instr.micro));
  }
  void backward(schedule::Instr instr, int slot) override {
    stage_->backward(exec_, slot, context(instr.micro), layer_done(instr.micro));
  }
  void backward_input(schedule::Instr instr, int slot) override {
    stage_->backward_input(exec_, slot, context(instr.micro));
  }
  void backward_weight(schedule::Instr instr, int slot) override {
    stage_->backward_weight(exec_, slot, context(instr.micro), layer_done(instr.micro));
  }
  void reduce_gradients(schedule::Instr) override {
    reducer_->finish();
    optimizer_->combine_tied_gradients(exec_);
  }
  void optimizer_step(schedule::Instr) override {
    optimizer_->step(exec_, step_, optim::learning_rate(config_.optimizer, step_));
  }

  const deck::Config& config_;
  const architecture::Architecture& architecture_;
  grid::Communicator& data_;
  bool training_;
  Exec exec_;
  model::Parameters<P> parameters_;
  std::optional<Stage> stage_;
  std::optional<Executor> executor_;
  std::optional<optim::Optimizer<P>> optimizer_;
  std::optional<optim::GradientReducer<typename P::Gradient>> reducer_;
  std::vector<HostSlot> host_slots_;
  const data::Samples* samples_ = nullptr;
  std::int64_t step_ = 0;
  int micro_batches_ = 1;
};

template <class P>
Evaluation TypedWorker<P>::evaluate(const data::Windows& file, std::int64_t windows,
                                    const std::vector<std::int32_t>& bytes_of_token) {
  const std::int64_t micro = config_.batch.micro;
  const auto sequence = static_cast<std::size_t>(config_.model.sequence);
  HostSlot& host = host_slots_.front();
  model::MicroContext plain;
  plain.sequence = config_.model.sequence;
  std::array<std::int64_t, 2> counted{};  // tokens, bytes
  stage_->zero_loss(exec_);
  // Groups of `micro` windows in turn; which rank takes a group does not change its sum.
  for (std::int64_t first = data_.rank() * micro; first < windows; first += data_.size() * micro) {
    const std::int64_t n = std::min(micro, windows - first);
    const std::size_t tokens = static_cast<std::size_t>(n) * sequence;
    fence(exec_, "train/evaluate reuses its token buffers");
    file.read(first, n, std::span(host.tokens).first(tokens),
              std::span(host.targets).first(tokens));
    upload(0);
    stage_->evaluate(exec_, 0, plain, n);
    counted[0] += static_cast<std::int64_t>(tokens);
    for (std::size_t t = 0; t < tokens; ++t)
      counted[1] += bytes_of_token[static_cast<std::size_t>(host.targets[t])];
    data_.progress();
  }
  std::array<double, 1> nats{};
  copy_to_host<double>(exec_, nats, stage_->loss(), "train/evaluate reads the loss");
  data_.all_reduce<double>(std::span<double>(nats), grid::Reduction::sum, "evaluation loss");
  data_.all_reduce<std::int64_t>(std::span<std::int64_t>(counted), grid::Reduction::sum,
                                 "evaluation counts");
  return {nats[0], counted[0], counted[1]};
}

}  // namespace

std::unique_ptr<Worker> make_worker(const deck::Config& config,
                                    const architecture::Architecture& architecture,
                                    grid::Grid& grid, const schedule::Program* program, Mode mode) {
  check((program != nullptr) == (mode == Mode::train),
        "a training worker needs a program, no other does");
  if (config.precision.compute == DType::fp64)
    return std::make_unique<TypedWorker<model::Fp64>>(config, architecture, grid, program, mode);
  check(config.precision.compute == DType::fp32,
        "[precision] compute = ", name_of(config.precision.compute));
  return std::make_unique<TypedWorker<model::Fp32>>(config, architecture, grid, program, mode);
}

}  // namespace trireme::train
