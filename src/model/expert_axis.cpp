// Copies of tokens' rows on their way to the replicas with their experts, and back.
#include <trireme/model/expert_axis.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/experts.hpp>
#include <trireme/model/tensor_axis.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::model {

void ExpertCopies::exchange_bounds(const Exec& exec, View1<std::int32_t> bounds) {
  const auto half = static_cast<std::size_t>(axis_.size()) + 1;
  sent_.resize(half);
  copy_to_host<std::int32_t>(exec, sent_, part(bounds, 0, static_cast<std::int64_t>(half)),
                             "copies for experts");
  received_.assign(half, 0);  // after the wait: a copy to the device may still read the last ones
  std::vector<std::int64_t> sends = counts(sent_, 1), receives(sends.size());
  if (axis_.sends())
    axis_.communicator().all_to_all(receives, sends, "numbers of copies for experts");
  else
    std::ranges::fill(receives, sends[static_cast<std::size_t>(axis_.rank())]);
  std::partial_sum(receives.begin(), receives.end(), received_.begin() + 1,
                   [](std::int64_t a, std::int64_t b) { return a + b; });
  copy_to_device<std::int32_t>(
      exec, part(bounds, static_cast<std::int64_t>(half), static_cast<std::int64_t>(half)),
      received_);
}

void ExpertCopies::read(const Exec& exec, View1<std::int32_t> bounds) {
  const auto half = static_cast<std::size_t>(axis_.size()) + 1;
  sent_.resize(2 * half);
  copy_to_host<std::int32_t>(exec, sent_, bounds, "copies for experts");
  received_.assign(sent_.begin() + static_cast<std::ptrdiff_t>(half), sent_.end());
  sent_.resize(half);
}

std::vector<std::int64_t> ExpertCopies::counts(const std::vector<std::int32_t>& bounds,
                                               std::int64_t columns) const {
  std::vector<std::int64_t> n;
  for (std::size_t r = 0; r + 1 < bounds.size(); ++r)
    n.push_back((bounds[r + 1] - bounds[r]) * columns);
  return n;
}

template <class T>
View2<T> ExpertCopies::send(const Exec& exec, View2<T> received, View2<T> sent, View2<const T> rows,
                            View1<const std::int32_t> order, const char* what) const {
  const std::int64_t columns = extent(rows, 1);
  check(this->sent() <= extent(sent, 0) && this->received() <= extent(received, 0), what, ": ",
        this->sent(), " rows to send and ", this->received(), " to receive, but room for ",
        extent(sent, 0), " and ", extent(received, 0));
  const View2<T> out = rows_of(sent, 0, this->sent()), in = rows_of(received, 0, this->received());
  kernels::pick_routed<T>(exec, out, rows, part(order, 0, this->sent()), 1);
  if (!axis_.sends()) {
    const View2<T> own = part(out, copies_for(static_cast<std::size_t>(axis_.rank())));
    for (int r = 0; r < axis_.size(); ++r)
      kernels::copy<T>(exec, flat(rows_of(in, r * extent(own, 0), extent(own, 0))),
                       flat<const T>(own));
    return in;
  }
  axis_.communicator().all_to_all<T>(exec, flat(in), counts(received_, columns), flat<const T>(out),
                                     counts(sent_, columns), what);
  return in;
}

template <class T>
void ExpertCopies::bring_back(const Exec& exec, View2<Accumulate<T>> sums, View2<T> returned,
                              View2<const T> rows, View1<const std::int32_t> order,
                              const char* what) const {
  const std::int64_t columns = extent(sums, 1);
  const View2<T> in = rows_of(returned, 0, sent());
  if (axis_.sends()) {
    axis_.communicator().all_to_all<T>(exec, flat(in), counts(sent_, columns), flat<const T>(rows),
                                       counts(received_, columns), what);
  } else {
    const std::int64_t both = std::min(extent(in, 0), extent(rows, 0));
    kernels::copy<T>(exec, flat(rows_of(in, 0, both)), flat<const T>(rows_of(rows, 0, both)));
  }
  for (std::size_t r = 0; r + 1 < sent_.size(); ++r)
    kernels::add_routed<T>(exec, sums, part(in, copies_for(r)), part(order, copies_for(r)), 1);
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template View2<T> ExpertCopies::send<T>(const Exec&, View2<T>, View2<T>, View2<const T>, \
                                          View1<const std::int32_t>, const char*) const;   \
  template void ExpertCopies::bring_back<T>(const Exec&, View2<Accumulate<T>>, View2<T>,   \
                                            View2<const T>, View1<const std::int32_t>,     \
                                            const char*) const;
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
