// The optimizer's state, the global norm of the gradients, and the updates.
#include <trireme/optim/optimizer.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/muon.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace trireme::optim {

template <class P>
Optimizer<P>::Optimizer(const deck::OptimizerConfig& config,
                        const architecture::Architecture& architecture,
                        model::Parameters<P>& parameters, grid::Communicator& model_group,
                        const BucketGroups& owners, architecture::StatePlacement placement,
                        std::int64_t capacity, const kernels::LossScaling& loss_scaling,
                        ArenaMemory state_memory, const std::optional<MuonParts>& muon,
                        grid::Communicator* experts)
    : config_(config),
      loss_scaling_(loss_scaling),
      architecture_(architecture),
      parameters_(&parameters),
      model_group_(model_group),
      owners_(owners),
      experts_(experts),
      placement_(std::move(placement)),
      capacity_(capacity),
      state_memory_(state_memory),
      names_(architecture::state_arrays(config)) {
  check(placement_.elements <= capacity, "optimizer state has ", placement_.elements,
        " elements, but its arenas hold ", capacity);
  check(muon.has_value() == (config.kind == OptimizerKind::muon), "an optimizer of kind ",
        name_of(config.kind), muon ? " has" : " needs", " what Muon needs");
  const auto size = [&](std::size_t array) {
    return muon && array > 0 ? muon->second_capacity : capacity;
  };
  std::int64_t bytes = has_masters ? aligned(capacity * static_cast<Bytes>(sizeof(Master))) : 0;
  for (std::size_t i = 0; i < names_.size(); ++i)
    bytes += aligned(size(i) * static_cast<Bytes>(sizeof(Master)));
  state_ = Arena("optimizer state", bytes, state_memory);
  for (std::size_t i = 0; i < names_.size(); ++i) arrays_.push_back(state_.take<Master>(size(i)));
  if (has_masters) masters_ = state_.take<Master>(capacity);
  if (muon) {
    check(placement_.second <= muon->second_capacity, "second moments have ", placement_.second,
          " elements, but their arena holds ", muon->second_capacity);
    muon_.emplace(architecture, parameters, muon->tensor_group, owners.all, placement_);
  }
  lay_out_sums();
}

template <class P>
auto Optimizer<P>::rule_of(const Entry& entry) const -> Rule {
  if (entry.spec->counts_tokens) return entry.spec->is_load ? Rule::load : Rule::balance;
  return muon_ && entry.local.hidden_matrix ? Rule::matrices : Rule::config;
}

template <class P>
std::vector<kernels::UpdateRange> Optimizer<P>::update_ranges(Rule rule) const {
  std::vector<kernels::UpdateRange> parts;
  std::int64_t chunks = 0;
  for (const architecture::StateBlock& block : placement_.blocks) {
    if (block.elements() == 0) continue;
    const Entry& entry = parameters_->entries()[block.local];
    if (rule_of(entry) != rule) continue;
    check(!entry.spec->counts_tokens || block.elements() == entry.spec->elements(),
          entry.spec->name, ": a rank updates only ", block.elements(), " of ",
          entry.spec->elements(), " elements");
    kernels::UpdateRange& part = parts.emplace_back();
    part.first_chunk = chunks;
    part.elements = block.elements();
    const std::int64_t at = entry.offset + block.first;  // in the arenas of weights and gradients
    part.gradient = parameters_->gradient_places().own_place(at);
    part.state = block.state;
    part.rounded = parameters_->weight_places().own_place(at);
    part.weight = has_masters ? part.state : part.rounded;
    part.array = static_cast<std::int32_t>(entry.number());
    part.decays = entry.spec->decay ? 1 : 0;
    chunks += kernels::chunks_of(part.elements);
  }
  return parts;
}

template <class P>
std::vector<double> Optimizer<P>::matrix_factors() const {
  std::vector<double> factors(muon_ ? architecture_.arrays.size() : 0);
  if (muon_)
    for (const architecture::HiddenMatrix& m : muon_->matrices())
      factors[parameters_->entries()[m.local].number()] =
          config_.muon_rate_factor * muon_factor(config_.muon_scale, static_cast<double>(m.rows),
                                                 static_cast<double>(m.columns));
  return factors;
}

