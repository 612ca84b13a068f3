#include <trireme/optim/weight_gather.hpp>

#include <trireme/optim/gradient_reducer.hpp>

#include <utility>

namespace trireme::optim {

template <class T>
WeightGather<T>::WeightGather(grid::Communicator& communicator, View1<T> weights,
                              std::vector<architecture::Bucket> buckets)
    : communicator_(communicator), weights_(weights), buckets_(std::move(buckets)) {
  std::erase_if(buckets_,
                [&](const architecture::Bucket& b) { return b.begin >= extent(weights_, 0); });
  for (const architecture::Bucket& bucket : buckets_) counts_.push_back(counts(bucket));
  running_.resize(buckets_.size());
}

template <class T>
void WeightGather<T>::run(const Exec& exec) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const architecture::Bucket& bucket = buckets_[i];
    const View1<T> all(weights_.data() + bucket.begin,
                       static_cast<std::size_t>(bucket.end - bucket.begin));
    running_[i] = communicator_.start_all_gather(
        exec, all, own_part(all, bucket, communicator_.rank()), counts_[i]);
  }
  for (grid::Request& request : running_) communicator_.wait(request, "new weights");
}

template class WeightGather<float>;
template class WeightGather<double>;
template class WeightGather<Bf16>;
template class WeightGather<Fp16>;

}  // namespace trireme::optim
