#include <trireme/train/progress.hpp>

#include <trireme/train/engine_parts.hpp>

#include <algorithm>

namespace trireme::train {

template <class P>
Skips skips_from(const deck::Config& config, std::span<const double> status,
                 const optim::Optimizer<P>& optimizer) {
  const auto whole = [&](std::size_t i) { return static_cast<std::int64_t>(status[i]); };
  Skips skips{whole(kernels::status_skipped), whole(kernels::status_skipped_in_row),
              whole(kernels::status_skipped_step)};
  // With updates = "push", servers count one update per worker and step.
  if (config.parallel.has_servers() && config.parallel.updates == ServerUpdates::push)
    skips.last_step = (skips.last_step + config.parallel.data - 1) / config.parallel.data;
  if (const std::int64_t sum_of_array = whole(kernels::status_skipped_sum);
      skips.last_step > 0 && sum_of_array >= 0)
    skips.array = optimizer.array_of_sum(sum_of_array);
  if (config.precision.compute == DType::fp16) {
    skips.loss_scale = status[kernels::status_loss_scale];
    skips.scale_steps = whole(kernels::status_scale_steps);
  }
  return skips;
}

optim::Progress progress_of(const deck::Config& config, const Skips& skips, std::int64_t step) {
  const double loss_scale = initial_loss_scale(config.precision);
  // A constant loss scale comes from the deck.
  const bool adapted =
      config.precision.compute == DType::fp16 && config.precision.loss_scale_interval > 0;
  const double scale = adapted ? skips.loss_scale.value_or(loss_scale) : loss_scale;
  // If the deck has a smaller maximum_skips than before, one more step is still tried.
  return {skips.total, std::min(skips.in_row, config.optimizer.maximum_skips - 1),
          scale,       adapted ? skips.scale_steps : 0,
          step,        adapted ? skips.scale_before.value_or(scale) : scale};
}

optim::Progress progress_after(const deck::Config& config, const checkpoint::Reader& reader,
                               bool fresh) {
  const double loss_scale = initial_loss_scale(config.precision);
  const std::int64_t step = reader.state().step;
  if (fresh) return {0, 0, loss_scale, 0, step, loss_scale};
  return progress_of(config, skips_of(reader.state()), step);
}

#define TRIREME_INSTANTIATE(P)                                               \
  template Skips skips_from<P>(const deck::Config&, std::span<const double>, \
                               const optim::Optimizer<P>&);
TRIREME_INSTANTIATE(model::Fp32)
TRIREME_INSTANTIATE(model::Fp64)
TRIREME_INSTANTIATE(model::MixedBf16)
TRIREME_INSTANTIATE(model::MixedFp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::train