template <class P>
void Optimizer<P>::lay_out_sums() {
  const auto arrays = static_cast<std::int64_t>(architecture_.arrays.size());
  const architecture::Shard& shard = parameters_->shard();
  const std::int64_t sums = arrays * shard.tensor_size;
  struct Lists {
    std::vector<std::int64_t> ends_of_sums;
    std::vector<std::int64_t> begins, ends;                // in the gradients' memory
    std::vector<std::int64_t> weight_begins, weight_ends;  // in the weights' memory
  };
  Lists ordinary, experts;
  ordinary.ends_of_sums.resize(static_cast<std::size_t>(sums));
  experts.ends_of_sums.resize(experts_ != nullptr ? static_cast<std::size_t>(sums) : 0);
  for (const auto& entry : parameters_->entries()) {
    if (entry.spec->frozen || entry.spec->counts_tokens) continue;
    const std::int64_t at =
        entry.number() * shard.tensor_size + (entry.local.split ? shard.tensor_rank : 0);
    Lists& list = entry.local.of_experts ? experts : ordinary;
    for (const architecture::Piece& piece : entry.local.pieces) {
      if (!piece.counted) continue;
      list.ends_of_sums[static_cast<std::size_t>(at)] += kernels::norm_blocks(piece.elements());
      const std::int64_t first = entry.offset + piece.first;
      const std::int64_t end = first + piece.elements();
      for (std::int64_t begin = first; begin < end; begin += kernels::norm_block) {
        const bool owns = placement_.owns(begin);
        const std::int64_t size = owns ? std::min(end - begin, kernels::norm_block) : 0;
        list.begins.push_back(owns ? parameters_->gradient_places().own_place(begin) : 0);
        list.ends.push_back(list.begins.back() + size);
        list.weight_begins.push_back(owns ? parameters_->weight_places().own_place(begin) : 0);
        list.weight_ends.push_back(list.weight_begins.back() + size);
      }
    }
  }
  for (Lists* list : {&ordinary, &experts})
    std::inclusive_scan(list->ends_of_sums.begin(), list->ends_of_sums.end(),
                        list->ends_of_sums.begin());
  const std::vector<kernels::UpdateRange> updates = update_ranges(Rule::config);
  const std::vector<kernels::UpdateRange> matrices = update_ranges(Rule::matrices);
  const std::vector<kernels::UpdateRange> balances = update_ranges(Rule::balance);
  const std::vector<kernels::UpdateRange> loads = update_ranges(Rule::load);
  const std::vector<double> factors = matrix_factors();
  const auto table_bytes = [](const std::vector<kernels::UpdateRange>& table) {
    return aligned(std::ssize(table) * static_cast<Bytes>(sizeof(kernels::UpdateRange)));
  };
  const std::int64_t norms = architecture::trust_norms(config_);
  const auto list_bytes = [norms](const Lists& list) {
    const std::int64_t blocks = std::ssize(list.begins);
    return aligned(std::ssize(list.ends_of_sums) * 8) + 3 * aligned(blocks * 8) +
           aligned(norms * blocks * 8) + 2 * aligned(norms > 0 ? blocks * 8 : 0);
  };
  const std::int64_t of_experts = std::ssize(experts.ends_of_sums);
  scalars_ =
      Arena("optimizer scalars",
            list_bytes(ordinary) + list_bytes(experts) + aligned(sums * 8) +
                aligned(of_experts * 8) + aligned(kernels::status_size * 8) +
                aligned(kernels::control_size * 8) + 2 * aligned(8) + aligned(norms * sums * 8) +
                aligned(norms > 0 ? arrays * 8 : 0) + table_bytes(updates) + table_bytes(matrices) +
                table_bytes(balances) + table_bytes(loads) + aligned(std::ssize(factors) * 8));
  sums_ = scalars_.take<double>(sums);
  expert_sums_ = scalars_.take<double>(of_experts);
  status_ = scalars_.take<double>(kernels::status_size);
  norm_ = part<double>(status_, kernels::status_norm, 1);
  loss_scale_ = part<double>(status_, kernels::status_loss_scale, 1);
  control_ = scalars_.take<double>(kernels::control_size);
  for (View1<double>& scale : delayed_scales_) scale = scalars_.take<double>(1);
  trust_sums_ = scalars_.take<double>(norms * sums);
  ratios_ = scalars_.take<double>(norms > 0 ? arrays : 0);
  const Exec exec;
  const auto take_list = [&](const std::vector<std::int64_t>& list) {
    const auto taken = scalars_.take<std::int64_t>(std::ssize(list));
    copy_to_device<std::int64_t>(exec, taken, list);
    return taken;
  };
  const auto take_blocks = [&](const Lists& list) {
    const std::int64_t blocks = std::ssize(list.begins);
    NormBlocks taken;
    taken.partial = scalars_.take<double>(blocks);
    taken.begins = take_list(list.begins);
    taken.ends = take_list(list.ends);
    taken.ends_of_sums = take_list(list.ends_of_sums);
    taken.trust_partial = scalars_.take<double>(norms * blocks);
    if (norms == 0) return taken;
    taken.weight_begins = take_list(list.weight_begins);
    taken.weight_ends = take_list(list.weight_ends);
    return taken;
  };
  ordinary_ = take_blocks(ordinary);
  of_experts_ = take_blocks(experts);
  const auto take_table = [&](const std::vector<kernels::UpdateRange>& list) {
    const auto table = scalars_.take<kernels::UpdateRange>(std::ssize(list));
    kernels::UpdateRanges parts;
    parts.table = table;
    if (!list.empty())
      parts.chunks = list.back().first_chunk + kernels::chunks_of(list.back().elements);
    copy_to_device<kernels::UpdateRange>(exec, table, list);
    return parts;
  };
  parts_ = take_table(updates);
  matrix_parts_ = take_table(matrices);
  balance_parts_ = take_table(balances);
  load_parts_ = take_table(loads);
  factors_ = scalars_.take<double>(std::ssize(factors));
  copy_to_device<double>(exec, factors_, factors);
  fence(exec, "optim/lay_out_sums copies the places of blocks and arrays");
}

