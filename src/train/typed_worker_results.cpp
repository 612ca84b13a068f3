// Results of a worker's last step: losses, norm, skipped steps and the gradient noise scale.
#include <trireme/kernels/noise_scale.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/progress.hpp>
#include <trireme/train/typed_worker.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {
namespace {

/// The progress of all workers as that of one: the mean of the norms, the largest numbers of
/// skipped steps, the smallest loss scale, and the step that was skipped last.
std::vector<double> common_status(const std::vector<double>& all) {
  constexpr std::size_t size = kernels::status_size;
  std::vector<double> common(all.begin(), all.begin() + size);
  for (std::size_t w = 1; w < all.size() / size; ++w) {
    const double* one = all.data() + w * size;
    if (one[kernels::status_skipped_step] > common[kernels::status_skipped_step])
      for (const auto at : {kernels::status_skipped_step, kernels::status_skipped_sum})
        common[at] = one[at];
    for (const auto at : {kernels::status_loss_scale, kernels::status_scale_steps})
      common[at] = std::min(common[at], one[at]);
    for (const auto at : {kernels::status_skipped, kernels::status_skipped_in_row})
      common[at] = std::max(common[at], one[at]);
    common[kernels::status_norm] += one[kernels::status_norm];
  }
  common[kernels::status_norm] /= static_cast<double>(all.size() / size);
  return common;
}

}  // namespace

template <class P>
std::vector<double> TypedWorker<P>::statuses() {
  const auto workers = static_cast<std::size_t>(local_ ? local_->workers() : 1);
  std::vector<double> all(workers * kernels::status_size);
  for (std::int64_t w = 0; w < (local_ ? local_->workers_here() : 1); ++w) {
    const auto at = static_cast<std::size_t>((local_ ? local_->first_worker() : 0) + w);
    copy_to_host<double>(handle_,
                         std::span(all).subspan(at * kernels::status_size, kernels::status_size),
                         local_ ? local_->status_of(w) : parts_.optimizer->status(),
                         "train/result reads the gradient norm and what was skipped");
  }
  if (local_)
    local_->across().template all_reduce<double>(std::span(all), grid::Reduction::sum,
                                                 "progress of workers");
  return all;
}

template <class P>
StepResult TypedWorker<P>::result() {
  if (parts_.second) return result_of(actions_.step());
  const Region region("result");
  take_status();
  const std::vector<double> sums =
      loss_sums(local_ ? worker_losses_ : parts_.model->losses(), "train/result reads the loss");
  const std::vector<double> status = common_status(statuses());
  StepResult found = result_from(sums, status, actions_.step());
  tell_servers(found.loss, "loss of the workers");
  if (!parts_.noise) return found;
  std::array<double, kernels::noise_state_size> noise{};
  copy_to_host<double>(handle_, noise, parts_.noise->state(),
                       "train/result reads the gradient noise scale");
  // Early on, and where the noise is much larger than the gradient, the estimate of the gradient's
  // square may not be positive.
  if (noise[kernels::noise_square] > 0 && noise[kernels::noise_variance] > 0)
    found.noise_scale = noise[kernels::noise_variance] / noise[kernels::noise_square];
  return found;
}

template <class P>
StepResult TypedWorker<P>::result_from(std::span<const double> sums, std::span<const double> status,
                                       std::int64_t step) const {
  const Skips skips = skips_from<P>(config_, status, *parts_.optimizer);
  StepResult found{0, {}, status[kernels::status_norm], skips, {}};
  const auto& terms = parts_.model->objective().losses;
  const std::int64_t samples = actions_.batch_samples(step);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::int64_t counted =
        i == 0 ? actions_.batch_targets(step) : samples * terms[i].per_sample;
    const double mean = counted == 0 ? 0 : sums[i] / static_cast<double>(counted);
    found.loss = i == 0 ? mean : found.loss + mean;
    if (i > 0) found.other_losses.push_back(NamedLoss{std::string(terms[i].name), mean});
  }
  return found;
}

template std::vector<double> TypedWorker<model::Fp32>::statuses();
template StepResult TypedWorker<model::Fp32>::result();
template StepResult TypedWorker<model::Fp32>::result_from(std::span<const double>,
                                                          std::span<const double>,
                                                          std::int64_t) const;
template std::vector<double> TypedWorker<model::Fp64>::statuses();
template StepResult TypedWorker<model::Fp64>::result();
template StepResult TypedWorker<model::Fp64>::result_from(std::span<const double>,
                                                          std::span<const double>,
                                                          std::int64_t) const;
template std::vector<double> TypedWorker<model::MixedBf16>::statuses();
template StepResult TypedWorker<model::MixedBf16>::result();
template StepResult TypedWorker<model::MixedBf16>::result_from(std::span<const double>,
                                                               std::span<const double>,
                                                               std::int64_t) const;
template std::vector<double> TypedWorker<model::MixedFp16>::statuses();
template StepResult TypedWorker<model::MixedFp16>::result();
template StepResult TypedWorker<model::MixedFp16>::result_from(std::span<const double>,
                                                               std::span<const double>,
                                                               std::int64_t) const;

}  // namespace trireme::train
