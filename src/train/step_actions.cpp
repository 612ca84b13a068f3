// Executes instructions by calls of the rank's model, transfers, optimizer and gradient reduction.
#include <trireme/train/step_actions.hpp>

#include <trireme/data/batch_reader.hpp>
#include <trireme/data/samples.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::train {
namespace {

/// Whether copies are asynchronous: a device's copies run on its stream.
constexpr bool copies_tokens = !exec_on_host;

}  // namespace

template <class P>
StepActions<P>::StepActions(const deck::Config& config, EngineParts<P>& parts,
                            const kernels::Handle& handle)
    : config_(config),
      parts_(parts),
      batches_(config.batch),
      batch_{config.batch.global / config.parallel.workers, config.batch.micro, parts.data.size()},
      evaluator_(parts.data.rank()),
      evaluators_(parts.data.size()),
      handle_(handle),
      between_([this] {
        parts_.replicas.progress();
        if (!parts_.other_version) return;
        // sums of the previous step: the gradient of the tied table, the losses and the norm
        parts_.embedding.progress();
        parts_.model_group.progress();
      }),
      reader_(data::make_batch_reader(config)) {
  for (int slot = 0; slot < parts.slots; ++slot) host_slots_.push_back(host_slot());
  if (parts.optimizer && !config.run.prompts.empty()) reserve_scores();
  if (parts.other_version) records_.emplace(parts.model->objective().loss_sums());
  if (parts.vocabulary)
    vocabulary_.emplace(parts, handle, [this](Micro micro, data::BatchFields fields) {
      read_samples(micro, fields);
    });
  if (parts.context.size() == 1) return;
  for (const architecture::BatchField& field : parts.model->objective().fields)
    samples_of_fields_.emplace_back(
        static_cast<std::size_t>(config.batch.micro * field.per_sample));
  whole_fields_.assign(samples_of_fields_.begin(), samples_of_fields_.end());
}

template <class P>
typename StepActions<P>::HostSlot StepActions<P>::host_slot() const {
  const architecture::TrainingObjective& objective = parts_.model->objective();
  const architecture::RankSizes& sizes = parts_.model->sizes();
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
typename StepActions<P>::HostSlot& StepActions<P>::free_slot(const PlacedInstr& placed) {
  HostSlot& host = host_slots_[static_cast<std::size_t>(placed.slot)];
  if (copies_tokens) fence(host.copied, "train/forward reuses its token buffers");
  return host;
}

template <class P>
void StepActions<P>::begin_training(std::int64_t step, const data::Samples& samples) {
  step_ = step;
  batch_.global = batches_.global(step) / config_.parallel.workers;
  samples_ = &samples;
  evaluates_ = false;
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
  for (const auto& [stage, block] : completed_) complete(step_, stage, block);
}

template <class P>
void StepActions<P>::complete(std::int64_t step, Stage stage, std::int64_t block) {
  const Region region("reduce_layer");
  if (config_.model.shared_layers == 0) parts_.shared_gradients_of(step).sum(handle_, block);
  parts_.reducer_of(step).complete(handle_, stage, block);
}

template <class P>
void StepActions<P>::begin_evaluation(const data::Windows& file, std::int64_t windows,
                                      std::int64_t first_group,
                                      const std::vector<std::int32_t>& bytes_of_token) {
  if (first_group == 0) counted_ = {};
  windows_ = &file;
  requests_ = nullptr;
  scores_ = {};
  evaluates_ = true;
  all_windows_ = windows;
  first_group_ = first_group;
  bytes_of_token_ = &bytes_of_token;
  if (!parts_.model->objective().find("sample_tokens") || windows == 0 || first_group > 0) return;
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < windows; ++i) tokens += file.tokens(i);
  evaluated_tokens_ = static_cast<double>(tokens) / static_cast<double>(windows);
}

