// Each instruction of a program as calls of the rank's model, transfers, optimizer and gradient
// reduction.
#include <trireme/data/context_fields.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/step_actions.hpp>

#include <algorithm>

namespace trireme::train {
namespace {

/// Whether copies are asynchronous: a device's copies run on its stream.
constexpr bool copies_tokens = !exec_on_host;

}  // namespace

template <class P>
StepActions<P>::StepActions(const deck::Config& config, RankParts<P>& parts,
                            const kernels::Handle& handle)
    : config_(config),
      parts_(parts),
      batches_(config.batch),
      batch_{config.batch.global, config.batch.micro, parts.data.size()},
      handle_(handle),
      between_([this] { parts_.replicas.progress(); }),
      reader_(data::make_batch_reader(config)) {
  for (int slot = 0; slot < parts.slots; ++slot) host_slots_.push_back(host_slot());
  if (parts.context.size() == 1) return;
  for (const architecture::BatchField& field : parts.model->objective().fields)
    samples_of_fields_.emplace_back(
        static_cast<std::size_t>(config.batch.micro * field.per_sample));
  whole_fields_.assign(samples_of_fields_.begin(), samples_of_fields_.end());
}

template <class P>
typename StepActions<P>::HostSlot StepActions<P>::host_slot() const {
  const architecture::TrainingObjective& objective = parts_.model->objective();
  const architecture::LocalSizes& sizes = parts_.model->sizes();
  std::int64_t numbers = 0;
  for (const architecture::BatchField& field : objective.fields)
    numbers += rows_of(field.rows, sizes);
  HostSlot host;
  host.memory = StagingBuffer("train/batch_fields", static_cast<std::size_t>(numbers) * 4);
  auto* next = reinterpret_cast<std::int32_t*>(host.memory.data());
  for (const architecture::BatchField& field : objective.fields) {
    host.fields.emplace_back(next, static_cast<std::size_t>(rows_of(field.rows, sizes)));
    next += rows_of(field.rows, sizes);
  }
  return host;
}

template <class P>
data::BatchFields StepActions<P>::whole_fields(const HostSlot& host) const {
  return whole_fields_.empty() ? data::BatchFields(host.fields) : data::BatchFields(whole_fields_);
}

template <class P>
void StepActions<P>::take_own_fields(const HostSlot& host) const {
  if (whole_fields_.empty()) return;
  data::take_own_fields(parts_.model->objective(), parts_.parameters.shard(), parts_.model->sizes(),
                        config_.model.sequence, whole_fields_, host.fields);
}

template <class P>
typename StepActions<P>::HostSlot& StepActions<P>::free_slot(const Step& step) {
  HostSlot& host = host_slots_[static_cast<std::size_t>(step.slot)];
  if (copies_tokens) fence(host.copied, "train/forward reuses its token buffers");
  return host;
}

template <class P>
void StepActions<P>::begin_training(std::int64_t step, const data::Samples& samples) {
  step_ = step;
  batch_.global = batches_.global(step);
  samples_before_ = batches_.samples(step - 1);
  samples_ = &samples;
  data_rank_ = parts_.data.rank();
  reduces_ = true;
}

template <class P>
void StepActions<P>::compute_samples_of(int data_rank) {
  data_rank_ = data_rank;
  reduces_ = false;
  completed_.clear();
}

template <class P>
void StepActions<P>::start_reductions() {
  for (const auto& [stage, layer] : completed_) complete(stage, layer);
}

template <class P>
void StepActions<P>::complete(Stage stage, std::int64_t layer) {
  const Region region("reduce_layer");
  if (config_.model.shared_layers == 0) parts_.shared_gradients->sum(handle_, layer);
  parts_.reducer->complete(handle_, stage, layer);
}

template <class P>
void StepActions<P>::begin_evaluation(const data::Windows& file, std::int64_t windows,
                                      std::int64_t first_group,
                                      const std::vector<std::int32_t>& bytes_of_token) {
  if (first_group == 0) counted_ = {};
  windows_ = &file;
  all_windows_ = windows;
  first_group_ = first_group;
  bytes_of_token_ = &bytes_of_token;
}

template <class P>
model::MicroContext StepActions<P>::context(Micro micro) const {
  model::MicroContext c;
  c.seed = static_cast<std::uint64_t>(config_.run.seed);
  c.step = static_cast<std::uint32_t>(step_);
  c.first_sample = data::first_sample(batch_, micro, data_rank_);
  c.sequence = config_.model.sequence;
  c.dropout = config_.model.dropout;
  c.token_weight = 1.0 / static_cast<double>(batch_.global * config_.model.targets());
  c.notes_maxima = true;
  c.loss_scale = parts_.optimizer->loss_scale();
  return c;
}

template <class P>
void StepActions<P>::upload(const Step& step) {
  const Stage stage = step.instr.stage;
  HostSlot& host = host_slots_[static_cast<std::size_t>(step.slot)];
  const auto& fields = parts_.model->objective().fields;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].is_read(is_first(stage), is_last(stage)))
      copy_to_device<std::int32_t>(handle_, parts_.model->field(stage, step.slot, i),
                                   host.fields[i]);
  if (copies_tokens) host.copied.record(handle_);
}

