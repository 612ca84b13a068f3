// Router, choice of experts, and the experts' products and activation.
#include <trireme/model/expert_operations.hpp>

#include <trireme/architecture/objective.hpp>
#include <trireme/kernels/cross_entropy.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/expert_capacity.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>

namespace trireme::model {

namespace choice = architecture::choice;

// ---- products of rows

template <class P>
RowProductOperation<P>::RowProductOperation(const architecture::Operation& op,
                                            const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      linear_(place.parameters, place.array(op.arrays.front().name),
              op.bias().empty() ? "" : place.array(op.bias()), op.arrays.front().shape[0],
              op.arrays.front().shape[1]),
      is_wide_(place.plan.description.tensors[architecture::at(op.output)].numbers ==
               architecture::Numbers::accumulate) {}

template <class P>
void RowProductOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  if (!is_wide_)
    return linear_.forward(c.handle, c.values.matrix(this->op_.output),
                           c.values.matrix(this->op_.input()));
  kernels::linear_forward_wide<T>(c.handle, c.values.sums(this->op_.output),
                                  c.values.matrix(this->op_.input()), linear_.w, linear_.b);
}

template <class P>
void RowProductOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                            bool) const {
  linear_.backward_input(c.handle, c.values.gradient(this->op_.input()),
                         c.values.gradient(this->op_.output));
}

template <class P>
void RowProductOperation<P>::backward_weight(const PassArguments<P>& c) const {
  linear_.backward_weight(c.handle, c.values.gradient(this->op_.output),
                          c.values.matrix(this->op_.input()));
}

// ---- choice

namespace {

kernels::ExpertChoice choice_of(const deck::ExpertsConfig& e) {
  return {e.active, e.normalised, e.score == ExpertScore::sigmoid,
          e.scale,  e.groups,     e.active_groups};
}

/// If tensor ranks split every expert, each of them has the experts of its replica.
kernels::ExpertParts parts_of(const deck::ExpertsConfig& e, const architecture::Shard& shard) {
  if (e.split) return {e.number, shard.expert_size, 1, 0};
  return {e.number, shard.expert_size, shard.tensor_size, shard.tensor_rank};
}

}  // namespace

template <class P>
ChoiceOperation<P>::ChoiceOperation(const architecture::Operation& op,
                                    const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      choice_(choice_of(place.model().experts)),
      parts_(parts_of(place.model().experts, place.parameters.shard())),
      copies_(place.axis.experts()),
      held_(place.parameters.shard().part_of(
          {0,
           architecture::rows_of_experts(architecture::Rows::bounds, place.model()).experts.divide},
          place.model().experts.number)),
      experts_(place.model().experts),
      sequence_(place.model().sequence) {
  const architecture::TrainingObjective objective = architecture::objective_of(place.model());
  const auto sum_of = [&](std::string_view loss) {
    return objective.loss_sum(loss) + place.layer();
  };
  counts_sum_ = objective.expert_sum(place.layer());
  if (objective.drops) dropped_sum_ = objective.dropped_sum(place.layer());
  for (const architecture::ArraySpec& array : op.arrays) {
    const std::string name = place.array(array.name);
    (array.is_load ? load_ : bias_) = place.parameters.weight(name, experts_.number);
    if (const auto counts = place.parameters.gradient(name, experts_.number); counts.extent(0) > 0)
      counts_.push_back(counts);
  }
  if (experts_.balances()) balance_sum_ = sum_of(architecture::balance_loss);
  if (experts_.limits_logits()) z_sum_ = sum_of(architecture::router_z_loss);
}

template <class P>
void ChoiceOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  using A = Accumulate<T>;
  const auto& v = c.values;
  const View2<A> logits = v.sums(this->op_.input());
  const View2<A> scores = v.sums(this->op_.saved[choice::scores]);
  const View2<A> all = token_routes(c);
  const View2<A> own = axis_.own_rows(all);
  if (experts_.limits_logits())
    kernels::log_sums_of_exponentials<A>(c.handle, v.list(this->op_.saved[choice::log_sums]),
                                         logits);
  if (scores.data() != logits.data())
    kernels::copy<A>(c.handle, flat(scores), flat<const A>(logits));
  kernels::choose_experts<A, T>(c.handle, own, scores, bias_, choice_);
  if (const auto tokens = own_sample_tokens(c); tokens.extent(0) > 0)
    kernels::leave_out_padding<A>(
        c.handle, own, scores,
        experts_.limits_logits() ? v.list(this->op_.saved[choice::log_sums]) : View1<A>(), tokens);
  axis_.gather(c.handle, all, own, "experts, choices, forward");
  drop(c, axis_.is_complete() ? all : own);
  const View2<A> routes = axis_.experts().divides() ? exchange(c) : axis_.is_complete() ? all : own;
  kernels::order_routes<A>(
      c.handle, flat(v.template numbers<std::int32_t>(this->op_.saved[choice::order])),
      flat(v.template numbers<std::int32_t>(this->op_.saved[choice::bounds])), routes, held_);
  if (!c.context.evaluates()) return;
  add_losses(c, {});
  add_counts(c);
}

