// One update of all weights by AdamW, SGD, LAMB, LARS or Muon. Each rule is a few launches over all
// arrays at once; kernels/update.hpp has the equations with their sources.
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/muon.hpp>
#include <trireme/optim/optimizer.hpp>

namespace trireme::optim {
namespace {}  // namespace

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
  kernels::copy<double>(exec, scale, loss_scale_);  // of step + 2
}

template <class P>
void Optimizer<P>::update(const kernels::Handle& exec, std::int64_t step, double learning_rate,
                          View1<const double> gradient_scale) const {
  // c = min(1, clip_norm / (norm + 1e-6)) / loss scale; a norm that is not finite skips the step
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
    for (const kernels::UpdateParts& parts : {parts_, matrix_parts_})
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
  // g = c gradient; m = momentum m + g; in place of the gradient g + momentum m, or m;
  // O = orthogonalise(that); w −= η (factor O + decay w). Other arrays as in adamw.
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
  // with ratio = coefficient |w| / (c |gradient| + decay |w|) of each array that decays
  const kernels::Lars rule{learning_rate, config_.momentum, config_.weight_decay,
                           config_.trust_coefficient};
  find_trust_sums(exec);
  kernels::lars_ratios(exec, ratios_, trust_sums_, sums_, parameters_->shard().tensor_size, rule,
                       control_);
  kernels::lars_update<Master>(exec, all_updated(), arrays_.empty() ? View1<Master>() : arrays_[0],
                               parameters_->all_gradients(), rule, ratios_, control_, parts_);
}

/// trust_sums = Σ w² of each array, and for LAMB Σ r² of the directions in place of the gradient,
/// summed as the squares of the gradient's norm are.
template <class P>
void Optimizer<P>::find_trust_sums(const Exec& exec) const {
  const std::int64_t blocks = extent(partial_, 0);
  const std::int64_t sums = extent(sums_, 0);
  const std::int64_t norms = architecture::trust_norms(config_);
  kernels::squared_norm_blocks<typename P::Compute>(exec, part<double>(trust_partial_, 0, blocks),
                                                    parameters_->all_weights(), weight_begins_,
                                                    weight_ends_);
  if (norms == 2)
    kernels::squared_norm_blocks<typename P::Gradient>(
        exec, part<double>(trust_partial_, blocks, blocks), parameters_->all_gradients(),
        block_begins_, block_ends_);
  if (!placement_.whole)
    data_group_.all_reduce<double>(exec, trust_partial_, grid::Reduction::sum,
                                   "blocks of the trust ratios");
  for (std::int64_t i = 0; i < norms; ++i)
    kernels::segment_sums(exec, part<double>(trust_sums_, i * sums, sums),
                          part<const double>(trust_partial_, i * blocks, blocks), ends_);
  model_group_.all_reduce<double>(exec, trust_sums_, grid::Reduction::sum, "trust ratios");
}

template void Optimizer<model::Fp32>::step(const kernels::Handle&, std::int64_t, double) const;
template void Optimizer<model::Fp32>::delayed_step(const kernels::Handle&, std::int64_t,
                                                   double) const;
template void Optimizer<model::Fp64>::step(const kernels::Handle&, std::int64_t, double) const;
template void Optimizer<model::Fp64>::delayed_step(const kernels::Handle&, std::int64_t,
                                                   double) const;
template void Optimizer<model::MixedBf16>::step(const kernels::Handle&, std::int64_t, double) const;
template void Optimizer<model::MixedBf16>::delayed_step(const kernels::Handle&, std::int64_t,
                                                        double) const;
template void Optimizer<model::MixedFp16>::step(const kernels::Handle&, std::int64_t, double) const;
template void Optimizer<model::MixedFp16>::delayed_step(const kernels::Handle&, std::int64_t,
                                                        double) const;
template void Optimizer<model::Fp32>::round_weights(const Exec&) const;
template void Optimizer<model::Fp64>::round_weights(const Exec&) const;
template void Optimizer<model::MixedBf16>::round_weights(const Exec&) const;
template void Optimizer<model::MixedFp16>::round_weights(const Exec&) const;

}  // namespace trireme::optim
