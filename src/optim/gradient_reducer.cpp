#include <trireme/base/check.hpp>
#include <trireme/optim/gradient_reducer.hpp>

#include <algorithm>
#include <limits>

namespace trireme::optim {

template <class G>
GradientReducer<G>::GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                                    std::int64_t bucket_bytes)
    : communicator_(communicator), gradients_(gradients) {
  // One message counts its elements in an int.
  const std::int64_t per_bucket = std::clamp<std::int64_t>(
      bucket_bytes / static_cast<std::int64_t>(sizeof(G)), 1, std::numeric_limits<int>::max());
  for (std::int64_t end = extent(gradients, 0); end > 0;) {
    end = std::max<std::int64_t>(0, end - per_bucket);
    begins_.push_back(end);
  }
  requests_.resize(begins_.size());
}

template <class G>
void GradientReducer<G>::begin() {
  check(started_ == 0 || started_ == begins_.size(), "gradient reduction: a step began with ",
        started_, " of ", begins_.size(), " buckets reduced");
  started_ = 0;
}

template <class G>
void GradientReducer<G>::complete_from(const Exec& exec, std::int64_t first) {
  if (communicator_.size() == 1) {
    if (first == 0) started_ = begins_.size();
    return;
  }
  while (started_ < begins_.size() && begins_[started_] >= first) {
    const std::int64_t begin = begins_[started_];
    const std::int64_t end = started_ == 0 ? extent(gradients_, 0) : begins_[started_ - 1];
    const View1<G> bucket(gradients_.data() + begin, static_cast<std::size_t>(end - begin));
    requests_[started_] = communicator_.start_all_reduce(exec, bucket, grid::Reduction::sum);
    ++started_;
  }
  communicator_.progress();
}

template <class G>
void GradientReducer<G>::finish() {
  check(started_ == begins_.size(), "gradient reduction: ", started_, " of ", begins_.size(),
        " buckets were started");
  for (grid::Request& request : requests_) communicator_.wait(request, "gradient all-reduce");
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace trireme::optim