template <class P>
View1<const std::int32_t> ChoiceOperation<P>::own_sample_tokens(const PassArguments<P>& c) const {
  const View1<const std::int32_t> all = c.context.sample_tokens;
  return all.extent(0) > 0 ? part(all, axis_.rows()) : all;
}

template <class P>
void ChoiceOperation<P>::drop(const PassArguments<P>& c, View2<Accumulate<T>> routes) const {
  using A = Accumulate<T>;
  const ContextAxis& context = axis_.context();
  const bool divides = context.size() > 1;
  const std::int64_t limit = experts_.tokens_per_sample(sequence_);
  std::int64_t tokens = divides ? sequence_ : c.values.sizes().sequence;
  // Without the other ranks' choices, as in measurements, the own ones are those of one sample.
  if (!axis_.is_complete()) tokens = extent(routes, 0);
  if (limit >= tokens) return;
  kernels::SampleChunks chunks{tokens, tokens};
  if (divides)
    chunks = {context.places().held, context.places().head.count, context.rank(),
              2 * context.size() - 1 - context.rank(), 2 * context.size()};
  const View2<A> counts = rows_of(c.values.sums(this->op_.scratch[choice::chunk_counts]), 0,
                                  extent(routes, 0) / chunks.tokens * chunks.count);
  kernels::count_chunks<A>(c.handle, counts, routes, chunks);
  context.sum(c.handle, counts, "experts, tokens of chunks, forward");
  const View1<const std::int32_t> own = own_sample_tokens(c);
  kernels::TokenLimit most = limit;
  if (own.extent(0) > 0)
    most = {experts_.capacity, axis_.is_complete() ? c.context.sample_tokens : own};
  kernels::drop_routes<A>(c.handle, routes, counts, chunks, most);
}

template <class P>
auto ChoiceOperation<P>::exchange(const PassArguments<P>& c) const -> View2<Accumulate<T>> {
  using A = Accumulate<T>;
  const auto& v = c.values;
  const View2<A> all = token_routes(c);
  const View2<A> routes = axis_.is_complete() ? all : axis_.own_rows(all);
  const auto order = flat(v.template numbers<std::int32_t>(this->op_.saved[choice::sent]));
  const auto bounds = flat(v.template numbers<std::int32_t>(this->op_.saved[choice::copy_bounds]));
  kernels::list_copies<A>(c.handle, order, part(bounds, 0, axis_.experts().size() + 1), routes,
                          parts_);
  copies_.exchange_bounds(c.handle, bounds);
  return copies_.send<A>(c.handle, v.sums(this->op_.output),
                         v.sums(this->op_.scratch[choice::sent_routes]), routes, order,
                         "experts, choices to the experts, forward");
}

