#include <trireme/base/check.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/train/load.hpp>
#include <trireme/train/typed_worker.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {
namespace {

/// Micro-batches of one evaluation program; longer evaluations run it again and again.
constexpr std::int64_t most_evaluated = 1024;

}  // namespace

template <class P>
TypedWorker<P>::TypedWorker(const deck::Config& config,
                            const architecture::Architecture& architecture, grid::Grid& grid,
                            const schedule::Program* program, Mode mode)
    : config_(config),
      architecture_(architecture),
      grid_(grid),
      data_(grid.communicator(Axis::data)),
      pipeline_(grid.communicator(Axis::pipeline)),
      tensor_(grid.communicator(Axis::tensor)),
      training_(mode == Mode::train),
      axis_(tensor_, config.batch.micro * config.model.sequence, config.parallel.sequence_parallel),
      parameters_(architecture,
                  architecture::make_shard(architecture, pipeline_.size(),
                                           static_cast<int>(config.parallel.chunks),
                                           pipeline_.rank(), tensor_.size(), tensor_.rank()),
                  training_) {
  schedule::ProgramLayout layout;
  layout.ranks = pipeline_.size();
  layout.chunks = static_cast<int>(config.parallel.chunks);
  timeline_.layout = training_ ? program->layout : layout;
  const auto rank = static_cast<std::size_t>(pipeline_.rank());
  const schedule::Needs needs =
      training_ ? plan::training_needs(*program)[rank] : plan::evaluation_needs(layout)[rank];
  const int slots = std::max(1, needs.slots);
  if (training_) {
    executor_.emplace(*program, pipeline_.rank());
    micro_batches_ = program->layout.micro_batches;
    optimizer_.emplace(config.optimizer, architecture, parameters_, grid.model());
    reducer_.emplace(data_, parameters_.all_gradients(),
                     parameters_.gradient_buckets(config.parallel.bucket_bytes));
  }
  model_.emplace(architecture, parameters_, axis_,
                 typename model::RankModel<P>::Shape{config.batch.micro, slots, training_,
                                                     needs.split_backward});
  transfers_.emplace(
      pipeline_, axis_, parameters_.shard(), config.model.hidden,
      typename Transfers<T>::Buffers{needs.received_activations, needs.received_gradients,
                                     needs.send_buffers, training_});
  const auto tokens = static_cast<std::size_t>(axis_.tokens());
  for (int slot = 0; slot < slots; ++slot)
    host_slots_.push_back({std::vector<std::int32_t>(tokens), std::vector<std::int32_t>(tokens)});
}

template <class P>
void TypedWorker<P>::initialise() {
  parameters_.initialise(exec_, static_cast<std::uint64_t>(config_.run.seed));
}

template <class P>
void TypedWorker<P>::run(const Executor& executor) {
  executor.run([&](const Step& step, std::size_t) {
    publish(step);
    train::run(*this, step);
  });
  transfers_->finish();
}

template <class P>
void TypedWorker<P>::publish(const Step& step) const {
  const schedule::Instr& i = step.instr;
  grid::Heartbeat::publish({schedule::name_of(i.op), step_, i.stage, i.micro});
}

template <class P>
void TypedWorker<P>::run_timed(const Executor& executor) {
  timeline_.events.clear();
  fence(exec_, "train/timed_step begins");
  grid_.world().barrier("the beginning of a timed step");
  const auto zero = Clock::now();
  const auto since_zero = [&](Clock::time_point t) {
    return std::chrono::duration<double>(t - zero).count();
  };
  executor.run([&](const Step& step, std::size_t position) {
    publish(step);
    began_ = Clock::now();
    train::run(*this, step);
    fence(exec_, "train/timed_step waits for each instruction");
    timeline_.events.push_back({pipeline_.rank(), static_cast<int>(position), step.instr,
                                since_zero(began_), since_zero(Clock::now())});
  });
  transfers_->finish();
}