template <class P>
model::MicroContext StepActions<P>::context(Micro micro) const {
  const std::int64_t number = step_of_pass(micro);
  model::MicroContext c;
  c.seed = static_cast<std::uint64_t>(config_.run.seed);
  c.step = static_cast<std::uint32_t>(number);
  c.first_sample = first_of_worker() + data::first_sample(batch_, micro_of(micro), data_rank_);
  c.sequence = config_.model.sequence;
  c.dropout = config_.model.dropout;
  c.adapter_dropout = config_.model.adapter.dropout;
  // Without a counted target, the gradient is 0 anyway.
  const std::int64_t targets = worker_targets(number);
  c.token_weight = 1.0 / static_cast<double>(std::max<std::int64_t>(1, targets));
  c.sample_weight =
      static_cast<double>(config_.parallel.workers) / static_cast<double>(batches_.global(number));
  c.mean_tokens = mean_tokens(number);
  c.notes_maxima = true;
  c.loss_scale = parts_.other_version ? parts_.optimizer->delayed_loss_scale(number)
                                      : parts_.optimizer->loss_scale();
  c.version = parts_.version_of(number);
  if (records_) c.losses = records_->losses(number);
  return c;
}

template <class P>
void StepActions<P>::upload(const PlacedInstr& placed) {
  const Stage stage = placed.instr.stage;
  HostSlot& host = host_slots_[static_cast<std::size_t>(placed.slot)];
  const auto& fields = parts_.model->objective().fields;
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].is_read(is_first(stage), is_last(stage)) && (!vocabulary_ || fields[i].at_layers))
      copy_to_device<std::int32_t>(handle_, parts_.model->field(stage, placed.slot, i),
                                   host.fields[i]);
  if (copies_tokens) host.copied.record(handle_);
}

template <class P>
void StepActions<P>::take_input(const PlacedInstr& placed) {
  const Stage stage = placed.instr.stage;
  if (vocabulary_ && is_first(stage)) vocabulary_->take_input(placed);
  if (vocabulary_ && is_last(stage)) vocabulary_->output_is_in(placed);
  if (!is_first(stage))
    parts_.transfers->take_activation(handle_, stage, placed.buffer,
                                      parts_.model->input(handle_, stage, placed.slot));
  began_ = Clock::now();
}

template <class P>
void StepActions<P>::take_output_gradient(const PlacedInstr& placed) {
  const Stage stage = placed.instr.stage;
  if (vocabulary_ && is_last(stage)) vocabulary_->take_output_gradient(placed);
  if (!is_last(stage))
    parts_.transfers->take_gradient(handle_, stage, placed.buffer,
                                    parts_.model->dx(stage, placed.slot));
  began_ = Clock::now();
}

template <class P>
std::int64_t StepActions<P>::group_of(Micro micro) const {
  return (first_group_ + micro) * evaluators_ + evaluator_;
}

template <class P>
std::int64_t StepActions<P>::samples_of(std::int64_t group) const {
  return std::clamp<std::int64_t>(all_windows_ - group * config_.batch.micro, 0,
                                  config_.batch.micro);
}

template <class P>
void StepActions<P>::read_samples(Micro micro, data::BatchFields fields) {
  if (evaluates_) {
    const std::int64_t group = group_of(micro);
    const architecture::TrainingObjective& objective = parts_.model->objective();
    if (requests_ != nullptr)
      return requests_->read(group * config_.batch.micro, samples_of(group), objective, fields);
    return reader_->read(*windows_, group * config_.batch.micro, samples_of(group), fields);
  }
  const std::int64_t before = batches_.samples(step_of_pass(micro) - 1) + first_of_worker();
  reader_->read(*samples_, before + data::first_sample(batch_, micro_of(micro), data_rank_),
                config_.batch.micro, fields);
}

template <class P>
void StepActions<P>::shared_vocabulary(const PlacedInstr& placed) {
  using schedule::Op;
  const Micro micro = placed.instr.micro;
  vocabulary_->await(placed);
  read_tables(placed.instr.op);
  began_ = Clock::now();
  if (evaluates_) {
    const std::int64_t rows = samples_of(group_of(micro)) * config_.model.targets();
    model::MicroContext plain;
    plain.scores = scores_;
    vocabulary_->run(placed, plain, rows);
    if (placed.instr.op == Op::combine_logits && is_last(placed.instr.stage))
      take_scores(group_of(micro));
    return;
  }
  vocabulary_->run(placed, context(micro), config_.batch.micro * config_.model.targets());
  const Op op = placed.instr.op;
  if (micro + 1 < data::micro_batches(batch_)) return;
  if (op == Op::combine_logits && is_last(placed.instr.stage)) mark_loss(step_);
  if (op != Op::logits_gradient && op != Op::look_up_gradient) return;
  const std::int64_t layers = config_.model.all_layers();
  block_done(placed)(op == Op::logits_gradient ? architecture::shared_output_table(layers)
                                               : architecture::shared_token_table(layers));
}

