// Which tokens count in a step's loss, and the scores of requests in an evaluation.
#include <trireme/tensor/copy.hpp>
#include <trireme/train/step_actions.hpp>

#include <numeric>

namespace trireme::train {

template <class P>
std::int64_t StepActions<P>::batch_targets(std::int64_t step) const {
  if (samples_ == nullptr || samples_->all_count())
    return batches_.global(step) * config_.model.targets();
  const std::vector<std::int64_t>& targets = targets_of_workers(step);
  return std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
}

template <class P>
std::int64_t StepActions<P>::worker_targets(std::int64_t step) const {
  if (samples_ == nullptr || samples_->all_count())
    return batches_.global(step) / config_.parallel.workers * config_.model.targets();
  return targets_of_workers(step)[static_cast<std::size_t>(worker_)];
}

template <class P>
const std::vector<std::int64_t>& StepActions<P>::targets_of_workers(std::int64_t step) const {
  if (targets_of_step_.size() > 4) targets_of_step_.erase(targets_of_step_.begin());
  const auto [found, is_new] = targets_of_step_.try_emplace(step);
  if (is_new) {
    const std::int64_t samples = batches_.global(step) / config_.parallel.workers;
    for (std::int64_t w = 0; w < config_.parallel.workers; ++w)
      found->second.push_back(samples_->counted(batches_.samples(step - 1) + w * samples, samples));
  }
  return found->second;
}

template <class P>
void StepActions<P>::begin_scoring(const data::Requests& requests, std::int64_t first_group,
                                   std::vector<double>& sums) {
  requests_ = &requests;
  sums_ = &sums;
  evaluates_ = true;
  all_windows_ = requests.count();
  first_group_ = first_group;
  const std::int64_t rows = parts_.model->sizes().targets;
  if (!score_memory_)
    score_memory_.emplace("train/scores", rows * 2 * static_cast<std::int64_t>(sizeof(double)));
  if (scores_.size() == 0) scores_ = score_memory_->template take<double>(rows, 2);
  host_scores_.resize(scores_.size());
}

/// A context rank holds some tokens of each request.
template <class P>
void StepActions<P>::take_scores(std::int64_t group) {
  if (requests_ == nullptr || parts_.tensor.rank() > 0) return;
  copy_to_host<double>(handle_, host_scores_, View1<double>(scores_.data(), scores_.size()),
                       "train/evaluate reads the scores of requests");
  const layout::TokenPlaces places = parts_.parameters.shard().places(config_.model.sequence);
  const std::int64_t held = parts_.axis.context().held(config_.model.sequence);
  const std::int64_t first = group * config_.batch.micro;
  for (std::int64_t i = 0; i < samples_of(group); ++i) {
    const data::Request& request = requests_->request(first + i);
    const std::span<double> sum =
        std::span(*sums_).subspan(static_cast<std::size_t>(2 * (first + i)), 2);
    for (std::int64_t position = request.context - 1; position + 1 < std::ssize(request.tokens);
         ++position) {
      const std::int64_t token = places.token_at(position);
      if (token < 0) continue;
      const auto row = static_cast<std::size_t>(2 * (i * held + token));
      sum[0] += host_scores_[row];
      if (!(host_scores_[row + 1] <= 0)) sum[1] += 1;
    }
  }
}

template std::int64_t StepActions<model::Fp32>::batch_targets(std::int64_t) const;
template std::int64_t StepActions<model::Fp32>::worker_targets(std::int64_t) const;
template void StepActions<model::Fp32>::begin_scoring(const data::Requests&, std::int64_t,
                                                      std::vector<double>&);
template void StepActions<model::Fp32>::take_scores(std::int64_t);
template std::int64_t StepActions<model::Fp64>::batch_targets(std::int64_t) const;
template std::int64_t StepActions<model::Fp64>::worker_targets(std::int64_t) const;
template void StepActions<model::Fp64>::begin_scoring(const data::Requests&, std::int64_t,
                                                      std::vector<double>&);
template void StepActions<model::Fp64>::take_scores(std::int64_t);
template std::int64_t StepActions<model::MixedBf16>::batch_targets(std::int64_t) const;
template std::int64_t StepActions<model::MixedBf16>::worker_targets(std::int64_t) const;
template void StepActions<model::MixedBf16>::begin_scoring(const data::Requests&, std::int64_t,
                                                           std::vector<double>&);
template void StepActions<model::MixedBf16>::take_scores(std::int64_t);
template std::int64_t StepActions<model::MixedFp16>::batch_targets(std::int64_t) const;
template std::int64_t StepActions<model::MixedFp16>::worker_targets(std::int64_t) const;
template void StepActions<model::MixedFp16>::begin_scoring(const data::Requests&, std::int64_t,
                                                           std::vector<double>&);
template void StepActions<model::MixedFp16>::take_scores(std::int64_t);
template const std::vector<std::int64_t>& StepActions<model::Fp32>::targets_of_workers(
    std::int64_t) const;
template const std::vector<std::int64_t>& StepActions<model::Fp64>::targets_of_workers(
    std::int64_t) const;
template const std::vector<std::int64_t>& StepActions<model::MixedBf16>::targets_of_workers(
    std::int64_t) const;
template const std::vector<std::int64_t>& StepActions<model::MixedFp16>::targets_of_workers(
    std::int64_t) const;

}  // namespace trireme::train
