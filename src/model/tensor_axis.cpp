// Messages of the tensor axis between rows, slices and all tokens. Sums are taken in rank order.
#include <trireme/model/tensor_axis.hpp>

#include <trireme/kernels/elementwise.hpp>

namespace trireme::model {

TensorAxis::TensorAxis(std::int64_t tokens, std::int64_t source_tokens)
    : tokens_(tokens), rows_{0, tokens} {
  if (source_tokens > 0) source_ = std::make_shared<const TensorAxis>(source_tokens);
}

TensorAxis::TensorAxis(grid::Communicator& communicator, std::int64_t tokens,
                       bool sequence_parallel, const ContextAxis& context,
                       const ExpertAxis& experts, std::int64_t source_tokens)
    : communicator_(&communicator),
      rank_(communicator.rank()),
      size_(communicator.size()),
      tokens_(tokens),
      rows_{0, tokens},
      cuts_tokens_(sequence_parallel && communicator.size() > 1),
      context_(context),
      experts_(experts) {
  if (cuts_tokens_) rows_ = layout::split(tokens, size_, rank_);
  if (source_tokens > 0)
    source_ = std::make_shared<const TensorAxis>(communicator, source_tokens, sequence_parallel,
                                                 context, experts);
}

TensorAxis TensorAxis::without_messages(int rank, int size, std::int64_t tokens,
                                        bool sequence_parallel, std::int64_t source_tokens,
                                        const ExpertAxis& experts) {
  TensorAxis axis(tokens);
  axis.rank_ = rank;
  axis.size_ = size;
  axis.cuts_tokens_ = sequence_parallel && size > 1;
  axis.experts_ = experts;
  if (axis.cuts_tokens_) axis.rows_ = layout::split(tokens, size, rank);
  if (source_tokens > 0)
    axis.source_ = std::make_shared<const TensorAxis>(
        without_messages(rank, size, source_tokens, sequence_parallel));
  return axis;
}

std::vector<std::int64_t> TensorAxis::counts(std::int64_t columns) const {
  std::vector<std::int64_t> n;
  for (int r = 0; r < size_; ++r) n.push_back(layout::split(tokens_, size_, r).extent * columns);
  return n;
}

template <class T>
View2<T> TensorAxis::gather(const Exec& exec, View2<T> all, View2<T> rows, const char* what) const {
  if (!cuts_tokens_) return rows;
  if (sends())
    communicator_->all_gather<T>(exec, flat(all), flat<const T>(rows), counts(extent(rows, 1)),
                                 what);
  return all;
}

template <class T>
void TensorAxis::reduce(const Exec& exec, View2<T> rows, View2<T> all, const char* what) const {
  if (!sends()) return;
  if (cuts_tokens_)
    communicator_->reduce_scatter<T>(exec, flat(rows), flat<const T>(all), counts(extent(rows, 1)),
                                     what);
  else
    communicator_->all_reduce<T>(exec, flat(rows), grid::Reduction::sum, what);
}

template <class T>
void TensorAxis::sum(const Exec& exec, View2<T> x, const char* what) const {
  if (sends()) communicator_->all_reduce<T>(exec, flat(x), grid::Reduction::sum, what);
}

template <class T>
void TensorAxis::gather_slices(const Exec& exec, View2<T> rows, View2<T> slice,
                               const char* what) const {
  if (size_ == 1 || cuts_tokens_)
    kernels::copy<T>(exec, flat(rows), flat<const T>(slice));
  else
    communicator_->all_gather<T>(exec, flat(rows), flat<const T>(slice), counts(extent(rows, 1)),
                                 what);
}

template <class T>
void TensorAxis::gather_all(const Exec& exec, View2<T> all, View2<T> slice,
                            const char* what) const {
  if (size_ > 1)
    communicator_->all_gather<T>(exec, flat(all), flat<const T>(slice), counts(extent(all, 1)),
                                 what);
  else if (all.data() != slice.data())
    kernels::copy<T>(exec, flat(all), flat<const T>(slice));
}

template <class T>
void TensorAxis::reduce_to_slice(const Exec& exec, View2<T> slice, View2<T> all,
                                 const char* what) const {
  if (size_ > 1)
    communicator_->reduce_scatter<T>(exec, flat(slice), flat<const T>(all), counts(extent(all, 1)),
                                     what);
  else if (all.data() != slice.data())
    kernels::copy<T>(exec, flat(slice), flat<const T>(all));
}

template <class T>
void TensorAxis::all_gather(const Exec& exec, View2<T> parts, const char* what) const {
  if (!sends()) return;
  const std::int64_t n = extent(parts, 1);
  const View1<const T> mine(parts.data() + rank_ * n, static_cast<std::size_t>(n));
  communicator_->all_gather<T>(exec, flat(parts), mine,
                               std::vector<std::int64_t>(static_cast<std::size_t>(size_), n), what);
}

#define TRIREME_INSTANTIATE(T)                                                                    \
  template View2<T> TensorAxis::gather<T>(const Exec&, View2<T>, View2<T>, const char*) const;    \
  template void TensorAxis::reduce<T>(const Exec&, View2<T>, View2<T>, const char*) const;        \
  template void TensorAxis::sum<T>(const Exec&, View2<T>, const char*) const;                     \
  template void TensorAxis::gather_slices<T>(const Exec&, View2<T>, View2<T>, const char*) const; \
  template void TensorAxis::gather_all<T>(const Exec&, View2<T>, View2<T>, const char*) const;    \
  template void TensorAxis::reduce_to_slice<T>(const Exec&, View2<T>, View2<T>, const char*)      \
      const;                                                                                      \
  template void TensorAxis::all_gather<T>(const Exec&, View2<T>, const char*) const;
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(double)
TRIREME_INSTANTIATE(Bf16)
TRIREME_INSTANTIATE(Fp16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::model