template <class P>
void StepActions<P>::take_input(const Step& step) {
  const Stage stage = step.instr.stage;
  if (!is_first(stage))
    parts_.transfers->take_activation(handle_, stage, step.buffer,
                                      parts_.model->input(handle_, stage, step.slot));
  began_ = Clock::now();
}

template <class P>
void StepActions<P>::take_output_gradient(const Step& step) {
  const Stage stage = step.instr.stage;
  if (!is_last(stage))
    parts_.transfers->take_gradient(handle_, stage, step.buffer,
                                    parts_.model->dx(stage, step.slot));
  began_ = Clock::now();
}

template <class P>
void StepActions<P>::forward(const Step& step) {
  const Stage stage = step.instr.stage;
  if (reads_samples(stage)) {
    const Region region("read_samples");
    const std::int64_t first =
        samples_before_ + data::first_sample(batch_, step.instr.micro, data_rank_);
    const HostSlot& host = free_slot(step);
    reader_->read(*samples_, first, config_.batch.micro, whole_fields(host));
    take_own_fields(host);
    upload(step);
  }
  take_input(step);
  parts_.model->forward(handle_, stage, step.slot, context(step.instr.micro), between_);
}

template <class P>
void StepActions<P>::evaluate(const Step& step) {
  const Stage stage = step.instr.stage;
  const std::int64_t micro = config_.batch.micro;
  const std::int64_t group =
      (first_group_ + step.instr.micro) * parts_.data.size() + parts_.data.rank();
  const std::int64_t n = std::min(micro, all_windows_ - group * micro);
  if (reads_samples(stage)) {
    const Region region("read_samples");
    const HostSlot& host = free_slot(step);
    reader_->read(*windows_, group * micro, n, whole_fields(host));
    if (is_last(stage)) {
      counted_.samples += n;
      counted_.bytes += reader_->text_bytes(whole_fields(host), n, *bytes_of_token_);
    }
    take_own_fields(host);
    upload(step);
  }
  take_input(step);
  model::MicroContext plain;
  plain.sequence = config_.model.sequence;
  parts_.model->evaluate(handle_, stage, step.slot, plain, n, between_);
}

template <class P>
typename model::RankModel<P>::LayerDone StepActions<P>::layer_done(const Step& step) {
  if (step.instr.micro + 1 < data::micro_batches(batch_))
    return [this](std::int64_t) { parts_.replicas.progress(); };
  // At this point the losses of all micro-batches are known, and no gradient of this stage is in
  // flight.
  if (is_last(step.instr.stage)) {
    const View1<const double> of_tokens(parts_.model->losses().data(), 1);
    parts_.optimizer->mark_loss(handle_, of_tokens);
  }
  return [this, stage = step.instr.stage](std::int64_t layer) {
    if (reduces_) return complete(stage, layer);
    completed_.emplace_back(stage, layer);
    parts_.replicas.progress();
  };
}

template <class P>
void StepActions<P>::backward(const Step& step) {
  take_output_gradient(step);
  parts_.model->backward(handle_, step.instr.stage, step.slot, context(step.instr.micro),
                         layer_done(step));
}
template <class P>
void StepActions<P>::backward_input(const Step& step) {
  take_output_gradient(step);
  parts_.model->backward_input(handle_, step.instr.stage, step.slot, context(step.instr.micro),
                               between_);
}
template <class P>
void StepActions<P>::backward_weight(const Step& step) {
  parts_.model->backward_weight(handle_, step.instr.stage, step.slot, context(step.instr.micro),
                                layer_done(step));
}

