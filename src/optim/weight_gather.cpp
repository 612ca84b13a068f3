// Gathers of divided weights: of resident arrays after the update, of other arrays before each use.
#include <trireme/optim/weight_gather.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace trireme::optim {

template <class T>
WeightGather<T>::WeightGather(const BucketGroups& groups, View1<T> memory,
                              const architecture::Arrangement& places, std::int64_t arena_elements,
                              std::vector<architecture::Bucket> buckets)
    : groups_(groups),
      memory_(memory),
      places_(places),
      turns_(places),
      buckets_(std::move(buckets)) {
  std::erase_if(buckets_, [&](const architecture::Bucket& b) { return b.begin >= arena_elements; });
  std::ranges::stable_sort(buckets_, {}, &architecture::Bucket::read_order);
  for (const architecture::Bucket& bucket : buckets_) {
    counts_.push_back(counts(bucket));
    const auto* run = places_.run_of(bucket.begin);
    units_.push_back(run != nullptr && run->takes_turns ? run->unit : -1);
  }
  running_.resize(buckets_.size());
}

template <class T>
WeightGather<T>::~WeightGather() {
  if (std::uncaught_exceptions() == 0) finish();
}

template <class T>
void WeightGather<T>::start(const Exec& exec, std::size_t i) {
  const architecture::Bucket& bucket = buckets_[i];
  grid::Communicator& group = groups_.of(bucket);
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::int64_t begin = bucket.bounds[rank];
  const auto mine = static_cast<std::size_t>(bucket.bounds[rank + 1] - begin);
  running_[i] = group.start_all_gather(
      exec,
      View1<T>(memory_.data() + places_.place(bucket.begin),
               static_cast<std::size_t>(bucket.end - bucket.begin)),
      View1<const T>(memory_.data() + (mine > 0 ? places_.own_place(begin) : 0), mine), counts_[i]);
}

template <class T>
void WeightGather<T>::wait(std::size_t i, const char* what) {
  groups_.of(buckets_[i]).wait(running_[i], what);
}

template <class T>
void WeightGather<T>::update(const Exec& exec) {
  forget_windows();
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (units_[i] < 0) start(exec, i);
}

/// Starts the gathers of a unit's buckets, unless the unit's window holds the unit already.
template <class T>
void WeightGather<T>::fetch(const Exec& exec, int unit) {
  if (turns_.holds(unit)) return;
  const int former = turns_.take(unit);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (former >= 0 && units_[i] == former) wait(i, "weights of a layer");
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (units_[i] == unit) start(exec, i);
}

template <class T>
bool WeightGather<T>::belongs(std::size_t i, std::int64_t block) const {
  const architecture::Bucket& bucket = buckets_[i];
  if (units_[i] >= 0) return units_[i] == places_.unit_of(block);
  return bucket.shared || std::ranges::find(bucket.blocks, block) != bucket.blocks.end();
}

template <class T>
void WeightGather<T>::before_reads(const Exec& exec, std::int64_t block,
                                   std::optional<std::int64_t> next) {
  const int unit = places_.unit_of(block);
  if (unit >= 0) fetch(exec, unit);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (running_[i].active() && belongs(i, block)) wait(i, "weights of a layer");
  const int ahead = next ? places_.unit_of(*next) : -1;
  const auto window = [&](int u) { return places_.units()[static_cast<std::size_t>(u)].window; };
  if (ahead >= 0 && (unit < 0 || window(ahead) != window(unit))) fetch(exec, ahead);
}

template <class T>
void WeightGather<T>::finish() {
  for (std::size_t i = 0; i < running_.size(); ++i) wait(i, "new weights");
}

template <class T>
void WeightGather<T>::forget_windows() {
  finish();
  turns_.clear();
}

template class WeightGather<float>;
template class WeightGather<double>;
template class WeightGather<Bf16>;
template class WeightGather<Fp16>;

}  // namespace trireme::optim
