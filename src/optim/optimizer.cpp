// The optimizer's state, the global norm of the gradients, and the updates.
#include <trireme/optim/optimizer.hpp>

#include <trireme/architecture/frozen.hpp>
#include <trireme/base/text.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/update_rules.hpp>
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
                        std::int64_t capacity, const Options& options)
    : config_(config),
      options_(options),
      architecture_(architecture),
      parameters_(&parameters),
      model_group_(model_group),
      owners_(owners),
      placement_(std::move(placement)),
      capacity_(capacity) {
  const rules::Description& rule = config.rule();
  const bool apart = rule.matrices != rules::Matrices::none;
  const std::int64_t others = apart ? options.other_capacity : capacity;
  check(placement_.elements <= capacity, "optimizer state has ", placement_.elements,
        " elements, but its arenas hold ", capacity);
  check(placement_.others <= others, "optimizer state of other arrays has ", placement_.others,
        " elements, but its arenas hold ", others);
  check(!apart || options.tensor != nullptr, "an optimizer of kind ", rule.word,
        " needs the group of tensor ranks");
  for (const rules::StateArray& state : rule.states(config))
    if (state.shape == rules::Shape::weights) states_.push_back(state);
  const bool narrow = config.moments == Moments::bf16;
  const auto take = [&](Arena& arena) {
    arrays_.clear();
    for (const rules::StateArray& state : states_) {
      const std::int64_t n = state.of == rules::Arrays::others ? others : capacity;
      kernels::StateView<Master>& view = arrays_.emplace_back();
      if (narrow)
        view.narrow = arena.take<Bf16>(n);
      else
        view.full = arena.take<Master>(n);
    }
    if (has_masters) masters_ = arena.take<Master>(capacity);
    rows_ = arena.take<Master>(factors_of_arrays_.rows);
    columns_ = arena.take<Master>(factors_of_arrays_.columns);
  };
  factors_of_arrays_ = architecture::factors(architecture, parameters.rank_arrays(), config);
  Arena plan;
  take(plan);
  state_ = Arena("optimizer state", plan.used(), options.state_memory);
  take(state_);
  if (rule.has(rules::PassKind::whole_matrices, config))
    muon_.emplace(architecture, parameters, *options.tensor, owners, placement_);
  if (const Bytes bytes = factors_of_arrays_.sum_bytes(); bytes > 0) {
    sums_memory_ = Arena("sums of rows and columns", aligned(bytes));
    factor_sums_ = sums_memory_.take<double>(factors_of_arrays_.sums());
  }
  lay_out_sums();
}

template <class P>
auto Optimizer<P>::lay_out_factors() -> FactorLists {
  FactorLists lists;
  const architecture::Arrangement& places = parameters_->gradient_places();
  for (const architecture::FactoredArray& f : factors_of_arrays_.arrays) {
    const Entry& entry = parameters_->entries()[f.local];
    kernels::FactoredMatrices& a = lists.arrays.emplace_back();
    a.local_rows = f.local_rows;
    a.local_columns = f.local_columns;
    a.rows = f.rows;
    a.columns = f.columns;
    a.first_matrix = f.first_matrix;
    a.first_row = f.first_row;
    a.first_column = f.first_column;
    a.row_state = f.row_state;
    a.column_state = f.column_state;
    a.matrices = f.matrices;
    a.first_mean = factored_.matrices;
    const std::int64_t each = f.local_rows * f.local_columns;
    a.local_matrices = each > 0 ? entry.local.elements() / each : 0;
    a.first_local_row = factored_.rows;
    a.first_column_chunk = factored_.column_chunks;
    a.first_range = std::ssize(lists.ranges);
    for (const architecture::Piece& piece : entry.local.pieces) {
      // One holder of this stage adds the piece, also of copies, which no norm counts. Replicas
      // that divide the experts sum over one another what they have whole.
      const bool adds =
          piece.holders.offset == parameters_->shard().tensor_rank &&
          (!placement_.whole || entry.local.of_experts || parameters_->shard().expert_rank == 0);
      const std::int64_t begin = entry.offset + piece.first, end = begin + piece.elements();
      for (const layout::Slice& own : placement_.owned) {
        const std::int64_t from = std::max(begin, own.offset), to = std::min(end, own.end());
        if (adds && from < to)
          lists.ranges.push_back({from - entry.offset, to - entry.offset, places.own_place(from)});
      }
    }
    a.ranges = std::ssize(lists.ranges) - a.first_range;
    factored_.matrices += f.matrices;
    factored_.rows += a.local_matrices * f.local_rows;
    factored_.column_chunks +=
        a.local_matrices * ((f.local_columns + kernels::column_chunk - 1) / kernels::column_chunk);
  }
  return lists;
}