template <class P>
void StepActions<P>::send_activation(const Step& step) {
  parts_.transfers->send_activation(handle_, step.instr.stage, step.buffer, parts_.model->output());
}
template <class P>
void StepActions<P>::receive_activation(const Step& step) {
  parts_.transfers->receive_activation(handle_, step.instr.stage, step.buffer);
}
template <class P>
void StepActions<P>::send_gradient(const Step& step) {
  parts_.transfers->send_gradient(handle_, step.instr.stage, step.buffer,
                                  parts_.model->dx(step.instr.stage, step.slot));
}
template <class P>
void StepActions<P>::receive_gradient(const Step& step) {
  parts_.transfers->receive_gradient(handle_, step.instr.stage, step.buffer);
}

template <class P>
void StepActions<P>::begin_group() {
  parts_.pipeline.begin_group();
}
template <class P>
void StepActions<P>::end_group() {
  parts_.pipeline.end_group(handle_);
}

template <class P>
void StepActions<P>::reduce_gradients(const Step& step) {
  parts_.reducer->finish(step.instr.stage);
  // Gradients of head norms cover this rank's heads only. With sequence parallelism, gradients of
  // norms, biases and positions cover this rank's tokens only.
  for (const bool partial : {false, true}) {
    const auto gradients = parts_.parameters.replicated_gradients(step.instr.stage, partial);
    if ((partial || parts_.axis.cuts_tokens()) && gradients.extent(0) > 0)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
  }
}
template <class P>
void StepActions<P>::reduce_tied(const Step&) {
  parts_.optimizer->combine_tied_gradients(handle_);
  if (parts_.embedding.size() > 1)
    parts_.embedding.template all_reduce<typename P::Gradient>(
        handle_, parts_.parameters.entry("embedding.token").gradient.data, grid::Reduction::sum,
        "gradient of the tied token table");
}
/// Sums the gradients of shared layers over the tensor ranks that share heads, the data axis, the
/// tensor axis and the pipeline.
template <class P>
void StepActions<P>::sum_shared_layers() {
  for (std::int64_t layer = 0; layer < config_.model.shared_layers; ++layer)
    parts_.shared_gradients->sum(handle_, layer);
  parts_.reducer->reduce_shared(handle_);
  for (const architecture::SharedPart& part : architecture::shared_parts(
           parts_.parameters.local_arrays(), parts_.parameters.placement())) {
    const View1<typename P::Gradient> gradients(
        parts_.parameters.all_gradients().data() + part.run.offset,
        static_cast<std::size_t>(part.run.extent));
    const bool over_tensor = part.partial_gradient || (!part.split && parts_.axis.cuts_tokens());
    if (over_tensor)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
    parts_.pipeline.template all_reduce<typename P::Gradient>(
        handle_, gradients, grid::Reduction::sum, "gradients of shared layers");
  }
}

template <class P>
void StepActions<P>::gradient_norm(const Step&) {
  if (config_.model.shared_layers > 0) sum_shared_layers();
  parts_.optimizer->find_norm(handle_);
}
template <class P>
void StepActions<P>::optimizer_step(const Step&) {
  parts_.optimizer->step(handle_, step_,
                         optim::learning_rate(config_.optimizer, step_, batch_.global));
  if (parts_.fp8) finish_fp8();
  if (!parts_.weight_gather) return;
  const Region region("gather_weights");
  parts_.weight_gather->run(handle_);
}

/// Maxima are exact, so that their order does not matter.
template <class P>
void StepActions<P>::finish_fp8() {
  const Region region("fp8_scales");
  for (grid::Communicator* ranks : {&parts_.replica, &parts_.replicas})
    ranks->template all_reduce<float>(handle_, parts_.fp8->maxima(), grid::Reduction::maximum,
                                      "maxima of fp8 tensors");
  parts_.fp8->finish_step(handle_, step_);
}

template class StepActions<model::Fp32>;
template class StepActions<model::Fp64>;
template class StepActions<model::MixedBf16>;
template class StepActions<model::MixedFp16>;

}  // namespace trireme::train
