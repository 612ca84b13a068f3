#include <trireme/optim/gradient_reducer.hpp>

#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::optim {

std::vector<std::int64_t> counts(const architecture::Bucket& bucket) {
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r + 1 < bucket.bounds.size(); ++r)
    counts.push_back(bucket.bounds[r + 1] - bucket.bounds[r]);
  return counts;
}

template <class G>
GradientReducer<G>::GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                                    std::vector<architecture::Bucket> buckets, bool scatter)
    : communicator_(communicator),
      gradients_(gradients),
      buckets_(std::move(buckets)),
      scatter_(scatter),
      running_(buckets_.size()) {
  for (const architecture::Bucket& bucket : buckets_) counts_.push_back(counts(bucket));
}

template <class G>
void GradientReducer<G>::begin() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    check(!running_[i].request.active(),
          "gradient reduction: a step began while a bucket was in flight");
    running_[i].missing = buckets_[i].layers.size();
  }
}

template <class G>
void GradientReducer<G>::complete(const Exec& exec, Stage stage, std::int64_t layer) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const architecture::Bucket& bucket = buckets_[i];
    if (bucket.stage != stage || std::ranges::find(bucket.layers, layer) == bucket.layers.end())
      continue;
    check(running_[i].missing > 0, "gradient reduction: layer ", layer, " of stage ", stage,
          " was completed twice");
    if (--running_[i].missing > 0 || communicator_.size() == 1) continue;
    running_[i].request = start(exec, i);
  }
  communicator_.progress();
}

template <class G>
grid::Request GradientReducer<G>::start(const Exec& exec, std::size_t i) const {
  const architecture::Bucket& bucket = buckets_[i];
  const View1<G> all(gradients_.data() + bucket.begin,
                     static_cast<std::size_t>(bucket.end - bucket.begin));
  if (!scatter_) return communicator_.start_all_reduce(exec, all, grid::Reduction::sum);
  return communicator_.start_reduce_scatter(exec, own_part(all, bucket, communicator_.rank()), all,
                                            counts_[i]);
}

template <class G>
void GradientReducer<G>::finish(Stage stage) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].stage != stage || buckets_[i].shared) continue;
    check(running_[i].missing == 0, "gradient reduction: ", running_[i].missing,
          " layers of stage ", stage, " are not complete");
    communicator_.wait(running_[i].request, "gradient all-reduce");
  }
}

template <class G>
void GradientReducer<G>::reduce_shared(const Exec& exec) {
  if (communicator_.size() == 1) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].shared) running_[i].request = start(exec, i);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].shared) communicator_.wait(running_[i].request, "gradients of shared layers");
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace trireme::optim