/// balance_loss = weight Σ_b E / (k S) Σ_e n[b, e] P[b, e], with the number n of a sample's tokens
/// that use expert e, and the mean P of their scores (DeepSeek-AI 2024, arXiv 2412.19437, eq. 17 to
/// 20). With balance = "batch", the load of expert e in the previous step takes the place of E n /
/// (k S) (as in Fedus et al. 2021, arXiv 2101.03961, eq. 4, but one step late). router_z_loss =
/// weight Σ_t (log Σ_e exp(logits[t, e]))². Means are over the global batch. Rows of padding have
/// no losses; S of a padded sample is the number of its tokens, and means over tokens leave them
/// out.
template <class P>
void ChoiceOperation<P>::add_losses(const PassArguments<P>& c, View2<Accumulate<T>> dlogits) const {
  using A = Accumulate<T>;
  if (balance_sum_ < 0 && z_sum_ < 0) return;
  const auto& v = c.values;
  const View2<A> scores = v.sums(this->op_.saved[choice::scores]);
  const View1<double> rows =
      flat(v.template numbers<double>(this->op_.scratch[choice::row_losses]));
  const auto S = static_cast<double>(sequence_);
  const View1<const std::int32_t> tokens = own_sample_tokens(c);
  const bool has_padding = tokens.extent(0) > 0;
  const double mean = c.context.mean_tokens > 0 ? c.context.mean_tokens : S;
  const double weight = c.context.sample_weight;
  if (load_.extent(0) > 0) {
    const View2<const T> loads(load_.data(), 1, load_.extent(0));
    kernels::balance_experts<A, T>(
        c.handle, rows, dlogits, scores, loads, {0, std::max<std::int64_t>(1, extent(scores, 0))},
        experts_.balance_weight / mean, {weight, c.context.loss_scale}, choice_.sigmoid);
    add_sum(c, rows, balance_sum_);
  } else if (balance_sum_ >= 0) {
    const View2<A> counts = v.sums(this->op_.scratch[choice::counts]);
    kernels::fill(c.handle, flat(counts), 0.0);
    if (axis_.is_complete()) kernels::count_experts<A>(c.handle, counts, token_routes(c));
    axis_.context().sum(c.handle, counts, "experts, tokens of samples");
    const double factor = experts_.balance_weight * static_cast<double>(experts_.number) /
                          (static_cast<double>(experts_.active) * (has_padding ? 1.0 : S * S));
    kernels::balance_experts<A, A>(c.handle, rows, dlogits, scores, counts,
                                   {axis_.rows().offset, v.sizes().sequence, tokens}, factor,
                                   {weight, c.context.loss_scale}, choice_.sigmoid);
    add_sum(c, rows, balance_sum_);
  }
  if (z_sum_ < 0) return;
  kernels::limit_logits<A>(c.handle, rows, dlogits, scores,
                           v.list(this->op_.saved[choice::log_sums]),
                           experts_.z_weight * (S / mean), {weight / S, c.context.loss_scale});
  add_sum(c, rows, z_sum_);
}

/// Ranks that have the same rows count them once. Evaluations count only some samples.
template <class P>
std::int64_t ChoiceOperation<P>::counted_rows(const PassArguments<P>& c) const {
  if (c.context.losses.extent(0) == 0 || (!axis_.cuts_tokens() && axis_.rank() > 0)) return 0;
  const std::int64_t rows = axis_.rows().extent;
  if (!c.context.evaluates()) return rows;
  return std::clamp<std::int64_t>(
      c.context.samples * c.values.sizes().sequence - axis_.rows().offset, 0, rows);
}

template <class P>
void ChoiceOperation<P>::add_sum(const PassArguments<P>& c, View1<double> rows,
                                 std::int64_t sum) const {
  if (const std::int64_t counted = counted_rows(c); counted > 0)
    kernels::sum_ordered(c.handle, part(c.context.losses, {sum, 1}), part(rows, {0, counted}));
}