template <class P>
auto Optimizer<P>::group_of(const Entry& entry) const -> Group {
  if (entry.spec->counts_tokens) return entry.spec->is_load ? Group::load : Group::balance;
  return rules::as_matrices(config_.rule().matrices, entry.local.matrix) ? Group::matrices
                                                                         : Group::others;
}

template <class P>
std::vector<kernels::UpdateRange> Optimizer<P>::update_ranges(Group group) const {
  std::vector<kernels::UpdateRange> parts;
  std::int64_t chunks = 0;
  for (const architecture::StateBlock& block : placement_.blocks) {
    if (block.elements() == 0) continue;
    const Entry& entry = parameters_->entries()[block.local];
    if (group_of(entry) != group) continue;
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
    part.local = block.first;
    if (const auto found = std::ranges::find(factors_of_arrays_.arrays, block.local,
                                             &architecture::FactoredArray::local);
        found != factors_of_arrays_.arrays.end())
      part.factored = found - factors_of_arrays_.arrays.begin();
    // Elements from the last divided dimension on are contiguous in both arrays. Of those before
    // it, only the first may be divided.
    const std::vector<std::int64_t>& shape = entry.spec->shape;
    const std::size_t axis =
        entry.spec->cuts.empty() ? 0 : static_cast<std::size_t>(entry.spec->cuts.back().dimension);
    const std::int64_t inner = architecture::product(shape, axis + 1, shape.size());
    part.run = entry.local.extent[axis] * inner;
    part.stride = shape[axis] * inner;
    part.first = entry.local.offset[axis] * inner;
    if (axis > 0)
      part.first += entry.local.offset[0] * architecture::product(shape, 1, axis) * part.stride;
    chunks += kernels::chunks_of(part.elements);
  }
  return parts;
}