template <class P>
void TypedWorker<P>::begin_step(std::int64_t step, const data::Samples& samples) {
  step_ = step;
  samples_ = &samples;
  model_->zero_loss(exec_);
  optimizer_->zero_gradients(exec_);
  reducer_->begin();
}

template <class P>
void TypedWorker<P>::train_step(std::int64_t step, const data::Samples& samples) {
  begin_step(step, samples);
  run(*executor_);
}

template <class P>
void TypedWorker<P>::timed_step(std::int64_t step, const data::Samples& samples) {
  begin_step(step, samples);
  run_timed(*executor_);
}

template <class P>
schedule::Timeline TypedWorker<P>::timeline() {
  schedule::Timeline whole{timeline_.layout, {}};
  if (data_.rank() > 0 || tensor_.rank() > 0) return whole;
  for (const std::string& part :
       pipeline_.gather(schedule::write_timeline(timeline_), 0, "timeline")) {
    const auto events = schedule::read_timeline(part, "timeline").events;
    whole.events.insert(whole.events.end(), events.begin(), events.end());
  }
  return whole;
}

template <class P>
template <class N>
N TypedWorker<P>::from_last_stage(N mine, const char* what) {
  N value = data_.all_reduce<N>(mine, grid::Reduction::sum, what);
  pipeline_.broadcast(std::as_writable_bytes(std::span<N>(&value, 1)), pipeline_.size() - 1, what);
  return value;
}

template <class P>
StepResult TypedWorker<P>::result() {
  std::array<double, 1> loss{};
  std::array<double, 1> norm{};
  copy_to_host<double>(exec_, loss, model_->loss(), "train/result reads the loss");
  copy_to_host<double>(exec_, norm, optimizer_->gradient_norm(),
                       "train/result reads the gradient norm");
  const double sum = from_last_stage(loss[0], "loss");
  return {sum / static_cast<double>(config_.batch.global * config_.model.sequence), norm[0]};
}

template <class P>
Evaluation TypedWorker<P>::evaluate(const data::Windows& file, std::int64_t windows,
                                    const std::vector<std::int32_t>& bytes_of_token) {
  const std::int64_t micro = config_.batch.micro;
  const std::int64_t groups = (windows + micro - 1) / micro;
  // Groups of `micro` windows in turn; which rank takes a group does not change its sum.
  const std::int64_t mine = (groups - data_.rank() + data_.size() - 1) / data_.size();
  model_->zero_loss(exec_);
  evaluating_ = {&file, windows, &bytes_of_token, 0, 0};
  for (std::int64_t done = 0; done < mine; done += most_evaluated) {
    step_ = done;
    const std::int64_t count = std::min(most_evaluated, mine - done);
    run(Executor(plan::evaluation_program(timeline_.layout, static_cast<int>(count)),
                 pipeline_.rank()));
  }
  std::array<double, 1> nats{};
  copy_to_host<double>(exec_, nats, model_->loss(), "train/evaluate reads the loss");
  const double sum = from_last_stage(nats[0], "evaluation loss");
  const std::int64_t tokens = from_last_stage(evaluating_.tokens, "evaluation counts");
  return {sum, tokens, from_last_stage(evaluating_.bytes, "evaluation counts")};
}

template <class P>
std::vector<HostArray> TypedWorker<P>::save() {
  std::vector<HostArray> arrays;
  if (data_.rank() > 0) return arrays;
  const auto gather = [&](const std::string& name, DType dtype, const auto& find) {
    for (std::size_t number = 0; number < architecture_.arrays.size(); ++number) {
      const architecture::ArraySpec& spec = architecture_.arrays[number];
      HostArray whole{name + spec.name, dtype, spec.shape, {}};
      HostSlice slice;
      for (std::size_t i = 0; i < parameters_.entries().size(); ++i) {
        const auto& local = parameters_.entries()[i].local;
        const bool held = local.number == number && !local.copy;
        if (held && (local.split || tensor_.rank() == 0)) slice = to_host_slice(exec_, find(i));
      }
      gather_slices(grid_.model(), whole, slice);
      if (grid_.model().rank() == 0) arrays.push_back(std::move(whole));
    }
  };
  gather("", dtype_of<T>, [&](std::size_t i) { return parameters_.entries()[i].weight; });
  if (!training_) return arrays;
  const auto state = optimizer_->state();
  const DType master = dtype_of<typename P::Master>;
  gather("optimizer.first_moment.", master, [&](std::size_t i) { return state[2 * i]; });
  gather("optimizer.second_moment.", master, [&](std::size_t i) { return state[2 * i + 1]; });
  return arrays;
}

