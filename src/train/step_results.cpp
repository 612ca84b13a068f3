// Results of steps: the losses, norm and status of the last step, and the history of earlier steps.
#include <trireme/train/step_results.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/noise_scale.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/progress.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace trireme::train {
namespace {

/// Combines the optimizer status of all workers: the mean norm, the last skipped step, the largest
/// numbers of skipped steps, the smallest loss scale, and the smallest status_scale_steps.
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
StepResults<P>::StepResults(const deck::Config& config, EngineParts<P>& parts,
                            const StepActions<P>& actions, const kernels::Handle& handle,
                            grid::Grid& grid)
    : config_(config), parts_(parts), actions_(actions), handle_(handle), grid_(grid) {
  if (!parts.optimizer) return;
  const std::int64_t sums = extent(parts.model->losses(), 0);
  history_.emplace(config.run, parts.model->objective().term_sums());
  if (config.parallel.workers == 1) return;
  worker_loss_memory_ = Arena("losses of workers", aligned(sums * 8));
  worker_losses_ = worker_loss_memory_.take<double>(sums);
}

template <class P>
void StepResults<P>::zero_worker_losses() {
  kernels::fill(handle_, worker_losses_, 0.0);
}

template <class P>
void StepResults<P>::add_worker_losses() {
  kernels::accumulate<double>(handle_, worker_losses_, parts_.model->losses());
}

template <class P>
void StepResults<P>::forget() {
  if (history_) history_->forget();
}

template <class P>
std::vector<double> StepResults<P>::statuses() {
  const auto workers = static_cast<std::size_t>(parts_.local ? parts_.local->workers() : 1);
  std::vector<double> all(workers * kernels::status_size);
  for (std::int64_t w = 0; w < (parts_.local ? parts_.local->workers_here() : 1); ++w) {
    const auto at = static_cast<std::size_t>((parts_.local ? parts_.local->first_worker() : 0) + w);
    copy_to_host<double>(handle_,
                         std::span(all).subspan(at * kernels::status_size, kernels::status_size),
                         parts_.local ? parts_.local->status_of(w) : parts_.optimizer->status(),
                         "train/result reads the gradient norm and what was skipped");
  }
  if (parts_.local)
    parts_.local->across().template all_reduce<double>(std::span(all), grid::Reduction::sum,
                                                       "progress of workers");
  return all;
}

template <class P>
StepResult StepResults<P>::result() {
  const Region region("result");
  if (parts_.servers) parts_.servers->fetch_status(handle_);
  const std::vector<double> sums = loss_sums(parts_.local ? worker_losses_ : parts_.model->losses(),
                                             "train/result reads the loss");
  const std::vector<double> status = common_status(statuses());
  StepResult found = result_from(sums, status, actions_.step());
  found.earlier = earlier_steps(actions_.step());
  if (parts_.servers) parts_.servers->broadcast(found.loss, "loss of the workers");
  if (!parts_.noise) return found;
  std::array<double, kernels::noise_state_size> noise{};
  copy_to_host<double>(handle_, noise, parts_.noise->state(),
                       "train/result reads the gradient noise scale");
  // If the noise is much larger than the gradient, the estimates may not be positive.
  if (noise[kernels::noise_square] > 0 && noise[kernels::noise_variance] > 0)
    found.noise_scale = noise[kernels::noise_variance] / noise[kernels::noise_square];
  return found;
}

template <class P>
StepResult StepResults<P>::overlapping_result(std::int64_t step) {
  const Region region("result");
  const StepRecords& records = actions_.records();
  std::vector<double> sums(records.losses(step).extent(0));
  std::array<double, kernels::status_size> status{};
  std::array<double, 1> before{};
  copy_to_host<double>(handle_, sums, records.losses(step), "train/result reads the loss");
  copy_to_host<double>(handle_, status, records.status(step),
                       "train/result reads the gradient norm and what was skipped");
  copy_to_host<double>(handle_, before, records.scale_before(step),
                       "train/result reads the loss scale before the update");
  StepResult found = result_from(sums, status, step);
  if (found.skips.loss_scale) found.skips.scale_before = before[0];
  found.earlier = earlier_steps(step);
  return found;
}

template <class P>
std::vector<double> StepResults<P>::loss_sums(View1<double> losses, const char* waits) {
  std::vector<double> sums(losses.extent(0));
  copy_to_host<double>(handle_, sums, losses, waits);
  sum_over_ranks(sums, sums.size(), "loss");
  return sums;
}

/// Sums over the replicas and the workers, and then over the ranks of a model. All tensor ranks of
/// the last stage have the losses of the head. Sums of layers are on the ranks that have the layer.
template <class P>
void StepResults<P>::sum_over_ranks(std::vector<double>& sums, std::size_t of_step,
                                    const char* what) {
  const auto of_head = static_cast<std::ptrdiff_t>(parts_.model->objective().head_losses());
  if (!parts_.parameters.shard().has_head() || parts_.tensor.rank() > 0)
    for (auto step = sums.begin(); step != sums.end(); step += static_cast<std::ptrdiff_t>(of_step))
      std::fill_n(step, of_head, 0.0);
  parts_.replicas.template all_reduce<double>(std::span(sums), grid::Reduction::sum, what);
  if (parts_.local)
    parts_.local->across().template all_reduce<double>(std::span(sums), grid::Reduction::sum, what);
  parts_.model_group.template all_reduce<double>(std::span(sums), grid::Reduction::sum, what);
}

template <class P>
void StepResults<P>::remember(std::int64_t step) {
  const Region region("keep_losses");
  const bool overlaps = parts_.other_version.has_value();
  const bool divides = overlaps ? grid_.world().rank() == 0 : parts_.parameters.shard().has_head();
  const View1<double> losses = overlaps       ? actions_.records().losses(step)
                               : parts_.local ? worker_losses_
                                              : parts_.model->losses();
  const std::int64_t terms = parts_.model->objective().term_sums();
  history_->add(handle_, step, divides ? actions_.batch_targets(step) : 0, part(losses, 0, terms));
  const auto add_norm = [&](View1<double> status) {
    history_->add_norm(handle_, View1<double>(status.data() + kernels::status_norm, 1));
  };
  if (overlaps) return add_norm(actions_.records().status(step));
  if (parts_.servers) return;
  if (!parts_.local) return add_norm(parts_.optimizer->status());
  for (std::int64_t w = 0; w < parts_.local->workers_here(); ++w)
    add_norm(parts_.local->status_of(w));
}

/// Unless steps overlap, the losses are on each replica's last stage, and the norms on all ranks.
template <class P>
std::vector<StepLoss> StepResults<P>::earlier_steps(std::int64_t step) {
  const std::vector<StepHistory::Entry> entries = history_->take(handle_, step);
  if (entries.empty()) return {};
  const auto& terms = parts_.model->objective().losses;
  std::vector<double> losses, norms;
  for (const StepHistory::Entry& e : entries) {
    losses.insert(losses.end(), e.losses.begin(), e.losses.end());
    norms.push_back(e.norm);
  }
  const bool overlaps = parts_.other_version.has_value();
  const auto sums = static_cast<std::size_t>(parts_.model->objective().term_sums());
  if (!overlaps) sum_over_ranks(losses, sums, "losses of earlier steps");
  if (parts_.local)
    parts_.local->across().template all_reduce<double>(std::span(norms), grid::Reduction::sum,
                                                       "norms of earlier steps");
  std::vector<double> means;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const std::vector<double> of_step =
        parts_.model->objective().terms_of(std::span(losses).subspan(e * sums, sums));
    means.insert(means.end(), of_step.begin(), of_step.end());
  }
  for (std::size_t e = 0; e < entries.size(); ++e)
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const std::int64_t counted =
          terms[t].count(entries[e].targets, actions_.batch_samples(entries[e].step));
      double& loss = means[e * terms.size() + t];
      loss = counted == 0 ? 0 : loss / static_cast<double>(counted);
    }
  if (!overlaps)
    parts_.pipeline.broadcast(std::as_writable_bytes(std::span(means)),
                              parts_.layout.rank_of(parts_.layout.last_stage()),
                              "losses of earlier steps");
  std::vector<StepLoss> found;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    StepLoss& one = found.emplace_back();
    one.step = entries[e].step;
    for (std::size_t t = 0; t < terms.size(); ++t) {
      const double mean = means[e * terms.size() + t];
      if (!terms[t].apart) one.loss += mean;
      if (t > 0) one.other_losses.push_back(NamedLoss{std::string(terms[t].name), mean});
    }
    if (!parts_.servers)
      one.gradient_norm =
          norms[e] / static_cast<double>(parts_.local ? parts_.local->workers() : 1);
  }
  return found;
}

