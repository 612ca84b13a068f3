#include <trireme/kernels/elementwise.hpp>
#include <trireme/optim/optimizer.hpp>

namespace trireme::optim {
namespace {

template <class T>
View1<T> part(std::type_identity_t<View1<T>> all, std::int64_t first, std::int64_t n) {
  return View1<T>(all.data() + first, static_cast<std::size_t>(n));
}

}  // namespace

template <class P>
void Optimizer<P>::step(const Exec& exec, std::int64_t step, double learning_rate) const {
  kernels::plan_update(exec, control_, status_, sums_,
                       {step, config_.clip_norm, config_.beta1, config_.beta2,
                        config_.maximum_skips, loss_scaling_});
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
  }
  round_weights(exec);
}

template <class P>
void Optimizer<P>::round_weights(const Exec& exec) const {
  if constexpr (has_masters)
    for (const architecture::StateBlock& block : placement_.blocks)
      kernels::convert<typename P::Compute, Master>(
          exec,
          part<typename P::Compute>(parameters_.entries()[block.local].weight.data, block.first,
                                    block.elements()),
          updated(block));
}

template <class P>
kernels::AdamW Optimizer<P>::rule(const Entry& entry, double learning_rate) const {
  return {learning_rate, config_.beta1, config_.beta2, config_.epsilon,
          entry.spec->decay ? config_.weight_decay : 0.0};
}

template <class P>
void Optimizer<P>::adamw(const Exec& exec, double learning_rate) const {
  for (const architecture::StateBlock& block : placement_.blocks) {
    const Entry& entry = parameters_.entries()[block.local];
    const std::int64_t n = block.elements();
    kernels::adamw_update<Master>(
        exec, updated(block), part<Master>(arrays_[0], block.state, n),
        part<Master>(arrays_[1], block.state, n),
        part<const typename P::Gradient>(entry.gradient.data, block.first, n),
        rule(entry, learning_rate), control_);
  }
}

template <class P>
void Optimizer<P>::sgd(const Exec& exec, double learning_rate) const {
  for (const architecture::StateBlock& block : placement_.blocks) {
    const Entry& entry = parameters_.entries()[block.local];
    const std::int64_t n = block.elements();
    kernels::sgd_update<Master>(
        exec, updated(block),
        arrays_.empty() ? View1<Master>() : part<Master>(arrays_[0], block.state, n),
        part<const typename P::Gradient>(entry.gradient.data, block.first, n),
        {learning_rate, config_.momentum, config_.nesterov,
         entry.spec->decay ? config_.weight_decay : 0.0},
        control_);
  }
}

template <class P>
void Optimizer<P>::lamb(const Exec& exec, double learning_rate) const {
  for (const architecture::StateBlock& block : placement_.blocks) {
    const Entry& entry = parameters_.entries()[block.local];
    const std::int64_t n = block.elements();
    kernels::lamb_direction<Master>(
        exec, part<typename P::Gradient>(entry.gradient.data, block.first, n),
        part<Master>(arrays_[0], block.state, n), part<Master>(arrays_[1], block.state, n),
        updated(block), rule(entry, learning_rate), control_);
  }
  find_trust_ratios(exec);
  for (const architecture::StateBlock& block : placement_.blocks) {
    const Entry& entry = parameters_.entries()[block.local];
    const std::int64_t n = block.elements();
    kernels::lamb_update<Master>(
        exec, updated(block), part<const typename P::Gradient>(entry.gradient.data, block.first, n),
        learning_rate, part<const double>(ratios_, entry.number(), 1), control_);
  }
}

/// Norms of whole arrays, added up as the gradient's norm is.
template <class P>
void Optimizer<P>::find_trust_ratios(const Exec& exec) const {
  const std::int64_t blocks = extent(partial_, 0);
  const std::int64_t sums = extent(sums_, 0);
  kernels::squared_norm_blocks<typename P::Compute>(exec, part<double>(lamb_partial_, 0, blocks),
                                                    parameters_.all_weights(), block_begins_,
                                                    block_ends_);
  kernels::squared_norm_blocks<typename P::Gradient>(
      exec, part<double>(lamb_partial_, blocks, blocks), parameters_.all_gradients(), block_begins_,
      block_ends_);
  if (!placement_.whole)
    data_group_.all_reduce<double>(exec, lamb_partial_, grid::Reduction::sum,
                                   "blocks of the trust ratios");
  for (const std::int64_t i : {0, 1})
    kernels::segment_sums(exec, part<double>(lamb_sums_, i * sums, sums),
                          part<const double>(lamb_partial_, i * blocks, blocks), ends_);
  model_group_.all_reduce<double>(exec, lamb_sums_, grid::Reduction::sum, "trust ratios");
  kernels::trust_ratios(exec, ratios_, part<const double>(lamb_sums_, 0, sums),
                        part<const double>(lamb_sums_, sums, sums),
                        parameters_.shard().tensor_size);
}

template void Optimizer<model::Fp32>::step(const Exec&, std::int64_t, double) const;
template void Optimizer<model::Fp64>::step(const Exec&, std::int64_t, double) const;
template void Optimizer<model::MixedBf16>::step(const Exec&, std::int64_t, double) const;
template void Optimizer<model::MixedFp16>::step(const Exec&, std::int64_t, double) const;

}  // namespace trireme::optim