template <class P>
void ChoiceOperation<P>::add_counts(const PassArguments<P>& c) const {
  using A = Accumulate<T>;
  if ((axis_.cuts_tokens() || axis_.rank() == 0) && !c.context.evaluates())
    for (const View1<typename P::Gradient>& counts : counts_)
      kernels::count_experts<A, typename P::Gradient>(
          c.handle, trireme::matrix(counts, 1, experts_.number), axis_.own_rows(token_routes(c)));
  const std::int64_t counted = counted_rows(c);
  if (counted == 0) return;
  const View2<const A> routes = rows_of(axis_.own_rows(token_routes(c)), 0, counted);
  const View1<double> counts = part(c.context.losses, {counts_sum_, experts_.number});
  kernels::count_experts<A, double>(c.handle, trireme::matrix(counts, 1, experts_.number), routes);
  if (dropped_sum_ >= 0)
    kernels::count_dropped<A>(c.handle, part(c.context.losses, {dropped_sum_, 1}), routes);
}

template <class P>
void ChoiceOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                        bool) const {
  using A = Accumulate<T>;
  const auto& v = c.values;
  View2<A> gradients = v.gradient_sums(this->op_.output);
  if (axis_.experts().divides()) {
    copies_.read(c.handle,
                 flat(v.template numbers<std::int32_t>(this->op_.saved[choice::copy_bounds])));
    const View2<A> received = rows_of(gradients, 0, copies_.received());
    gradients = v.sums(this->op_.scratch[choice::token_gradients]);
    kernels::fill(c.handle, flat(gradients), 0.0);
    copies_.bring_back<A>(c.handle, gradients, v.sums(this->op_.scratch[choice::sent_routes]),
                          received,
                          flat(v.template numbers<std::int32_t>(this->op_.saved[choice::sent])),
                          "experts, weights from the experts, backward");
  }
  const View2<A> own =
      axis_.cuts_tokens() ? v.sums(this->op_.scratch[choice::own_routes]) : gradients;
  const View2<A> of_logits = v.sums(this->op_.scratch[choice::score_gradients]);
  axis_.reduce(c.handle, own, gradients, "experts, weights, backward");
  kernels::choose_experts_backward<A>(c.handle, of_logits, own, axis_.own_rows(token_routes(c)),
                                      v.sums(this->op_.saved[choice::scores]), choice_);
  add_losses(c, of_logits);
  add_counts(c);
  kernels::round_sums<T>(c.handle, v.gradient(this->op_.input()), of_logits);
}

// ---- products

std::int64_t RoutedRows::read(const Exec& exec, View1<std::int32_t> bounds) {
  copy_to_host<std::int32_t>(exec, bounds_, bounds, "rows of experts");
  check(bounds_.back() <= most_, "experts have ", bounds_.back(), " rows, but only ", most_,
        " are planned");
  return bounds_.back();
}