template <class P>
void TypedWorker<P>::load(const checkpoint::Reader& reader) {
  load_weights(exec_, reader, architecture_, parameters_);
  if (training_)
    for (const auto& tensor : optimizer_->state()) load_array(exec_, reader, tensor);
}

template <class P>
std::vector<plan::MemoryRow> TypedWorker<P>::memory() const {
  std::vector<plan::MemoryRow> rows{{"weights", parameters_.weight_bytes()}};
  if (training_) {
    rows.push_back({"gradients", parameters_.gradient_bytes()});
    rows.push_back({"optimizer state", optimizer_->state_bytes()});
  }
  rows.push_back({"saved activations", model_->saved_bytes()});
  rows.push_back({"transfer buffers", transfers_->bytes()});
  rows.push_back({"scratch", model_->scratch_bytes()});
  return rows;
}

template <class P>
double TypedWorker<P>::measure_peak() {
  return kernels::measure_matmul_peak(exec_, config_.precision.compute);
}

template <class P>
std::string TypedWorker<P>::description() const {
  const DType type = config_.precision.compute;
  return text(name_of(type), " products by ", kernels::matmul_backend_name(type));
}

template <class P>
model::MicroContext TypedWorker<P>::context(Micro micro) const {
  model::MicroContext c;
  c.seed = static_cast<std::uint64_t>(config_.run.seed);
  c.step = static_cast<std::uint32_t>(step_);
  c.first_sample = data::first_sample(batch(), 0, micro, data_.rank());  // within the global batch
  c.sequence = config_.model.sequence;
  c.dropout = config_.model.dropout;
  c.loss_scale = 1.0 / static_cast<double>(config_.batch.global * config_.model.sequence);
  return c;
}

// ---- What each instruction does

template <class P>
void TypedWorker<P>::upload(const Step& step) {
  const Stage stage = step.instr.stage;
  const HostSlot& host = host_slots_[static_cast<std::size_t>(step.slot)];
  if (is_first(stage))
    copy_to_device<std::int32_t>(exec_, model_->tokens(stage, step.slot), host.tokens);
  if (is_last(stage))
    copy_to_device<std::int32_t>(exec_, model_->targets(stage, step.slot), host.targets);
}

template <class P>
void TypedWorker<P>::take_input(const Step& step) {
  const Stage stage = step.instr.stage;
  if (!is_first(stage))
    transfers_->take_activation(exec_, step.buffer, model_->input(stage, step.slot));
  began_ = Clock::now();
}

template <class P>
void TypedWorker<P>::take_output_gradient(const Step& step) {
  const Stage stage = step.instr.stage;
  if (!is_last(stage)) transfers_->take_gradient(exec_, step.buffer, model_->dx(stage, step.slot));
  began_ = Clock::now();
}

template <class P>
void TypedWorker<P>::forward(const Step& step) {
  const Stage stage = step.instr.stage;
  if (is_first(stage) || is_last(stage)) {
    HostSlot& host = host_slots_[static_cast<std::size_t>(step.slot)];
    const std::int64_t first =
        data::first_sample(batch(), step_ - 1, step.instr.micro, data_.rank());
    samples_->read(first, config_.batch.micro, host.tokens, host.targets);
    upload(step);
  }
  take_input(step);
  model_->forward(exec_, stage, step.slot, context(step.instr.micro));
  data_.progress();
}

