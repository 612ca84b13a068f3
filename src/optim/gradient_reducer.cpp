#include <trireme/base/check.hpp>
#include <trireme/optim/gradient_reducer.hpp>

#include <algorithm>

namespace trireme::optim {

template <class G>
GradientReducer<G>::GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                                    std::vector<architecture::Bucket> buckets)
    : communicator_(communicator),
      gradients_(gradients),
      buckets_(std::move(buckets)),
      running_(buckets_.size()) {}

template <class G>
void GradientReducer<G>::begin() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    check(!running_[i].request.active(),
          "gradient reduction: a step began with a bucket under way");
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
    const View1<G> part(gradients_.data() + bucket.begin,
                        static_cast<std::size_t>(bucket.end - bucket.begin));
    running_[i].request = communicator_.start_all_reduce(exec, part, grid::Reduction::sum);
  }
  communicator_.progress();
}

template <class G>
void GradientReducer<G>::finish(Stage stage) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].stage != stage) continue;
    check(running_[i].missing == 0, "gradient reduction: ", running_[i].missing,
          " layers of stage ", stage, " are not complete");
    communicator_.wait(running_[i].request, "gradient all-reduce");
  }
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace trireme::optim