template <class P>
void StepActions<P>::read_tables(schedule::Op op) {
  using schedule::Op;
  if (!parts_.access) return;
  const std::int64_t token_table = architecture::shared_token_table(config_.model.all_layers());
  if (op == Op::look_up) parts_.access->before_reads(handle_, token_table, std::nullopt);
  // If embeddings are tied, the token table is also the output table.
  if (op == Op::logits || op == Op::evaluate_logits || op == Op::logits_gradient)
    for (const std::int64_t table :
         {architecture::shared_output_table(config_.model.all_layers()), token_table})
      parts_.access->before_reads(handle_, table, std::nullopt);
}

template <class P>
void StepActions<P>::finish() {
  if (vocabulary_) vocabulary_->finish();
}

template <class P>
void StepActions<P>::mark_loss(std::int64_t step) {
  const View1<double> losses = records_ ? records_->losses(step) : parts_.model->losses();
  parts_.optimizer_of(step).mark_loss(handle_, View1<const double>(losses.data(), 1));
}

/// Prepares the first forward pass of an overlapping step. The gradients of step − 2, in the same
/// memory, have been applied, and the results of step − 2 have been read. Backward passes of step −
/// 1 follow, which add to other sums of losses.
template <class P>
void StepActions<P>::begin_passes(std::int64_t step) {
  parts_.optimizer_of(step).zero_gradients(handle_);
  kernels::fill(handle_, records_->losses(step), 0.0);
  parts_.reducer_of(step).begin();
}

template <class P>
void StepActions<P>::forward(const PlacedInstr& placed) {
  const Stage stage = placed.instr.stage;
  if (parts_.other_version && micro_of(placed.instr.micro) == 0)
    begin_passes(step_of_pass(placed.instr.micro));
  if (reads_samples(stage)) {
    const Region region("read_samples");
    const HostSlot& host = free_slot(placed);
    read_samples(placed.instr.micro, whole_fields(host));
    take_own_fields(host);
    upload(placed);
  }
  take_input(placed);
  output_slot_ = placed.slot;
  parts_.model->forward(handle_, stage, placed.slot, context(placed.instr.micro), between_);
}

template <class P>
void StepActions<P>::evaluate(const PlacedInstr& placed) {
  const Stage stage = placed.instr.stage;
  const std::int64_t n = samples_of(group_of(placed.instr.micro));
  if (reads_samples(stage) || is_last(stage)) {
    const Region region("read_samples");
    const HostSlot& host = free_slot(placed);
    read_samples(placed.instr.micro, whole_fields(host));
    if (is_last(stage) && requests_ == nullptr) {
      counted_.samples += n;
      counted_.targets += reader_->counted(whole_fields(host), n);
      counted_.bytes += reader_->text_bytes(whole_fields(host), n, *bytes_of_token_);
    }
    if (reads_samples(stage)) {
      take_own_fields(host);
      upload(placed);
    }
  }
  take_input(placed);
  model::MicroContext plain;
  plain.version = parts_.version_of(step_);  // the newest weights
  plain.sequence = config_.model.sequence;
  plain.scores = scores_;
  plain.mean_tokens = evaluated_tokens_;
  output_slot_ = placed.slot;
  parts_.model->evaluate(handle_, stage, placed.slot, plain, n, between_);
  if (is_last(stage) && !vocabulary_) take_scores(group_of(placed.instr.micro));
}

template <class P>
typename model::RankModel<P>::BlockDone StepActions<P>::block_done(const PlacedInstr& placed) {
  if (!parts_.noise || micro_of(placed.instr.micro) > 0) return sums_done(placed);
  return [this, next = sums_done(placed)](std::int64_t block) {
    parts_.noise->after_first(handle_, block);
    next(block);
  };
}

template <class P>
typename model::RankModel<P>::BlockDone StepActions<P>::sums_done(const PlacedInstr& placed) {
  const std::int64_t number = step_of_pass(placed.instr.micro);
  if (micro_of(placed.instr.micro) + 1 < data::micro_batches(batch_))
    return [this](std::int64_t) { between_(); };
  // The losses of all micro-batches are known, and no sum of this stage's gradients is in flight.
  // With a shared vocabulary, shared_vocabulary() marks the loss.
  if (is_last(placed.instr.stage) && !vocabulary_) mark_loss(number);
  return [this, number, stage = placed.instr.stage](std::int64_t block) {
    if (reduces_) return complete(number, stage, block);
    completed_.emplace_back(stage, block);
    between_();
  };
}

