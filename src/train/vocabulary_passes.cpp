// Passes of a shared vocabulary. A broadcast is an all-gather with one contributing rank, and a sum
// for one rank is a reduce-scatter in which only that rank has a part. Neither blocks.
#include <trireme/train/vocabulary_passes.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>

namespace trireme::train {

using schedule::Op;

template <class P>
VocabularyPasses<P>::VocabularyPasses(EngineParts<P>& parts, const kernels::Handle& handle,
                                      Read read)
    : parts_(parts),
      handle_(handle),
      read_(std::move(read)),
      between_([&parts] { parts.pipeline.progress(); }) {
  const auto& fields = parts.model->objective().fields;
  std::int64_t numbers = 0;
  for (const architecture::BatchField& field : fields)
    numbers += rows_of(field.rows, parts.model->sizes());
  host_.memory = StagingBuffer("train/shared_fields", static_cast<std::size_t>(numbers) * 4);
  auto* next = reinterpret_cast<std::int32_t*>(host_.memory.data());
  std::fill_n(next, numbers, 0);
  for (const architecture::BatchField& field : fields) {
    const std::int64_t n = rows_of(field.rows, parts.model->sizes());
    host_.fields.emplace_back(next, static_cast<std::size_t>(n));
    next += n;
  }
  auto slices = parts.vocabulary->slices.begin();
  for (Messages* messages : {&inputs_, &outputs_, &gradients_, &input_gradients_})
    for (Message& message : *messages) message.slice = *slices++;
}

template <class P>
void VocabularyPasses<P>::upload(Micro micro, const char* field, View1<std::int32_t> to) {
  if (!exec_on_host) fence(host_.copied, "train/look_up reuses its token buffers");
  read_(micro, host_.fields);
  copy_to_device<std::int32_t>(handle_, to, host_.fields[parts_.model->objective().field(field)]);
  if (!exec_on_host) host_.copied.record(handle_);
}

template <class P>
View3<double> VocabularyPasses<P>::statistics() const {
  const auto ranks = static_cast<std::size_t>(parts_.pipeline.size());
  const View1<double>& all = parts_.vocabulary->statistics;
  return View3<double>(all.data(), ranks, all.extent(0) / (3 * ranks), 3);
}

namespace {

/// Counts for a message to or from `root`: all elements belong to that rank.
template <class T>
std::vector<std::int64_t> counts_of(const grid::Communicator& ranks, View2<T> slice, Rank root) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), 0);
  counts[static_cast<std::size_t>(root)] = static_cast<std::int64_t>(slice.size());
  return counts;
}

}  // namespace

template <class P>
void VocabularyPasses<P>::broadcast(grid::Communicator& ranks, Message& message, Rank root) {
  const View1<T> all = flat(message.slice);
  const View1<const T> mine(all.data(), ranks.rank() == root ? all.extent(0) : 0);
  message.request =
      ranks.start_all_gather<T>(handle_, all, mine, counts_of(ranks, message.slice, root));
}

template <class P>
void VocabularyPasses<P>::reduce(grid::Communicator& ranks, Message& message, Rank root) {
  const View1<T> all = flat(message.slice);
  const View1<T> mine(all.data(), ranks.rank() == root ? all.extent(0) : 0);
  message.request = ranks.start_reduce_scatter<T>(handle_, mine, View1<const T>(all),
                                                  counts_of(ranks, message.slice, root));
}

template <class P>
void VocabularyPasses<P>::await(const PlacedInstr& placed) {
  const Micro m = placed.instr.micro;
  RankVocabulary<P>& v = *parts_.vocabulary;
  const Op op = placed.instr.op;
  if (op == Op::look_up) v.inputs->wait(of(inputs_, m).request, "an earlier sum of look-ups");
  if (op == Op::logits || op == Op::evaluate_logits)
    v.outputs->wait(of(outputs_, m).request, "the last stage's output");
  if (op == Op::combine_logits) {
    v.logits->wait(statistics_, "statistics of all logits");
    v.logits->wait(of(gradients_, m).request, "an earlier gradient of the logits");
  }
  if (op == Op::look_up_gradient)
    v.input_gradients->wait(of(input_gradients_, m).request, "the look-up's gradient");
}

template <class P>
void VocabularyPasses<P>::run(const PlacedInstr& placed, const model::MicroContext& context,
                              std::int64_t rows) {
  const Op op = placed.instr.op;
  if (op == Op::look_up) return look_up(placed);
  if (op == Op::share_output) return share_output(placed);
  if (op == Op::logits || op == Op::evaluate_logits) return logits(placed);
  if (op == Op::combine_logits) return combine(placed, context, rows);
  if (op == Op::logits_gradient)
    return parts_.model->vocabulary().logits_gradient(
        handle_, parts_.model->logits_slot(placed.logits_slot), context, between_);
  if (op == Op::share_gradient) return share_gradient(placed);
  if (op == Op::look_up_gradient) return look_up_gradient(placed);
  check(false, placed.instr, " is not a pass of a shared vocabulary");
}

template <class P>
void VocabularyPasses<P>::look_up(const PlacedInstr& placed) {
  Message& message = of(inputs_, placed.instr.micro);
  upload(placed.instr.micro, "tokens", parts_.model->vocabulary().tokens());
  parts_.model->vocabulary().look_up(handle_, message.slice);
  reduce(*parts_.vocabulary->inputs, message, 0);
}