template <class P>
ExpertProductOperation<P>::ExpertProductOperation(const architecture::Operation& op,
                                                  const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      axis_(place.axis),
      outputs_(columns_of(op.output, place)),
      linear_(place.parameters, place.array(op.arrays.front().name),
              op.bias().empty() ? "" : place.array(op.bias()),
              matrices_of(place.plan.description, op, place.plan.sizes) * outputs_,
              columns_of(op.input(), place)),
      adds_bias_(adds_bias(place)),
      active_(place.model().experts.active),
      routed_(matrices_of(place.plan.description, op, place.plan.sizes),
              rows_of(architecture::rows_of_experts(architecture::Rows::routed, place.model()),
                      place.plan.sizes)),
      copies_(place.axis.experts()),
      input_forward_(op.name + ", input, forward"),
      input_backward_(op.name + ", input, backward"),
      input_again_(op.name + ", input again, backward"),
      output_forward_(op.name + ", output, forward"),
      output_backward_(op.name + ", output, backward") {}

template <class P>
template <class Use>
void ExpertProductOperation<P>::visit(const PassArguments<P>& c, Use&& use) const {
  const auto& v = c.values;
  const auto order = flat(v.template numbers<std::int32_t>(this->op_.inputs[Input::order]));
  routed_.read(c.handle, flat(v.template numbers<std::int32_t>(this->op_.inputs[Input::bounds])));
  for (std::int64_t e = 0; e < routed_.experts(); ++e) {
    const layout::Slice rows = routed_.rows(e);
    if (rows.extent == 0) continue;
    const layout::Slice weights{e * outputs_, outputs_};
    const auto own = [&](const auto& all) {
      return all.data() == nullptr ? all : part(all, weights);
    };
    use(Expert{own(linear_.w), own(linear_.b), own(linear_.dw), own(linear_.db), rows,
               part(order, rows),
               rows_of(v.matrix(this->op_.scratch[Work::rows]), 0, rows.extent)});
  }
}

template <class P>
std::int64_t ExpertProductOperation<P>::read_copies(const PassArguments<P>& c) const {
  copies_.read(c.handle,
               flat(c.values.template numbers<std::int32_t>(this->op_.inputs[Input::copy_bounds])));
  return copies_.received();
}

template <class P>
auto ExpertProductOperation<P>::received(const PassArguments<P>& c, View2<T> rows,
                                         const std::string& what) const -> View2<T> {
  if (!axis_.experts().divides()) return rows;
  read_copies(c);
  return copies_.send<T>(c.handle, c.values.matrix(this->op_.scratch[Work::received_rows]),
                         c.values.matrix(this->op_.scratch[Work::sent_rows]), rows, copied(c),
                         what.c_str());
}

template <class P>
template <class Use>
void ExpertProductOperation<P>::sum(const PassArguments<P>& c, View2<T> to, const std::string& what,
                                    Use&& product) const {
  const bool divided = axis_.experts().divides();
  const View2<Accumulate<T>> all = c.values.sums(this->op_.scratch[Work::sums]);
  View2<Accumulate<T>> sums = divided ? rows_of(all, 0, read_copies(c)) : all;
  kernels::fill(c.handle, flat(sums), 0.0);
  visit(c, [&](const Expert& e) {
    product(e);
    kernels::add_routed<T>(c.handle, sums, e.rows, e.order, active_);
  });
  if (divided) {
    const View2<T> rounded =
        rows_of(c.values.matrix(this->op_.scratch[Work::received_rows]), 0, copies_.received());
    kernels::round_sums<T>(c.handle, rounded, sums);
    check(axis_.tokens() <= extent(all, 0), what, ": sums of ", axis_.tokens(),
          " tokens, but memory for ", extent(all, 0));
    sums = rows_of(all, 0, axis_.tokens());
    kernels::fill(c.handle, flat(sums), 0.0);
    copies_.bring_back<T>(c.handle, sums, c.values.matrix(this->op_.scratch[Work::sent_rows]),
                          rounded, copied(c), what.c_str());
  }
  kernels::round_sums<T>(c.handle, axis_.partial(c.scratch.all(axis_, to), to), sums);
  axis_.reduce(c.handle, to, c.scratch.all(axis_, to), what.c_str());
}

template <class P>
void ExpertProductOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  const View2<T> x = c.values.matrix(this->op_.input());
  const View2<T> y = c.values.matrix(this->op_.output);
  if (this->op_.cut == architecture::Cut::inputs)
    return sum(c, y, output_forward_, [&](const Expert& e) {
      kernels::linear_forward<T>(c.handle, e.rows, part(x, e.routed), e.weights, View1<T>());
      if (weighs_bias() && adds_bias_)
        kernels::add_weighed_bias<T>(c.handle, e.rows, e.bias, weights(c), e.order);
    });
  const View2<T> all =
      received(c, axis_.gather(c.handle, c.scratch.all(axis_, x), x, input_forward_.c_str()),
               input_forward_);
  visit(c, [&](const Expert& e) {
    kernels::pick_routed<T>(c.handle, e.rows, all, e.order, active_);
    kernels::linear_forward<T>(c.handle, part(y, e.routed), e.rows, e.weights, e.bias);
  });
}