template <class P>
void StepActions<P>::backward(const PlacedInstr& placed) {
  take_output_gradient(placed);
  parts_.model->backward(handle_, placed.instr.stage, placed.slot, context(placed.instr.micro),
                         block_done(placed));
}
template <class P>
void StepActions<P>::backward_input(const PlacedInstr& placed) {
  take_output_gradient(placed);
  parts_.model->backward_input(handle_, placed.instr.stage, placed.slot,
                               context(placed.instr.micro), between_);
}
template <class P>
void StepActions<P>::backward_weight(const PlacedInstr& placed) {
  parts_.model->backward_weight(handle_, placed.instr.stage, placed.slot,
                                context(placed.instr.micro), block_done(placed));
}

template <class P>
void StepActions<P>::send_activation(const PlacedInstr& placed) {
  parts_.transfers->send_activation(handle_, placed.instr.stage, placed.buffer,
                                    parts_.model->output(placed.instr.stage, output_slot_));
}
template <class P>
void StepActions<P>::receive_activation(const PlacedInstr& placed) {
  parts_.transfers->receive_activation(handle_, placed.instr.stage, placed.buffer);
}
template <class P>
void StepActions<P>::send_gradient(const PlacedInstr& placed) {
  parts_.transfers->send_gradient(handle_, placed.instr.stage, placed.buffer,
                                  parts_.model->dx(placed.instr.stage, placed.slot));
}
template <class P>
void StepActions<P>::receive_gradient(const PlacedInstr& placed) {
  parts_.transfers->receive_gradient(handle_, placed.instr.stage, placed.buffer);
}

template <class P>
void StepActions<P>::begin_group() {
  parts_.pipeline.begin_group();
}
template <class P>
void StepActions<P>::end_group() {
  parts_.pipeline.end_group(handle_);
}

// Instructions at a step's end: sums of gradients, the norm and the update.
template <class P>
void StepActions<P>::reduce_gradients(const PlacedInstr& placed) {
  const std::int64_t number = step_of(placed);
  parts_.reducer_of(number).finish(handle_, placed.instr.stage);
  if (parts_.servers) return;  // servers complete the step
  // Partial gradients (of head norms) cover only this rank's heads. With sequence parallelism,
  // gradients of replicated arrays cover only this rank's tokens.
  for (const bool partial : {false, true}) {
    const auto gradients =
        parts_.parameters_of(number).replicated_gradients(placed.instr.stage, partial);
    if ((partial || parts_.axis.cuts_tokens()) && gradients.extent(0) > 0)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
  }
}

template <class P>
void StepActions<P>::begin_tied_sum(std::int64_t step) {
  parts_.optimizer_of(step).combine_tied_gradients(handle_);
  if (parts_.embedding.size() == 1) return;
  const auto& table = parts_.parameters_of(step).entry("embedding.token");
  if (!table.spec->frozen)
    tied_sum_ = parts_.embedding.template start_all_reduce<typename P::Gradient>(
        handle_, table.gradient.data, grid::Reduction::sum);
}
template <class P>
void StepActions<P>::begin_tied(const PlacedInstr& placed) {
  begin_tied_sum(step_of(placed));
  tied_has_begun_ = true;
}
template <class P>
void StepActions<P>::reduce_tied(const PlacedInstr& placed) {
  if (parts_.servers) return;
  if (!tied_has_begun_) begin_tied_sum(step_of(placed));
  tied_has_begun_ = false;
  if (tied_sum_.active()) parts_.embedding.wait(tied_sum_, "gradient of the tied token table");
}
/// Sums the gradients of shared layers over the tensor ranks that share heads, the replicas, the
/// tensor axis (if incomplete) and the pipeline.
template <class P>
void StepActions<P>::sum_shared_layers() {
  for (std::int64_t layer = 0; layer < config_.model.shared_layers; ++layer)
    parts_.shared_gradients->sum(handle_, architecture::block_of_layer(layer));
  parts_.reducer->reduce_shared(handle_);
  for (const architecture::SharedPart& part :
       architecture::shared_parts(parts_.parameters.rank_arrays(), parts_.parameters.placement())) {
    const View1<typename P::Gradient> gradients(
        parts_.parameters.all_gradients().data() +
            parts_.parameters.gradient_places().place(part.run.offset),
        static_cast<std::size_t>(part.run.extent));
    const bool over_tensor = part.partial_gradient || (!part.split && parts_.axis.cuts_tokens());
    if (over_tensor)
      parts_.tensor.template all_reduce<typename P::Gradient>(
          handle_, gradients, grid::Reduction::sum, "gradients of replicated arrays");
    parts_.pipeline.template all_reduce<typename P::Gradient>(
        handle_, gradients, grid::Reduction::sum, "gradients of shared layers");
  }
}

