// Memory of a rank's stages: slots of saved activations, windows of offloaded layers, and scratch
// shared by all stages.
#include <trireme/model/rank_model.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>

#include <algorithm>

namespace trireme::model {

template <class P>
RankModel<P>::RankModel(const architecture::Architecture& architecture,
                        const Parameters<P>& parameters, const TensorAxis& axis, const Shape& shape,
                        const Parameters<P>* second)
    : model_(architecture.model),
      objective_(architecture::objective_of(model_)),
      shard_(parameters.shard()),
      shape_(shape),
      sizes_(architecture::rank_sizes(model_, shard_, shape.micro, model_.sequence,
                                      axis.cuts_tokens(), shape.logit_elements)) {
  check(axis.tokens() == sizes_.tokens, "a tensor axis for ", axis.tokens(),
        " tokens, micro-batches of ", sizes_.tokens);
  std::vector<architecture::Kept> kept =
      shape.training ? shape.kept : std::vector<architecture::Kept>{};
  if (kept.empty())
    for (const architecture::BlockDescription& layer : architecture.layer_kinds())
      kept.push_back(shape.training && architecture.has_backward(kept.size())
                         ? architecture::kept_tensors(layer, shape.recompute)
                         : architecture::kept_for_evaluation(layer));
  plans_ = plan_blocks<P>(architecture, sizes_, kept, shape.training, shape.split_backward,
                          !shard_.shares_vocabulary());
  for (BlockPlan& plan : plans_) plan.fp8 = shape.fp8;
  head_plan_ = plan_head<P>(model_, sizes_, shape.head);
  for (const Stage s : shard_.stages) {
    stages_.emplace_back(architecture, plans_, head_plan_, parameters, axis, s, shape.access);
    if (second != nullptr)
      second_stages_.emplace_back(architecture, plans_, head_plan_, *second, axis, s,
                                  shape.second_access);
  }
  if (shard_.shares_vocabulary()) vocabulary_.emplace(parameters, model_, axis, shape.head);
  Arena scratch_plan;
  take_scratch(scratch_plan);
  Arena saved_plan;
  take_saved(saved_plan);
  scratch_memory_ = Arena("scratch", scratch_plan.used());
  saved_memory_ = Arena("saved activations", saved_plan.used());
  take_scratch(scratch_memory_);  // before take_saved: slots of logits may have tensors in scratch
  take_saved(saved_memory_);
  if (!windows_.empty()) offload();
}

template <class P>
void RankModel<P>::take_saved(Arena& arena) {
  slots_.assign(stages_.size(), {});
  if (shape_.offload) take_windows(arena);
  for (int k = 0; k < shape_.slots; ++k) {
    const std::int64_t begin = arena.used();
    std::int64_t end = begin;
    // Stages share the memory of a slot, which one stage uses at a time.
    for (std::size_t i = 0; i < stages_.size(); ++i) {
      arena.release_to(begin);
      slots_[i].push_back(stages_[i].take_slot(
          arena, sizes_, {shape_.training, shape_.split_backward, value_gradients_}, windows_, k));
      end = std::max(end, arena.used());
    }
    arena.release_to(begin);
    arena.take<std::byte>(end - begin);
  }
  logits_slots_.clear();
  for (int k = 0; vocabulary_ && k < shape_.logits_slots; ++k)
    logits_slots_.push_back(vocabulary_->take_slot(arena, sizes_));
}

template <class P>
std::int64_t RankModel<P>::most_layers() const {
  std::int64_t most = 0;
  for (const auto& stage : stages_) most = std::max(most, stage.layers());
  return most;
}

template <class P>
void RankModel<P>::take_windows(Arena& arena) {
  windows_ = {};
  const std::int64_t count = std::min<std::int64_t>(offload_windows, shape_.slots * most_layers());
  window_sizes_ = {};
  for (const BlockPlan& plan : plans_) {
    window_sizes_.saved = std::max(window_sizes_.saved, plan.program.kept_bytes);
    window_sizes_.work = std::max(window_sizes_.work, plan.program.work_bytes);
  }
  for (std::int64_t w = 0; w < count; ++w)
    windows_.push_back(take_block_memory(arena, window_sizes_.saved, window_sizes_.work));
}

template <class P>
void RankModel<P>::offload() {
  std::vector<std::byte*> begins;
  for (const BlockMemory& window : windows_) begins.push_back(window.kept);
  offloaded_ =
      std::make_unique<OffloadedLayers>(begins, window_sizes_, shape_.slots, most_layers());
  for (std::size_t i = 0; i < stages_.size(); ++i)
    for (int k = 0; k < shape_.slots; ++k)
      slots_[i][static_cast<std::size_t>(k)].offload =
          SlotOffload(*offloaded_, static_cast<int>(i), k, stages_[i].layers(),
                      static_cast<std::int64_t>(begins.size()));
}

template <class P>
void RankModel<P>::take_scratch(Arena& arena) {
  scratch_ = {};
  scratch_.losses = arena.take<double>(objective_.loss_sums());
  for (auto& stage : stages_) stage.take_lasting_memory(arena);
  for (auto& stage : second_stages_) stage.take_lasting_memory(arena);
  // The heads of both versions share memory: only one pass runs at a time.
  const std::int64_t begin = arena.used();
  for (auto& stage : second_stages_) stage.take_head_scratch(arena);
  arena.release_to(begin);
  for (auto& stage : stages_) stage.take_head_scratch(arena);
  if (vocabulary_) vocabulary_->take_scratch(arena, sizes_);
  scratch_.layer = take_block_scratch<P>(arena, plans_, model_, shape_.training, shape_.kernels);
  output_ = arena.take<T>(sizes_.rows, sizes_.hidden);
  if (!shape_.training) return;
  dx_ = arena.take<T>(sizes_.rows, sizes_.hidden);
  const Bytes values = architecture::value_bytes(sizes_, sizeof(T), sizeof(Accumulate<T>));
  if (values > 0) value_gradients_ = arena.take<std::byte>(values).data();
}

template <class P>
std::size_t RankModel<P>::index(Stage stage) const {
  const auto found = std::ranges::find(shard_.stages, stage);
  check(found != shard_.stages.end(), "stage ", stage, " is not on this rank");
  return static_cast<std::size_t>(found - shard_.stages.begin());
}

template <class P>
auto RankModel<P>::input(const Handle& handle, Stage stage, int slot) const -> StageRows<T> {
  return get(stage).input(handle, at(stage, slot));
}

template <class P>
auto RankModel<P>::dx(Stage stage, int slot) const -> StageRows<T> {
  const Slot& s = at(stage, slot);
  return get(stage).with_values(s.dx.data() != nullptr ? s.dx : dx_, s, true);
}

template <class P>
auto RankModel<P>::output(Stage stage, int slot) const -> StageRows<T> {
  return get(stage).with_values(output_, at(stage, slot), false);
}

template <class P>
void RankModel<P>::zero_losses(const Handle& handle) const {
  kernels::fill(handle, scratch_.losses, 0.0);
}

template <class P>
void RankModel<P>::forward(const Handle& handle, Stage stage, int slot, const MicroContext& context,
                           const Between& between) const {
  get(stage, context.version).forward(handle, output_, at(stage, slot), scratch_, context, between);
}

template <class P>
void RankModel<P>::evaluate(const Handle& handle, Stage stage, int slot,
                            const MicroContext& context, std::int64_t samples,
                            const Between& between) const {
  get(stage, context.version)
      .evaluate(handle, output_, at(stage, slot), scratch_, context, samples, between);
}

template <class P>
void RankModel<P>::backward(const Handle& handle, Stage stage, int slot,
                            const MicroContext& context, const BlockDone& done) const {
  // A schedule may have both whole and split backward passes; the slots have memory for split
  // passes.
  if (shape_.split_backward) {
    backward_input(handle, stage, slot, context);
    backward_weight(handle, stage, slot, context, done);
    return;
  }
  get(stage, context.version).backward(handle, dx_, at(stage, slot), scratch_, context, done);
}

template <class P>
void RankModel<P>::backward_input(const Handle& handle, Stage stage, int slot,
                                  const MicroContext& context, const Between& between) const {
  get(stage, context.version)
      .backward_input(handle, dx(stage, slot).tokens, at(stage, slot), scratch_, context, between);
}

template <class P>
void RankModel<P>::backward_weight(const Handle& handle, Stage stage, int slot,
                                   const MicroContext& context, const BlockDone& done) const {
  get(stage, context.version).backward_weight(handle, at(stage, slot), scratch_, context, done);
}

template class RankModel<Fp32>;
template class RankModel<Fp64>;
template class RankModel<MixedBf16>;
template class RankModel<MixedFp16>;

}  // namespace trireme::model