template <class P>
void TypedWorker<P>::evaluate(const Step& step) {
  const Stage stage = step.instr.stage;
  const std::int64_t micro = config_.batch.micro;
  const std::int64_t group = (step_ + step.instr.micro) * data_.size() + data_.rank();
  const std::int64_t n = std::min(micro, evaluating_.windows - group * micro);
  if (is_first(stage) || is_last(stage)) {
    HostSlot& host = host_slots_[static_cast<std::size_t>(step.slot)];
    const std::size_t tokens = static_cast<std::size_t>(n * config_.model.sequence);
    fence(exec_, "train/evaluate reuses its token buffers");
    evaluating_.file->read(group * micro, n, std::span(host.tokens).first(tokens),
                           std::span(host.targets).first(tokens));
    upload(step);
    if (is_last(stage)) {
      evaluating_.tokens += static_cast<std::int64_t>(tokens);
      for (std::size_t t = 0; t < tokens; ++t)
        evaluating_.bytes +=
            (*evaluating_.bytes_of_token)[static_cast<std::size_t>(host.targets[t])];
    }
  }
  take_input(step);
  model::MicroContext plain;
  plain.sequence = config_.model.sequence;
  model_->evaluate(exec_, stage, step.slot, plain, n);
  data_.progress();
}

template <class P>
typename model::RankModel<P>::LayerDone TypedWorker<P>::layer_done(const Step& step) {
  if (step.instr.micro + 1 < micro_batches_) return [this](std::int64_t) { data_.progress(); };
  return [this, stage = step.instr.stage](std::int64_t layer) {
    reducer_->complete(exec_, stage, layer);
  };
}

template <class P>
void TypedWorker<P>::backward(const Step& step) {
  take_output_gradient(step);
  model_->backward(exec_, step.instr.stage, step.slot, context(step.instr.micro), layer_done(step));
}
template <class P>
void TypedWorker<P>::backward_input(const Step& step) {
  take_output_gradient(step);
  model_->backward_input(exec_, step.instr.stage, step.slot, context(step.instr.micro));
}
template <class P>
void TypedWorker<P>::backward_weight(const Step& step) {
  model_->backward_weight(exec_, step.instr.stage, step.slot, context(step.instr.micro),
                          layer_done(step));
}

template <class P>
void TypedWorker<P>::send_activation(const Step& step) {
  transfers_->send_activation(exec_, step.instr.stage, model_->output());
}
template <class P>
void TypedWorker<P>::receive_activation(const Step& step) {
  transfers_->receive_activation(exec_, step.instr.stage, step.buffer);
}
template <class P>
void TypedWorker<P>::send_gradient(const Step& step) {
  transfers_->send_gradient(exec_, step.instr.stage, model_->dx(step.instr.stage, step.slot));
}
template <class P>
void TypedWorker<P>::receive_gradient(const Step& step) {
  transfers_->receive_gradient(exec_, step.instr.stage, step.buffer);
}

template <class P>
void TypedWorker<P>::reduce_gradients(const Step& step) {
  reducer_->finish(step.instr.stage);
  // Norms, biases and positions saw this rank's tokens only.
  if (axis_.cuts_tokens())
    tensor_.all_reduce<typename P::Gradient>(
        exec_, parameters_.replicated_gradients(step.instr.stage), grid::Reduction::sum,
        "gradients of replicated arrays");
}
template <class P>
void TypedWorker<P>::reduce_tied(const Step&) {
  optimizer_->combine_tied_gradients(exec_);
  if (grid_.embedding().size() > 1)
    grid_.embedding().template all_reduce<typename P::Gradient>(
        exec_, parameters_.entry("embedding.token").gradient.data, grid::Reduction::sum,
        "gradient of the tied token table");
}
template <class P>
void TypedWorker<P>::gradient_norm(const Step&) {
  optimizer_->find_norm(exec_);
}
template <class P>
void TypedWorker<P>::optimizer_step(const Step&) {
  optimizer_->step(exec_, step_, optim::learning_rate(config_.optimizer, step_));
}

template class TypedWorker<model::Fp32>;
template class TypedWorker<model::Fp64>;

}  // namespace trireme::train