/// Begins the sums of a step's norm and losses. The losses are summed over the replicas, and then
/// over the ranks of a replica, of which all but one add zeros.
template <class P>
void StepActions<P>::begin_norm_sum(std::int64_t step) {
  parts_.optimizer_of(step).begin_norm(handle_);
  const View1<double> losses = records_->losses(step);
  const auto& objective = parts_.model->objective();
  const bool has_head = parts_.parameters.shard().has_head();
  if (has_head || objective.loss_sums() > objective.head_losses())
    parts_.replicas.template all_reduce<double>(handle_, losses, grid::Reduction::sum, "loss");
  if (!has_head || parts_.tensor.rank() > 0)
    kernels::fill(handle_, model::part(losses, {0, objective.head_losses()}), 0.0);
  loss_sum_ =
      parts_.model_group.template start_all_reduce<double>(handle_, losses, grid::Reduction::sum);
}
template <class P>
void StepActions<P>::begin_norm(const PlacedInstr& placed) {
  begin_norm_sum(step_of(placed));
  norm_has_begun_ = true;
}
template <class P>
void StepActions<P>::gradient_norm(const PlacedInstr& placed) {
  if (parts_.servers) return;
  if (config_.model.shared_layers > 0) sum_shared_layers();
  if (vocabulary_) parts_.optimizer->combine_tied_gradients(handle_);
  if (!parts_.other_version) {
    parts_.optimizer->find_norm(handle_);
    if (parts_.noise)
      parts_.noise->add_step(handle_, parts_.optimizer->squares(), parts_.optimizer->loss_scale(),
                             batch_.micro, batch_.global);
    return;
  }
  if (!norm_has_begun_) begin_norm_sum(step_of(placed));
  norm_has_begun_ = false;
  parts_.optimizer->end_norm(handle_);
  parts_.model_group.wait(loss_sum_, "loss");
}

template <class P>
void StepActions<P>::optimizer_step(const PlacedInstr& placed) {
  if (parts_.servers) return;
  const std::int64_t number = step_of(placed);
  const double rate = optim::learning_rate(config_.optimizer, number, batches_.global(number));
  optim::Optimizer<P>& optimizer = parts_.optimizer_of(number);
  if (parts_.other_version) {
    parts_.finish_gathers();
    // The update changes a copy of the newest weights: the weights of step number + 1.
    kernels::copy<T>(handle_, parts_.parameters_of(number).all_weights(),
                     parts_.parameters_of(number + 1).all_weights());
    kernels::copy<double>(handle_, records_->scale_before(number), optimizer.loss_scale());
    optimizer.delayed_step(handle_, number, rate);
    kernels::copy<double>(handle_, records_->status(number), optimizer.status());
  } else {
    optimizer.step(handle_, number, rate);
  }
  if (parts_.fp8) finish_fp8();
  if (!parts_.weight_gather) return;
  const Region region("gather_weights");
  parts_.weight_gather_of(number).update(handle_);
}

/// Finds the maxima of fp8 tensors over all ranks, and sets the scales of the next step.
template <class P>
void StepActions<P>::finish_fp8() {
  const Region region("fp8_scales");
  for (grid::Communicator* ranks : {&parts_.model_group, &parts_.replicas})
    ranks->template all_reduce<float>(handle_, parts_.fp8->maxima(), grid::Reduction::maximum,
                                      "maxima of fp8 tensors");
  parts_.fp8->finish_step(handle_, step_);
}