template <class P>
void Optimizer<P>::zero_gradients(const Exec& exec) const {
  kernels::fill(exec, parameters_->all_gradients(), typename P::Gradient(0));
}

template <class P>
void Optimizer<P>::zero_state(const Exec& exec) const {
  for (const View1<Master>& array : arrays_) kernels::fill(exec, array, Master(0));
  set_progress(exec, {});
}

template <class P>
void Optimizer<P>::set_progress(const Exec& exec, const Progress& progress) const {
  std::array<double, kernels::status_size> status{};
  status[kernels::status_skipped] = static_cast<double>(progress.skipped);
  status[kernels::status_skipped_in_row] = static_cast<double>(progress.in_row);
  status[kernels::status_skipped_sum] = -1;
  status[kernels::status_loss_scale] = progress.loss_scale;
  status[kernels::status_scale_steps] = static_cast<double>(progress.scale_steps);
  copy_to_device<double>(exec, status_, status);
  const auto at = static_cast<std::size_t>(progress.step % 2);
  const std::array scale{progress.loss_scale}, before{progress.scale_before};
  copy_to_device<double>(exec, delayed_scales_[at], scale);
  copy_to_device<double>(exec, delayed_scales_[1 - at], before);
  fence(exec, "optim/set_progress copies the run's progress");
}

template <class P>
View1<typename P::Master> Optimizer<P>::updated(const architecture::StateBlock& block) const {
  if constexpr (has_masters)
    return part<Master>(masters_, block.state, block.elements());
  else
    return own_weights(block);
}

template <class P>
View1<typename P::Compute> Optimizer<P>::own_weights(const architecture::StateBlock& block) const {
  const std::int64_t n = block.elements();
  const std::int64_t at = parameters_->entries()[block.local].offset + block.first;
  return part<typename P::Compute>(parameters_->all_weights(),
                                   n > 0 ? parameters_->weight_places().own_place(at) : 0, n);
}

template <class P>
void Optimizer<P>::copy_masters_from_weights(const Exec& exec) const {
  if constexpr (has_masters)
    for (const architecture::StateBlock& block : placement_.blocks)
      kernels::convert<Master, typename P::Compute>(
          exec, updated(block), View1<const typename P::Compute>(own_weights(block)));
}

template <class P>
void Optimizer<P>::mark_loss(const Exec& exec, View1<const double> loss) const {
  const auto& entries = parameters_->entries();
  const auto last = std::find_if(entries.rbegin(), entries.rend(), [&](const Entry& entry) {
    return entry.local.stage == parameters_->shard().last_stage() && !entry.local.copy &&
           entry.local.elements() > 0 && !entry.spec->frozen && !entry.spec->counts_tokens;
  });
  // If the last stage is frozen, gradients of earlier stages show a loss that is not finite.
  if (last == entries.rend()) return;
  kernels::mark_non_finite<typename P::Gradient>(exec, last->gradient.data, loss);
}