template <class P>
StepResult StepResults<P>::result_from(std::span<const double> sums, std::span<const double> status,
                                       std::int64_t step) const {
  StepResult found;
  found.gradient_norm = status[kernels::status_norm];
  found.skips = skips_from<P>(config_, status, *parts_.optimizer);
  const architecture::TrainingObjective& objective = parts_.model->objective();
  found.expert_tokens = objective.expert_tokens(sums);
  found.expert_loads = objective.expert_loads(sums);
  found.dropped_choices = objective.dropped_choices(sums);
  const auto& terms = objective.losses;
  const std::vector<double> of_terms = objective.terms_of(sums);
  const std::int64_t samples = actions_.batch_samples(step);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::int64_t counted = terms[i].count(actions_.batch_targets(step), samples);
    const double mean = counted == 0 ? 0 : of_terms[i] / static_cast<double>(counted);
    if (!terms[i].apart) found.loss = i == 0 ? mean : found.loss + mean;
    if (i > 0) found.other_losses.push_back(NamedLoss{std::string(terms[i].name), mean});
  }
  return found;
}

template class StepResults<model::Fp32>;
template class StepResults<model::Fp64>;
template class StepResults<model::MixedBf16>;
template class StepResults<model::MixedFp16>;

}  // namespace trireme::train
