// Sums of gradients over replicas, bucket by bucket.
#include <trireme/optim/gradient_reducer.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/elementwise.hpp>

#include <algorithm>

namespace trireme::optim {

std::vector<std::int64_t> counts(const architecture::Bucket& bucket) {
  std::vector<std::int64_t> counts;
  for (std::size_t r = 0; r + 1 < bucket.bounds.size(); ++r)
    counts.push_back(bucket.bounds[r + 1] - bucket.bounds[r]);
  return counts;
}

template <class G>
GradientReducer<G>::GradientReducer(const BucketGroups& groups, View1<G> gradients,
                                    const architecture::Arrangement& places, std::int64_t head,
                                    std::vector<architecture::Bucket> buckets, bool scatter)
    : groups_(groups),
      gradients_(gradients),
      places_(places),
      turns_(places),
      head_(head),
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
    running_[i].missing = buckets_[i].blocks.size();
  }
  turns_.clear();
  if (const int unit = places_.unit_of(head_); unit >= 0) turns_.take(unit);
}

template <class G>
void GradientReducer<G>::before_sums(const Exec& exec, std::int64_t block) {
  const int unit = places_.unit_of(block);
  if (unit < 0 || turns_.holds(unit)) return;
  const int former = turns_.take(unit);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (const auto* run = places_.run_of(buckets_[i].begin);
        former >= 0 && run->takes_turns && run->unit == former)
      take(exec, i, "gradients of a layer");
  for (const architecture::Arrangement::Run& run : places_.runs())
    if (run.takes_turns && run.unit == unit)
      kernels::fill(exec,
                    View1<G>(gradients_.data() + run.place, static_cast<std::size_t>(run.size())),
                    G(0));
}

template <class G>
void GradientReducer<G>::complete(const Exec& exec, Stage stage, std::int64_t block) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const architecture::Bucket& bucket = buckets_[i];
    if (bucket.stage != stage || std::ranges::find(bucket.blocks, block) == bucket.blocks.end())
      continue;
    check(running_[i].missing > 0, "gradient reduction: block ", block, " of stage ", stage,
          " was completed twice");
    if (--running_[i].missing > 0) continue;
    if (send_)
      send_(exec, i);
    else if (groups_.all.size() > 1)
      running_[i].request = start(exec, i);
  }
  groups_.all.progress();
}

template <class G>
grid::Request GradientReducer<G>::start(const Exec& exec, std::size_t i) const {
  const architecture::Bucket& bucket = buckets_[i];
  const View1<G> all(gradients_.data() + places_.place(bucket.begin),
                     static_cast<std::size_t>(bucket.end - bucket.begin));
  grid::Communicator& group = groups_.of(bucket);
  if (!scatter_) return group.start_all_reduce(exec, all, grid::Reduction::sum);
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::int64_t begin = bucket.bounds[rank];
  const auto mine = static_cast<std::size_t>(bucket.bounds[rank + 1] - begin);
  const View1<G> own(gradients_.data() + (mine > 0 ? places_.own_place(begin) : 0), mine);
  return group.start_reduce_scatter(exec, own, all, counts_[i]);
}

template <class G>
void GradientReducer<G>::take(const Exec& exec, std::size_t i, const char* waits) {
  grid::Request& request = running_[i].request;
  if (!request.active()) return;
  const architecture::Bucket& bucket = buckets_[i];
  groups_.of(bucket).wait(request, waits);
  const auto* run = places_.run_of(bucket.begin);
  if (scatter_ || run == nullptr || !run->takes_turns) return;
  const auto part = [&](std::int64_t place, std::int64_t n) {
    return View1<G>(gradients_.data() + place, static_cast<std::size_t>(n));
  };
  for (const auto& own : places_.kept(bucket.begin, bucket.end)) {
    const std::int64_t n = own.end - own.begin;
    kernels::copy<G>(exec, part(own.place, n), part(places_.place(own.begin), n));
  }
}

template <class G>
void GradientReducer<G>::finish(const Exec& exec, Stage stage) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    if (buckets_[i].stage != stage || buckets_[i].shared) continue;
    check(running_[i].missing == 0, "gradient reduction: ", running_[i].missing,
          " blocks of stage ", stage, " are not complete");
    take(exec, i, "gradient all-reduce");
  }
}

template <class G>
void GradientReducer<G>::reduce_shared(const Exec& exec) {
  if (groups_.all.size() == 1) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].shared) running_[i].request = start(exec, i);
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    if (buckets_[i].shared)
      groups_.of(buckets_[i]).wait(running_[i].request, "gradients of shared layers");
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace trireme::optim