template <class P>
const std::string& Optimizer<P>::array_of_sum(std::int64_t sum) const {
  return architecture_.arrays.at(static_cast<std::size_t>(sum / parameters_->shard().tensor_size))
      .name;
}

template <class P>
void Optimizer<P>::combine_tied_gradients(const Exec& exec) const {
  using G = typename P::Gradient;
  const auto tied = parameters_->tied_gradient();
  // gradient of the token embedding += gradient of the logits' weights
  if (tied.data() == nullptr) return;
  const architecture::Arrangement& places = parameters_->gradient_places();
  const View1<G> all = parameters_->all_gradients();
  const std::int64_t token = parameters_->entries().front().offset;
  const std::int64_t second = parameters_->placement().tied_offset;
  // The replicas divide both gradients of the table at the same elements.
  for (const auto& own : places.kept(token, token + parameters_->placement().tied_elements))
    kernels::accumulate<G>(
        exec, part<G>(all, own.place, own.end - own.begin),
        part<const G>(all, places.own_place(second + own.begin - token), own.end - own.begin));
}

template <class P>
void Optimizer<P>::find_block_sums(const Exec& exec) const {
  // partial[b] = Σ_i g_i² over block b
  for (const NormBlocks* blocks : {&ordinary_, &of_experts_})
    if (blocks->count() > 0)
      kernels::squared_norm_blocks<typename P::Gradient>(
          exec, blocks->partial, parameters_->all_gradients(), blocks->begins, blocks->ends);
  // Each block is owned by one replica, and each sum belongs to one rank of the model. Other ranks
  // add zeros, which is exact.
  if (!placement_.whole) {
    owners_.all.all_reduce<double>(exec, ordinary_.partial, grid::Reduction::sum,
                                   "blocks of the norm");
    owners_.experts.all_reduce<double>(exec, of_experts_.partial, grid::Reduction::sum,
                                       "blocks of the norm of experts");
  }
  // sums[k] = Σ_b partial[b] over array k; norm = √Σ_k sums[k]
  sum_blocks(exec, sums_, 0, &NormBlocks::partial);
}

template <class P>
void Optimizer<P>::sum_blocks(const Exec& exec, View1<double> sums, std::int64_t norm,
                              View1<double> NormBlocks::*partial) const {
  const auto of = [&](const NormBlocks& blocks) {
    return part<const double>(blocks.*partial, norm * blocks.count(), blocks.count());
  };
  kernels::segment_sums(exec, sums, of(ordinary_), ordinary_.ends_of_sums);
  if (experts_ == nullptr) return;
  kernels::segment_sums(exec, expert_sums_, of(of_experts_), of_experts_.ends_of_sums);
  experts_->all_reduce<double>(exec, expert_sums_, grid::Reduction::sum,
                               "gradient norm of experts");
  kernels::accumulate<double>(exec, sums, expert_sums_);  // one of the two sums is 0
}

template <class P>
void Optimizer<P>::find_norm(const Exec& exec) const {
  find_block_sums(exec);
  model_group_.all_reduce<double>(exec, sums_, grid::Reduction::sum, "gradient norm");
  kernels::root_of_sum(exec, norm_, sums_);
}

template <class P>
void Optimizer<P>::begin_norm(const Exec& exec) {
  find_block_sums(exec);
  norm_sum_ = model_group_.start_all_reduce<double>(exec, sums_, grid::Reduction::sum);
}

template <class P>
void Optimizer<P>::end_norm(const Exec& exec) {
  model_group_.wait(norm_sum_, "gradient norm");
  kernels::root_of_sum(exec, norm_, sums_);
}

template <class P>
NamedTensor<typename P::Master> Optimizer<P>::tensor(const std::string& name, View1<Master> data,
                                                     const architecture::StateBlock& block) const {
  return {name, parameters_->entries()[block.local].weight.shape, block.offset, block.extent, data};
}

