#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/optim/optimizer.hpp>

namespace trireme::optim {
template <class P>
Optimizer<P>::Optimizer(const deck::OptimizerConfig& config, model::Parameters<P>& parameters)
    : config_(config),
      parameters_(parameters),
      state_("optimizer state", 2 * aligned(parameters.placement().elements *
                                            static_cast<std::int64_t>(sizeof(Master)))) {
  first_moment_ = state_.take<Master>(parameters.placement().elements);
  second_moment_ = state_.take<Master>(parameters.placement().elements);
  std::int64_t blocks = 0;
  for (const auto& entry : parameters.entries())
    blocks += kernels::norm_blocks(entry.spec->elements());
  scalars_ = Arena("optimizer scalars", aligned(blocks * 8) + 2 * arena_alignment_bytes);
  partial_ = scalars_.take<double>(blocks);
  norm_ = scalars_.take<double>(1);
  clip_ = scalars_.take<double>(1);
}

template <class P>
void Optimizer<P>::zero_gradients(const Exec& exec) const {
  kernels::fill(exec, parameters_.all_gradients(), typename P::Gradient(0));
}

template <class P>
void Optimizer<P>::combine_tied_gradients(const Exec& exec) const {
  using G = typename P::Gradient;
  const auto tied = parameters_.tied_gradient();
  if (tied.data() == nullptr) return;
  const auto& token = parameters_.entries().front();
  const View1<const G> flat(tied.data(), tied.extent(0) * tied.extent(1));
  kernels::accumulate<G>(exec, token.gradient.data, flat);
}

template <class P>
void Optimizer<P>::step(const Exec& exec, std::int64_t step, double learning_rate) const {
  std::int64_t block = 0;
  for (const auto& entry : parameters_.entries()) {
    const std::int64_t n = kernels::norm_blocks(entry.spec->elements());
    kernels::squared_norm_blocks<typename P::Gradient>(
        exec, View1<double>(partial_.data() + block, static_cast<std::size_t>(n)),
        entry.gradient.data);
    block += n;
  }
  kernels::norm_finish(exec, norm_, partial_);
  kernels::clip_coefficient(exec, clip_, norm_, config_.clip_norm);
  for (std::size_t i = 0; i < parameters_.entries().size(); ++i) {
    const auto& entry = parameters_.entries()[i];
    const kernels::AdamW adamw{learning_rate,
                               config_.beta1,
                               config_.beta2,
                               config_.epsilon,
                               entry.spec->decay ? config_.weight_decay : 0.0,
                               step};
    kernels::adamw_update<Master>(exec, entry.weight.data, part(first_moment_, i),
                                  part(second_moment_, i), entry.gradient.data, adamw, clip_);
  }
}

template <class P>
View1<typename P::Master> Optimizer<P>::part(View1<Master> all, std::size_t array) const {
  const auto& entry = parameters_.entries()[array];
  return View1<Master>(all.data() + entry.offset, static_cast<std::size_t>(entry.spec->elements()));
}

template <class P>
std::vector<NamedTensor<typename P::Master>> Optimizer<P>::state() const {
  std::vector<NamedTensor<Master>> list;
  for (std::size_t i = 0; i < parameters_.entries().size(); ++i) {
    const auto& w = parameters_.entries()[i].weight;
    list.push_back(
        {"optimizer.first_moment." + w.name, w.shape, w.offset, w.extent, part(first_moment_, i)});
    list.push_back({"optimizer.second_moment." + w.name, w.shape, w.offset, w.extent,
                    part(second_moment_, i)});
  }
  return list;
}

template class Optimizer<model::Fp32>;
template class Optimizer<model::Fp64>;

}  // namespace trireme::optim