template <class P>
void VocabularyPasses<P>::take_input(const PlacedInstr& placed) {
  Message& message = of(inputs_, placed.instr.micro);
  parts_.vocabulary->inputs->wait(message.request, "the sum of all look-ups");
  parts_.axis.gather_slices(handle_,
                            parts_.model->input(handle_, placed.instr.stage, placed.slot).tokens,
                            message.slice, "look-up, forward");
}

template <class P>
void VocabularyPasses<P>::output_is_in(const PlacedInstr& placed) {
  slots_.at(static_cast<std::size_t>(placed.instr.micro) % slots_.size()) = placed.slot;
}

template <class P>
void VocabularyPasses<P>::share_output(const PlacedInstr& placed) {
  Message& message = of(outputs_, placed.instr.micro);
  if (is_last()) {
    const int slot = slots_.at(static_cast<std::size_t>(placed.instr.micro) % slots_.size());
    kernels::copy<T>(handle_, flat(message.slice),
                     flat<const T>(parts_.axis.slice_of(parts_.model->head_output(slot))));
  }
  broadcast(*parts_.vocabulary->outputs, message, last());
}

template <class P>
void VocabularyPasses<P>::logits(const PlacedInstr& placed) {
  trains_ = placed.instr.op == Op::logits;
  const auto& slot = parts_.model->logits_slot(placed.logits_slot);
  upload(placed.instr.micro, "targets", slot.targets);
  const View3<double> all = statistics();
  const auto rows = all.extent(1);
  const View2<double> mine(all.data() + static_cast<std::size_t>(parts_.pipeline.rank()) * 3 * rows,
                           rows, 3);
  parts_.model->vocabulary().logits(handle_, slot, of(outputs_, placed.instr.micro).slice, mine,
                                    trains_, between_);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(parts_.pipeline.size()),
                                         static_cast<std::int64_t>(mine.size()));
  statistics_ = parts_.vocabulary->logits->template start_all_gather<double>(
      handle_, View1<double>(all.data(), all.size()), flat<const double>(mine), counts);
}

/// Combines the statistics of all ranks; the last stage adds the losses. In training, also starts
/// the sum of the output's gradient.
template <class P>
void VocabularyPasses<P>::combine(const PlacedInstr& placed, const model::MicroContext& context,
                                  std::int64_t rows) {
  const model::SharedVocabulary<P>& vocabulary = parts_.model->vocabulary();
  const auto& slot = parts_.model->logits_slot(placed.logits_slot);
  vocabulary.combine(handle_, slot, View3<const double>(statistics()),
                     is_last() ? model::part(parts_.model->losses(), {0, 1}) : View1<double>(),
                     rows, context.scores);
  if (!trains_) return;
  Message& message = of(gradients_, placed.instr.micro);
  take(message);
  vocabulary.output_gradient(handle_, slot, message.slice, context);
  reduce(*parts_.vocabulary->logits, message, last());
  message.micro = placed.instr.micro;
}

/// On the last stage, unless the message's gradient has been moved: waits for the gradient, and
/// moves it to the slot of the micro-batch's output.
template <class P>
void VocabularyPasses<P>::take(Message& message) {
  if (!is_last() || message.micro < 0) return;
  parts_.vocabulary->logits->wait(message.request, "the gradient of the logits' input");
  const int slot = slots_.at(static_cast<std::size_t>(message.micro) % slots_.size());
  parts_.axis.gather_slices(handle_, parts_.model->head_output(slot), message.slice,
                            "logits, backward");
  message.micro = -1;
}

template <class P>
void VocabularyPasses<P>::take_output_gradient(const PlacedInstr& placed) {
  Message& message = of(gradients_, placed.instr.micro);
  if (message.micro == placed.instr.micro) take(message);
}

template <class P>
void VocabularyPasses<P>::share_gradient(const PlacedInstr& placed) {
  Message& message = of(input_gradients_, placed.instr.micro);
  if (is_first())
    kernels::copy<T>(handle_, flat(message.slice),
                     flat<const T>(parts_.axis.slice_of(
                         parts_.model->dx(placed.instr.stage, placed.slot).tokens)));
  broadcast(*parts_.vocabulary->input_gradients, message, 0);
}

template <class P>
void VocabularyPasses<P>::look_up_gradient(const PlacedInstr& placed) {
  upload(placed.instr.micro, "tokens", parts_.model->vocabulary().tokens());
  parts_.model->vocabulary().look_up_gradient(handle_,
                                              of(input_gradients_, placed.instr.micro).slice);
}

template <class P>
void VocabularyPasses<P>::finish() {
  RankVocabulary<P>& v = *parts_.vocabulary;
  for (int i = 0; i < buffers; ++i) {
    v.inputs->wait(of(inputs_, i).request, "look-ups of the step");
    v.logits->wait(of(gradients_, i).request, "gradients of the step's logits");
  }
}

template class VocabularyPasses<model::Fp32>;
template class VocabularyPasses<model::Fp64>;
template class VocabularyPasses<model::MixedBf16>;
template class VocabularyPasses<model::MixedFp16>;

}  // namespace trireme::train