template <class P>
auto Optimizer<P>::state() const -> std::vector<State> {
  std::vector<State> list;
  for (const architecture::StateBlock& block : placement_.blocks) {
    const std::string& weight = parameters_->entries()[block.local].weight.name;
    State& state = list.emplace_back();
    state.local = block.local;
    state.counted = block.counted;
    state.first = block.state;
    const auto& local = parameters_->entries()[block.local].local;
    for (std::size_t i = 0; i < architecture::state_arrays_of(config_, local); ++i)
      state.arrays.push_back(tensor("optimizer." + names_[i] + "." + weight,
                                    part<Master>(arrays_[i], block.state, block.elements()),
                                    block));
    state.updated = tensor(weight, updated(block), block);
  }
  return list;
}

// Updates by AdamW, SGD, LAMB, LARS and Muon; kernels/update.hpp has the equations' sources.

template <class P>
void Optimizer<P>::step(const kernels::Handle& handle, std::int64_t step,
                        double learning_rate) const {
  update(handle, step, learning_rate, {});
}

template <class P>
void Optimizer<P>::delayed_step(const kernels::Handle& exec, std::int64_t step,
                                double learning_rate) const {
  const View1<double> scale = delayed_scales_.at(static_cast<std::size_t>(step % 2));
  update(exec, step, learning_rate, scale);
  kernels::copy<double>(exec, scale, loss_scale_);  // loss scale of step + 2
}

template <class P>
void Optimizer<P>::update(const kernels::Handle& exec, std::int64_t step, double learning_rate,
                          View1<const double> gradient_scale) const {
  // c = min(1, clip_norm / (norm + 1e-6)) / loss scale, or 1 / loss scale without clipping;
  // u = number of the update. A norm that is not finite skips the step.
  kernels::plan_update(
      exec, control_, status_, sums_,
      {step, config_.clip_norm, config_.beta1, config_.beta2, config_.maximum_skips, loss_scaling_},
      gradient_scale);
  parameters_->changed();
  switch (config_.kind) {
    case OptimizerKind::adamw:
      adamw(exec, learning_rate);
      break;
    case OptimizerKind::sgd:
      sgd(exec, learning_rate);
      break;
    case OptimizerKind::lamb:
      lamb(exec, learning_rate);
      break;
    case OptimizerKind::lars:
      lars(exec, learning_rate);
      break;
    case OptimizerKind::muon:
      muon(exec, learning_rate);
      break;
  }
  if (balance_parts_.chunks > 0)
    kernels::balance_update<Master>(exec, all_updated(), parameters_->all_gradients(),
                                    architecture_.model.experts.bias_rate, control_,
                                    balance_parts_);
  if (load_parts_.chunks > 0)
    kernels::load_update<Master>(exec, all_updated(), parameters_->all_gradients(), control_,
                                 load_parts_);
  round_weights(exec);
}

template <class P>
View1<typename P::Master> Optimizer<P>::all_updated() const {
  if constexpr (has_masters)
    return masters_;
  else
    return parameters_->all_weights();
}

template <class P>
void Optimizer<P>::round_weights(const Exec& exec) const {
  if constexpr (has_masters) {
    for (const kernels::UpdateRanges& parts : {parts_, matrix_parts_, balance_parts_, load_parts_})
      kernels::round_weights<typename P::Compute, Master>(exec, parameters_->all_weights(),
                                                          masters_, parts);
  }
}

template <class P>
kernels::AdamW Optimizer<P>::rule(double learning_rate) const {
  return {learning_rate, config_.beta1, config_.beta2, config_.epsilon, config_.weight_decay};
}

template <class P>
void Optimizer<P>::adamw(const Exec& exec, double learning_rate) const {
  // g = c gradient; m += (1 − β1) (g − m); v = β2 v + (1 − β2) g²;
  // w −= η (m / (1 − β1^u) / (√(v / (1 − β2^u)) + ε) + decay w)
  const View1<Master> first = part<Master>(arrays_[0], 0, extent(arrays_[1], 0));
  kernels::adamw_update<Master>(exec, all_updated(), first, arrays_[1],
                                parameters_->all_gradients(), rule(learning_rate), control_,
                                parts_);
}