template <class P>
void ExpertProductOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                               bool) const {
  const View2<T> dx = c.values.gradient(this->op_.input());
  const View2<T> dy = c.values.gradient(this->op_.output);
  if (this->op_.cut == architecture::Cut::outputs)
    return sum(c, dx, input_backward_, [&](const Expert& e) {
      kernels::linear_backward_input<T>(c.handle, e.rows, part(dy, e.routed), e.weights);
    });
  const View2<T> all =
      received(c, axis_.gather(c.handle, dy, axis_.own_rows(dy), output_backward_.c_str()),
               output_backward_);
  View2<Accumulate<T>> of_weights;
  if (weighs_bias()) {
    of_weights = c.values.gradient_sums(this->op_.inputs[Input::weights]);
    kernels::fill(c.handle, flat(of_weights), 0.0);
  }
  visit(c, [&](const Expert& e) {
    kernels::pick_routed<T>(c.handle, e.rows, all, e.order, active_);
    if (weighs_bias() && adds_bias_)
      kernels::dot_bias<T>(c.handle, of_weights, e.rows, e.bias, e.order);
    kernels::linear_backward_input<T>(c.handle, part(dx, e.routed), e.rows, e.weights);
  });
}

/// dW of each expert += dyᵀ x over its rows, ascending by token, and db += Σ dy, or with weights db
/// += Σ weight dy.
template <class P>
void ExpertProductOperation<P>::backward_weight(const PassArguments<P>& c) const {
  const View2<T> x = c.values.matrix(this->op_.input());
  const View2<T> dy = c.values.gradient(this->op_.output);
  const bool outputs = this->op_.cut == architecture::Cut::outputs;
  const View2<T> by_token =
      outputs
          ? received(c, axis_.gather(c.handle, c.scratch.all(axis_, x), x, input_again_.c_str()),
                     input_again_)
          : received(c, dy, output_backward_);
  visit(c, [&](const Expert& e) {
    kernels::pick_routed<T>(c.handle, e.rows, by_token, e.order, active_);
    kernels::linear_backward_weight<T>(
        c.handle, e.gradient, outputs ? e.bias_gradient : View1<typename P::Gradient>(),
        outputs ? part(dy, e.routed) : e.rows, outputs ? e.rows : part(x, e.routed));
    if (!weighs_bias() || !adds_bias_ || e.bias_gradient.extent(0) == 0) return;
    kernels::weigh_routed<T>(c.handle, e.rows, weights(c), e.order);
    kernels::linear_backward_bias<T>(c.handle, e.bias_gradient, e.rows);
  });
}

// ---- shared expert

template <class P>
void GateOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::gate_rows<T>(c.handle, c.values.matrix(this->op_.output),
                        c.values.matrix(this->op_.saved.front()),
                        c.values.list(this->op_.inputs[1]));
}

template <class P>
void GateOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                      bool) const {
  kernels::gate_rows_backward<T>(c.handle, axis_.own_part(c.values.gradient(this->op_.output)),
                                 flat(c.values.gradient(this->op_.inputs[1])),
                                 c.values.matrix(this->op_.saved.front()),
                                 c.values.list(this->op_.inputs[1]));
}

template <class P>
void AddOperation<P>::forward(const PassArguments<P>& c, const BlockOperation<P>*) const {
  kernels::accumulate<T>(c.handle, flat(c.values.matrix(this->op_.output)),
                         flat<const T>(c.values.matrix(this->op_.inputs[1])));
}

template <class P>
void AddOperation<P>::backward_input(const PassArguments<P>& c, const BlockOperation<P>*,
                                     bool) const {
  const View2<T> from = c.values.gradient(this->op_.output);
  const View2<T> to = c.values.gradient(this->op_.inputs[1]);
  kernels::copy<T>(c.handle, flat(axis_.own_part(to)), flat<const T>(axis_.own_part(from)));
}