// Numbers of targets that count in a step's loss, and results of requests in an evaluation.
template <class P>
std::int64_t StepActions<P>::batch_targets(std::int64_t step) const {
  if (samples_ == nullptr || samples_->all_count())
    return batches_.global(step) * config_.model.targets();
  const std::vector<std::int64_t>& targets = targets_of_workers(step);
  return std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
}

template <class P>
std::int64_t StepActions<P>::worker_targets(std::int64_t step) const {
  if (samples_ == nullptr || samples_->all_count())
    return batches_.global(step) / config_.parallel.workers * config_.model.targets();
  return targets_of_workers(step)[static_cast<std::size_t>(worker_)];
}

template <class P>
const std::vector<std::int64_t>& StepActions<P>::targets_of_workers(std::int64_t step) const {
  if (targets_of_step_.size() > 4) targets_of_step_.erase(targets_of_step_.begin());
  const auto [found, is_new] = targets_of_step_.try_emplace(step);
  if (is_new) {
    const std::int64_t samples = batches_.global(step) / config_.parallel.workers;
    for (std::int64_t w = 0; w < config_.parallel.workers; ++w)
      found->second.push_back(samples_->counted(batches_.samples(step - 1) + w * samples, samples));
  }
  return found->second;
}

template <class P>
double StepActions<P>::mean_tokens(std::int64_t step) const {
  if (samples_ == nullptr || !parts_.model->objective().find("sample_tokens")) return 0;
  if (mean_tokens_of_step_.size() > 4) mean_tokens_of_step_.erase(mean_tokens_of_step_.begin());
  const auto [found, is_new] = mean_tokens_of_step_.try_emplace(step);
  if (is_new) {
    const std::int64_t samples = batches_.global(step) / config_.parallel.workers;
    for (std::int64_t w = 0; w < config_.parallel.workers; ++w)
      found->second.push_back(
          static_cast<double>(samples_->tokens(batches_.samples(step - 1) + w * samples, samples)) /
          static_cast<double>(samples));
  }
  return found->second[static_cast<std::size_t>(worker_)];
}

template <class P>
void StepActions<P>::reserve_scores() {
  const std::int64_t rows = parts_.model->sizes().targets;
  score_memory_.emplace("train/scores",
                        aligned(rows * 2 * static_cast<std::int64_t>(sizeof(double))));
  all_scores_ = score_memory_->template take<double>(rows, 2);
  host_scores_.resize(all_scores_.size());
}

template <class P>
void StepActions<P>::begin_requests(const data::Requests& requests, std::int64_t first_group,
                                    std::vector<double>& results) {
  requests_ = &requests;
  results_ = &results;
  evaluates_ = true;
  all_windows_ = requests.count();
  first_group_ = first_group;
  if (!score_memory_) reserve_scores();
  scores_ = all_scores_;
}

/// A context rank adds the results of the tokens that it holds.
template <class P>
void StepActions<P>::take_scores(std::int64_t group) {
  if (requests_ == nullptr || parts_.tensor.rank() > 0) return;
  copy_to_host<double>(handle_, host_scores_, View1<double>(scores_.data(), scores_.size()),
                       "train/evaluate reads the scores of requests");
  const layout::TokenPlaces places = parts_.parameters.shard().places(config_.model.sequence);
  const std::int64_t held = parts_.axis.context().held(config_.model.sequence);
  const std::int64_t first = group * config_.batch.micro;
  const bool tokens = requests_->wants_tokens();
  for (std::int64_t i = 0; i < samples_of(group); ++i) {
    const data::Request& request = requests_->request(first + i);
    auto* const result =
        results_->data() + (tokens ? requests_->first_wanted(first + i) : 2 * (first + i));
    const std::int64_t end = std::ssize(request.tokens) - (tokens ? 0 : 1);
    for (std::int64_t position = request.context - 1; position < end; ++position) {
      const std::int64_t token = places.token_at(position);
      if (token < 0) continue;
      const auto row = static_cast<std::size_t>(2 * (i * held + token));
      if (tokens) {
        result[position - (request.context - 1)] = host_scores_[row + 1];
        continue;
      }
      result[0] += host_scores_[row];
      if (!(host_scores_[row + 1] <= 0)) result[1] += 1;
    }
  }
}

template class StepActions<model::Fp32>;
template class StepActions<model::Fp64>;
template class StepActions<model::MixedBf16>;
template class StepActions<model::MixedFp16>;

}  // namespace trireme::train