template <class P>
void Optimizer<P>::muon(const kernels::Handle& exec, double learning_rate) const {
  // g = c gradient; m = momentum m + g; d = g + momentum m with Nesterov momentum, otherwise m, in
  // place of the gradient; O = orthogonalise(d); w −= η (factor O + decay w). Other arrays as in
  // adamw.
  kernels::muon_direction<Master>(exec, parameters_->all_gradients(), arrays_[0], config_.momentum,
                                  config_.nesterov, control_, matrix_parts_);
  muon_->orthogonalise(exec, parameters_->all_gradients(), config_.newton_schulz_steps);
  kernels::muon_update<Master>(exec, all_updated(), parameters_->all_gradients(), learning_rate,
                               config_.weight_decay, factors_, control_, matrix_parts_);
  adamw(exec, learning_rate);
}

template <class P>
void Optimizer<P>::sgd(const Exec& exec, double learning_rate) const {
  // g = c gradient + decay w; b = momentum b + g; w −= η b, or η (g + momentum b) with Nesterov
  kernels::sgd_update<Master>(
      exec, all_updated(), arrays_.empty() ? View1<Master>() : arrays_[0],
      parameters_->all_gradients(),
      {learning_rate, config_.momentum, config_.nesterov, config_.weight_decay}, control_, parts_);
}

template <class P>
void Optimizer<P>::lamb(const Exec& exec, double learning_rate) const {
  // r = m / (1 − β1^u) / (√(v / (1 − β2^u)) + ε) + decay w, in place of the gradient;
  // w −= η ratio r with ratio = |w| / |r| of each array
  kernels::lamb_direction<Master>(exec, parameters_->all_gradients(), arrays_[0], arrays_[1],
                                  all_updated(), rule(learning_rate), control_, parts_);
  find_trust_sums(exec);
  const std::int64_t sums = extent(sums_, 0);
  kernels::trust_ratios(exec, ratios_, part<const double>(trust_sums_, 0, sums),
                        part<const double>(trust_sums_, sums, sums),
                        parameters_->shard().tensor_size);
  kernels::lamb_update<Master>(exec, all_updated(), parameters_->all_gradients(), learning_rate,
                               ratios_, control_, parts_);
}

template <class P>
void Optimizer<P>::lars(const Exec& exec, double learning_rate) const {
  // g = c gradient + decay w; b = momentum b + η ratio g; w −= b
  // with ratio = coefficient |w| / (c |gradient| + decay |w|) for arrays that decay, else 1
  const kernels::Lars rule{learning_rate, config_.momentum, config_.weight_decay,
                           config_.trust_coefficient};
  find_trust_sums(exec);
  kernels::lars_ratios(exec, ratios_, trust_sums_, sums_, parameters_->shard().tensor_size, rule,
                       control_);
  kernels::lars_update<Master>(exec, all_updated(), arrays_.empty() ? View1<Master>() : arrays_[0],
                               parameters_->all_gradients(), rule, ratios_, control_, parts_);
}

/// trust_sums_ = Σ w² of each array, and for LAMB Σ r² of each direction r.
template <class P>
void Optimizer<P>::find_trust_sums(const Exec& exec) const {
  const std::int64_t sums = extent(sums_, 0);
  const std::int64_t norms = architecture::trust_norms(config_);
  for (const NormBlocks* b : {&ordinary_, &of_experts_}) {
    if (b->count() == 0) continue;
    kernels::squared_norm_blocks<typename P::Compute>(
        exec, part<double>(b->trust_partial, 0, b->count()), parameters_->all_weights(),
        b->weight_begins, b->weight_ends);
    if (norms == 2)
      kernels::squared_norm_blocks<typename P::Gradient>(
          exec, part<double>(b->trust_partial, b->count(), b->count()),
          parameters_->all_gradients(), b->begins, b->ends);
  }
  if (!placement_.whole) {
    owners_.all.all_reduce<double>(exec, ordinary_.trust_partial, grid::Reduction::sum,
                                   "blocks of the trust ratios");
    owners_.experts.all_reduce<double>(exec, of_experts_.trust_partial, grid::Reduction::sum,
                                       "blocks of the trust ratios of experts");
  }
  for (std::int64_t i = 0; i < norms; ++i)
    sum_blocks(exec, part<double>(trust_sums_, i * sums, sums), i, &NormBlocks::trust_partial);
  model_group_.all_reduce<double>(exec, trust_sums_, grid::Reduction::sum, "trust ratios");
}

template class Optimizer<model::Fp32>;
template class Optimizer<model::Fp64>;
template class Optimizer<model::MixedBf16>;
template class Optimizer<model::MixedFp16>;

}  // namespace trireme::optim