// ---- activation

template <class P>
ExpertActivationOperation<P>::ExpertActivationOperation(const architecture::Operation& op,
                                                        const OperationPlace<P>& place)
    : BlockOperation<P>(op),
      function_(place.model()),
      adds_(std::ranges::any_of(place.plan.description.operations,
                                [&op](const architecture::Operation& other) {
                                  return is_product(other) &&
                                         std::ranges::count(other.inputs, op.inputs[1]) > 0;
                                })),
      routed_(rows_of(place.plan.description.tensors[architecture::at(op.inputs.back())].rows,
                      place.plan.sizes) -
                  1,
              rows_of(place.plan.description.tensors[architecture::at(op.output)].rows,
                      place.plan.sizes)),
      rows_(mean_rows_of(place.plan.description.tensors[architecture::at(op.output)].rows,
                         place.plan.sizes)) {}

/// The routes of all rows, in their order.
template <class P>
View1<const std::int32_t> ExpertActivationOperation<P>::order(const PassArguments<P>& c) const {
  const auto numbers = [&](int i) {
    return flat(c.values.template numbers<std::int32_t>(this->op_.inputs[i]));
  };
  return part(numbers(2), {0, routed_.read(c.handle, numbers(3))});
}

template <class P>
void ExpertActivationOperation<P>::forward(const PassArguments<P>& c,
                                           const BlockOperation<P>*) const {
  const View1<const std::int32_t> routes = order(c);
  const std::int64_t n = extent(routes, 0);
  if (n == 0) return;
  const View2<T> g = rows_of(c.values.matrix(this->op_.output), 0, n);
  function_.forward(c.handle, g, rows_of(c.values.matrix(this->op_.input()), 0, n));
  kernels::weigh_routed<T>(c.handle, g, c.values.sums(this->op_.inputs[1]), routes);
}

/// The gradient of a weight is ⟨dg, activation(h)⟩. The activation is computed again, in the memory
/// of dh.
template <class P>
void ExpertActivationOperation<P>::backward_input(const PassArguments<P>& c,
                                                  const BlockOperation<P>*, bool) const {
  const View1<const std::int32_t> routes = order(c);
  const std::int64_t n = extent(routes, 0);
  const View2<Accumulate<T>> weights = c.values.sums(this->op_.inputs[1]);
  const View2<Accumulate<T>> of_weights = c.values.gradient_sums(this->op_.inputs[1]);
  if (!adds_) kernels::fill(c.handle, flat(of_weights), 0.0);
  if (n == 0) return;
  const View2<T> h = rows_of(c.values.matrix(this->op_.input()), 0, n);
  const View2<T> dg = rows_of(c.values.gradient(this->op_.output), 0, n);
  const View2<T> dh = rows_of(c.values.gradient(this->op_.input()), 0, n);
  const View2<T> activated(dh.data(), static_cast<std::size_t>(n), dg.extent(1));
  function_.forward(c.handle, activated, h);
  kernels::dot_routed<T>(c.handle, of_weights, dg, activated, routes);
  function_.backward(c.handle, dh, dg, h);
  kernels::weigh_routed<T>(c.handle, dh, weights, routes);
}

template <class P>
std::optional<Evaluations> ExpertActivationOperation<P>::evaluations(
    const PassArguments<P>& c) const {
  const std::int64_t columns = extent(c.values.matrix(this->op_.output), 1);
  return function_.evaluations(static_cast<double>(rows_ * columns));
}

#define TRIREME_INSTANTIATE(P)              \
  template class RowProductOperation<P>;    \
  template class ChoiceOperation<P>;        \
  template class GateOperation<P>;          \
  template class AddOperation<P>;           \
  template class ExpertProductOperation<P>; \
  template class ExpertActivationOperation<P>;
TRIREME_INSTANTIATE(Fp32)
TRIREME_INSTANTIATE(Fp64)
TRIREME_INSTANTIATE(MixedBf16)
TRIREME_INSTANTIATE(MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