/// Constant factors of the arrays with whole matrices.
template <class P>
std::vector<double> Optimizer<P>::matrix_factors() const {
  std::vector<double> factors(architecture_.arrays.size(), 1.0);
  if (muon_)
    muon_->visit([&](const architecture::HiddenMatrix& m) {
      factors[parameters_->entries()[m.local].number()] = config_.rule().factor(
          config_, static_cast<double>(m.rows), static_cast<double>(m.columns));
    });
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
  experts.ends_of_sums.resize(options_.experts != nullptr ? static_cast<std::size_t>(sums) : 0);
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
  const std::vector<kernels::UpdateRange> updates = update_ranges(Group::others);
  const std::vector<kernels::UpdateRange> matrices = update_ranges(Group::matrices);
  const std::vector<kernels::UpdateRange> balances = update_ranges(Group::balance);
  const std::vector<kernels::UpdateRange> loads = update_ranges(Group::load);
  const auto table_bytes = [](const std::vector<kernels::UpdateRange>& table) {
    return aligned(std::ssize(table) * static_cast<Bytes>(sizeof(kernels::UpdateRange)));
  };
  const std::int64_t norms = config_.rule().norms(config_);
  std::vector<double> factors, elements;
  if (muon_ || norms > 0) factors = matrix_factors();
  if (norms > 0)
    for (const architecture::ArraySpec& array : architecture_.arrays)
      elements.push_back(static_cast<double>(array.elements()));
  const std::vector<double> rates = architecture::rate_factors(architecture_, config_);
  const FactorLists of_factors = lay_out_factors();
  const auto list_bytes = [norms](const Lists& list) {
    const std::int64_t blocks = std::ssize(list.begins);
    return aligned(std::ssize(list.ends_of_sums) * 8) + 3 * aligned(blocks * 8) +
           aligned(norms * blocks * 8) + 2 * aligned(norms > 0 ? blocks * 8 : 0);
  };
  const std::int64_t of_experts = std::ssize(experts.ends_of_sums);
  scalars_ = Arena(
      "optimizer scalars",
      list_bytes(ordinary) + list_bytes(experts) + aligned(sums * 8) + aligned(of_experts * 8) +
          aligned(kernels::status_size * 8) + aligned(kernels::control_size * 8) + 2 * aligned(8) +
          aligned(norms * sums * 8) + aligned(std::ssize(elements) * 8) + table_bytes(updates) +
          table_bytes(matrices) + table_bytes(balances) + table_bytes(loads) +
          aligned(std::ssize(factors) * 8) + aligned(std::ssize(rates) * 8) +
          aligned(std::ssize(of_factors.arrays) *
                  static_cast<Bytes>(sizeof(kernels::FactoredMatrices))) +
          aligned(std::ssize(of_factors.ranges) *
                  static_cast<Bytes>(sizeof(kernels::SummedRange))) +
          aligned(factored_.matrices * 8));
  sums_ = scalars_.take<double>(sums);
  expert_sums_ = scalars_.take<double>(of_experts);
  status_ = scalars_.take<double>(kernels::status_size);
  norm_ = part<double>(status_, kernels::status_norm, 1);
  loss_scale_ = part<double>(status_, kernels::status_loss_scale, 1);
  control_ = scalars_.take<double>(kernels::control_size);
  for (View1<double>& scale : delayed_scales_) scale = scalars_.take<double>(1);
  trust_sums_ = scalars_.take<double>(norms * sums);
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
  if (!rates.empty()) {
    rates_ = scalars_.take<double>(std::ssize(rates));
    copy_to_device<double>(exec, rates_, rates);
  }
  elements_ = scalars_.take<double>(std::ssize(elements));
  copy_to_device<double>(exec, elements_, elements);
  const auto take_all = [&]<class T>(const std::vector<T>& list) {
    const auto taken = scalars_.take<T>(std::ssize(list));
    copy_to_device<T>(exec, taken, list);
    return taken;
  };
  factored_.arrays = take_all(of_factors.arrays);
  factored_.ranges = take_all(of_factors.ranges);
  factor_means_ = scalars_.take<double>(factored_.matrices);
  fence(exec, "optim/lay_out_sums copies the places of blocks and arrays");
}

template <class P>
void Optimizer<P>::zero_gradients(const Exec& exec) const {
  kernels::fill(exec, parameters_->all_gradients(), typename P::Gradient(0));
}

template <class P>
void Optimizer<P>::zero_state(const Exec& exec) const {
  for (const kernels::StateView<Master>& array : arrays_) {
    kernels::fill(exec, array.full, Master(0));
    kernels::fill(exec, array.narrow, Bf16(0));
  }
  kernels::fill(exec, rows_, Master(0));
  kernels::fill(exec, columns_, Master(0));
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
  if (options_.experts == nullptr) return;
  kernels::segment_sums(exec, expert_sums_, of(of_experts_), of_experts_.ends_of_sums);
  options_.experts->template all_reduce<double>(exec, expert_sums_, grid::Reduction::sum,
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
template <class T>
NamedTensor<T> Optimizer<P>::tensor(const std::string& name, View1<T> data,
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
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (!architecture::has_state(config_, states_[i], local)) continue;
      const std::string name = text("optimizer.", states_[i].name, ".", weight);
      if (config_.moments == Moments::bf16)
        state.narrow_arrays.push_back(tensor<Bf16>(
            name, part<Bf16>(arrays_[i].narrow, block.state, block.elements()), block));
      else
        state.arrays.push_back(tensor<Master>(
            name, part<Master>(arrays_[i].full, block.state, block.elements()), block));
    }
    state.updated = tensor<Master>(weight, updated(block), block);
  }
  return list;
}

