#include <trireme/base/check.hpp>
#include <trireme/optim/gradient_reducer.hpp>

#include <algorithm>
#include <limits>

namespace trireme::optim {

using model::GradientRange;

template <class G>
GradientReducer<G>::GradientReducer(grid::Communicator& communicator, View1<G> gradients,
                                    const std::vector<GradientRange>& ranges,
                                    std::int64_t bucket_bytes)
    : communicator_(communicator), gradients_(gradients) {
  // One message counts its elements in an int.
  const std::int64_t most = std::clamp<std::int64_t>(
      bucket_bytes / static_cast<std::int64_t>(sizeof(G)), 1, std::numeric_limits<int>::max());
  const GradientRange* const end = ranges.data() + ranges.size();
  for (const GradientRange* first = ranges.data(); first != end;) {
    const GradientRange* last = std::find_if(first, end, [&](const GradientRange& r) {
      return r.stage != first->stage || r.split != first->split;
    });
    cut(first, last, most);
    first = last;
  }
}

template <class G>
void GradientReducer<G>::cut(const GradientRange* first, const GradientRange* last,
                             std::int64_t most_elements) {
  for (std::int64_t end = (last - 1)->end; end > first->begin;) {
    Bucket bucket;
    bucket.begin = std::max(first->begin, end - most_elements);
    bucket.end = end;
    bucket.stage = first->stage;
    for (const GradientRange* r = first; r != last; ++r) {
      const bool inside = r->begin < bucket.end && r->end > bucket.begin;
      if (inside && std::ranges::find(bucket.layers, r->layer) == bucket.layers.end())
        bucket.layers.push_back(r->layer);
    }
    end = bucket.begin;
    if (!bucket.layers.empty()) buckets_.push_back(std::move(bucket));  // else a gap alone
  }
}

template <class G>
void GradientReducer<G>::begin() {
  for (Bucket& bucket : buckets_) {
    check(!bucket.request.active(), "gradient reduction: a step began with a bucket under way");
    bucket.missing = bucket.layers.size();
  }
}

template <class G>
void GradientReducer<G>::complete(const Exec& exec, Stage stage, std::int64_t layer) {
  for (Bucket& bucket : buckets_) {
    if (bucket.stage != stage || std::ranges::find(bucket.layers, layer) == bucket.layers.end())
      continue;
    check(bucket.missing > 0, "gradient reduction: layer ", layer, " of stage ", stage,
          " was completed twice");
    if (--bucket.missing > 0 || communicator_.size() == 1) continue;
    const View1<G> part(gradients_.data() + bucket.begin,
                        static_cast<std::size_t>(bucket.end - bucket.begin));
    bucket.request = communicator_.start_all_reduce(exec, part, grid::Reduction::sum);
  }
  communicator_.progress();
}

template <class G>
void GradientReducer<G>::finish(Stage stage) {
  for (Bucket& bucket : buckets_) {
    if (bucket.stage != stage) continue;
    check(bucket.missing == 0, "gradient reduction: ", bucket.missing, " layers of stage ", stage,
          " are not complete");
    communicator_.wait(bucket.request, "gradient all-reduce");
  }
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace trireme::optim