template <class P>
auto Optimizer<P>::factor_state() const -> std::vector<FactorState> {
  std::vector<FactorState> list;
  const std::vector<architecture::MatrixAxes> axes = architecture::matrix_axes(architecture_);
  for (const architecture::FactoredArray& f : factors_of_arrays_.arrays) {
    const Entry& entry = parameters_->entries()[f.local];
    for (const rules::StateArray& state : config_.rule().states(config_)) {
      if (state.shape == rules::Shape::weights) continue;
      const bool of_rows = state.shape == rules::Shape::rows;
      FactorState& one = list.emplace_back();
      one.name = text("optimizer.", state.name, ".", entry.weight.name);
      one.shape =
          architecture::factor_shape(entry.spec->shape, axes[entry.local.number], state.shape);
      one.offset.assign(one.shape.size(), 0);
      one.extent = one.shape;
      one.data = of_rows ? part<Master>(rows_, f.row_state, f.matrices * f.rows)
                         : part<Master>(columns_, f.column_state, f.matrices * f.columns);
      one.copy = entry.local.copy;
    }
  }
  return list;
}

// Updates: rules/ has the equations and their sources.

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
  kernels::plan_update(exec, control_, status_, sums_,
                       {step, config_.clip_norm, config_.beta1, config_.beta2,
                        config_.maximum_skips, options_.loss_scaling},
                       gradient_scale);
  parameters_->changed();
  kernels::UpdateStep arguments{config_.kind, config_, learning_rate, control_,
                                factors_,     {},      rates_};
  arguments.rounding = {options_.seed, Purpose::rounding, 0, static_cast<std::uint32_t>(step)};
  for (const rules::Pass& pass : config_.rule().passes(config_)) run(exec, pass, arguments);
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
kernels::UpdateArenas<typename P::Master> Optimizer<P>::arenas() const {
  kernels::UpdateArenas<Master> arenas{all_updated(), parameters_->all_gradients(), {}};
  std::copy(arrays_.begin(), arrays_.end(), arenas.states.begin());
  return arenas;
}

template <class P>
void Optimizer<P>::run(const kernels::Handle& exec, const rules::Pass& pass,
                       const kernels::UpdateStep& step) const {
  switch (pass.kind) {
    case rules::PassKind::elements:
      if (pass.of != rules::Arrays::matrices)
        kernels::element_pass<Master>(exec, pass.number, arenas(), step, parts_);
      if (pass.of != rules::Arrays::others)
        kernels::element_pass<Master>(exec, pass.number, arenas(), step, matrix_parts_);
      return;
    case rules::PassKind::norms: {
      find_trust_sums(exec, pass.norms);
      const std::int64_t sums = extent(sums_, 0);
      const View1<const double> other =
          pass.norms > 1 ? part<const double>(trust_sums_, sums, sums) : sums_;
      kernels::find_factors(exec, pass.number, factors_, part<const double>(trust_sums_, 0, sums),
                            other, elements_, parameters_->shard().tensor_size, step);
      return;
    }
    case rules::PassKind::whole_matrices:
      muon_->orthogonalise(exec, parameters_->all_gradients(), config_.newton_schulz_steps);
      return;
    case rules::PassKind::means: {
      constexpr auto label = "sums of rows and columns";
      kernels::sum_squares<Master>(exec, factor_views(), parameters_->all_gradients(), control_,
                                   factored_);
      options_.tensor->template all_reduce<double>(exec, factor_sums_, grid::Reduction::sum, label);
      if (!placement_.whole)
        owners_.all.template all_reduce<double>(exec, factor_sums_, grid::Reduction::sum, label);
      else if (options_.experts != nullptr)
        options_.experts->template all_reduce<double>(exec, factor_sums_, grid::Reduction::sum,
                                                      label);
      kernels::move_means<Master>(exec, pass.number, factor_views(), step, factored_);
      return;
    }
    case rules::PassKind::factored:
      kernels::factored_pass<Master>(exec, pass.number, parameters_->all_gradients(),
                                     factor_views(), step, factored_, matrix_parts_);
      return;
  }
}

template <class P>
kernels::FactorViews<typename P::Master> Optimizer<P>::factor_views() const {
  return {rows_, columns_, factor_sums_, factor_means_};
}

/// trust_sums_ = Σ w² of each array, and with two norms Σ d² of what is in the gradient's place.
template <class P>
void Optimizer<P>::find_trust_sums(const Exec& exec, std::int64_t norms) const {
  const std::int64_t sums = extent(sums_, 0);
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
