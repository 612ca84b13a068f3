// In each round, each rank orthogonalises at most one matrix: replicas collect the matrix's parts
// by reduce-scatter in chunks (unless each replica has all gradients), and tensor ranks gather the
// parts. Results return by broadcasts among tensor ranks and all-gathers among replicas. The sums
// of the reduce-scatter are exact: for each element, all replicas but one add 0.
#include <trireme/optim/muon.hpp>

#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/matmul.hpp>
#include <trireme/kernels/muon.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::optim {
namespace {

/// Coefficients a, b and c of the polynomial in orthogonalise() (Jordan et al. 2024).
constexpr double linear = 3.4445, cubic = -4.7750, quintic = 2.0315;

}  // namespace

template <class P>
Muon<P>::Muon(const architecture::Architecture& architecture,
              const model::Parameters<P>& parameters, grid::Communicator& tensor,
              const BucketGroups& replicas, const architecture::StatePlacement& placement)
    : parameters_(parameters), tensor_(tensor), placement_(placement) {
  using architecture::MatrixRounds;
  for (MatrixRounds& rounds : architecture::matrix_rounds(
           architecture, parameters.shard(), parameters.rank_arrays(), replicas.all.size()))
    work_.push_back({std::move(rounds), work_.empty() ? &replicas.all : &replicas.experts});
  const auto most = [&](std::int64_t (MatrixRounds::*elements)() const) {
    std::int64_t largest = 0;
    for (const Work& work : work_) largest = std::max(largest, (work.rounds.*elements)());
    return largest;
  };
  const std::int64_t whole = most(&MatrixRounds::whole_elements);
  const auto take = [&](Arena& arena) {
    parts_ = arena.take<Real>(most(&MatrixRounds::part_elements));
    matrix_ = tensor_.size() == 1 ? parts_ : arena.take<Real>(whole);
    other_ = arena.take<Real>(most(&MatrixRounds::joined_elements));
    gram_ = arena.take<Real>(most(&MatrixRounds::gram_elements));
    polynomial_ = arena.take<Real>(most(&MatrixRounds::gram_elements));
    chunk_ = arena.take<Real>(most(&MatrixRounds::chunk_elements));
    squares_ = arena.take<double>(kernels::norm_blocks(whole));
    root_ = arena.take<double>(1);
  };
  Arena plan;
  take(plan);
  memory_ = Arena("muon", plan.used());
  take(memory_);
}

template <class P>
auto Muon<P>::ranges_of(const Matrix& m) const -> std::vector<Range> {
  const auto& entry = parameters_.entries()[m.local];
  const std::int64_t begin = entry.offset + m.first;
  const std::int64_t end = begin + m.elements_on(tensor_.rank());
  const architecture::Arrangement& places = parameters_.gradient_places();
  std::vector<Range> ranges;
  for (const layout::Slice& own : placement_.owned) {
    const std::int64_t from = std::max(begin, own.offset), to = std::min(end, own.end());
    if (from < to) ranges.push_back({from - begin, to - from, places.own_place(from)});
  }
  return ranges;
}

template <class P>
auto Muon<P>::ranges_of(const Matrix* m, std::int64_t first, std::int64_t count) const
    -> std::vector<Range> {
  std::vector<Range> ranges;
  if (m == nullptr) return ranges;
  for (const Range& r : ranges_of(*m)) {
    const std::int64_t from = std::max(first, r.begin);
    const std::int64_t end = std::min(first + count, r.begin + r.count);
    if (from < end) ranges.push_back({from, end - from, r.place + from - r.begin});
  }
  return ranges;
}

template <class P>
auto Muon<P>::part_of(const Work& work, int rank) const -> View1<Real> {
  const std::int64_t each = work.rounds.part_elements() / tensor_.size();
  return part(parts_, rank * each, each);
}

template <class P>
auto Muon<P>::whole(const View1<Real>& memory, const Matrix& m) const -> View2<Real> {
  return matrix(memory, m.rows, m.columns);
}

template <class P>
auto Muon<P>::slice_of(const View1<Real>& memory, const Matrix& m, int rank) const -> View2<Real> {
  const layout::Slice slice = m.parts[static_cast<std::size_t>(rank)];
  const auto range =
      std::make_pair(static_cast<std::size_t>(slice.offset), static_cast<std::size_t>(slice.end()));
  const View2<Real> all = whole(memory, m);
  if (m.split_rows) return Kokkos::subview(all, range, Kokkos::ALL);
  return Kokkos::subview(all, Kokkos::ALL, range);
}

template <class P>
auto Muon<P>::part_matrix(const View1<Real>& memory, const Matrix& m, int rank) const
    -> View2<Real> {
  const std::int64_t extent = m.parts[static_cast<std::size_t>(rank)].extent;
  return m.split_rows ? matrix(memory, extent, m.columns) : matrix(memory, m.rows, extent);
}

/// Collects this tensor rank's part of the matrix that tensor rank `to` of this replica
/// orthogonalises in the round. Collective among the replicas.
template <class P>
void Muon<P>::collect_parts(const Exec& exec, const Work& work,
                            View1<typename P::Gradient> gradients, int round, int to) const {
  const View1<Real> target = part_of(work, to);
  if (placement_.whole || work.replicas->size() == 1) {
    if (const Matrix* m = work.rounds.matrix(round, work.replicas->rank(), to))
      for (const Range& r : ranges_of(*m))
        kernels::copy<Real>(exec, part(target, r.begin, r.count),
                            part(gradients, r.place, r.count));
    return;
  }
  const std::int64_t most = work.rounds.most_elements(round, to, tensor_.rank());
  for (std::int64_t first = 0; first < most; first += work.rounds.chunk()) {
    const std::int64_t count = std::min(work.rounds.chunk(), most - first);
    kernels::fill<Real>(exec, part(chunk_, 0, work.replicas->size() * count), 0);
    for (int replica = 0; replica < work.replicas->size(); ++replica)
      for (const Range& r : ranges_of(work.rounds.matrix(round, replica, to), first, count))
        kernels::copy<Real>(exec, part(chunk_, replica * count + r.begin - first, r.count),
                            part(gradients, r.place, r.count));
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(work.replicas->size()), count);
    work.replicas->template reduce_scatter<Real>(exec, part(target, first, count),
                                                 part(chunk_, 0, work.replicas->size() * count),
                                                 counts, "parts of matrices");
  }
}

/// Sends this tensor rank's part of the result of tensor rank `to` to all replicas. Each replica
/// stores the elements that it updates. Collective among the replicas.
template <class P>
void Muon<P>::return_parts(const Exec& exec, const Work& work,
                           View1<typename P::Gradient> gradients, int round, int to) const {
  const View1<Real> source = part_of(work, to);
  const std::int64_t most = work.rounds.most_elements(round, to, tensor_.rank());
  for (std::int64_t first = 0; first < most; first += work.rounds.chunk()) {
    const std::int64_t count = std::min(work.rounds.chunk(), most - first);
    View1<Real> all = part(source, first, count);
    if (work.replicas->size() > 1) {
      all = part(chunk_, 0, work.replicas->size() * count);
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(work.replicas->size()),
                                             count);
      work.replicas->template all_gather<Real>(exec, all, part(source, first, count), counts,
                                               "parts of updates");
    }
    for (int replica = 0; replica < work.replicas->size(); ++replica)
      for (const Range& r : ranges_of(work.rounds.matrix(round, replica, to), first, count))
        kernels::copy<Real>(exec, part(gradients, r.place, r.count),
                            part(all, replica * count + r.begin - first, r.count));
  }
}

/// Gathers the parts of each tensor rank's matrix. Collective among the tensor ranks.
template <class P>
void Muon<P>::join(const Exec& exec, const Work& work, int round) const {
  for (int to = 0; to < tensor_.size() && tensor_.size() > 1; ++to) {
    const Matrix* m = work.rounds.matrix(round, work.replicas->rank(), to);
    if (m == nullptr) continue;
    std::vector<std::int64_t> counts;
    std::int64_t sum = 0;
    for (int rank = 0; rank < tensor_.size(); ++rank) {
      counts.push_back(m->elements_on(rank));
      sum += counts.back();
    }
    // `sum` may exceed the matrix: tensor ranks that share heads of keys and values send equal
    // rows.
    const View1<Real> gathered = part(other_, 0, sum);
    tensor_.template all_gather<Real>(exec, gathered,
                                      part(part_of(work, to), 0, m->elements_on(tensor_.rank())),
                                      counts, "matrices");
    if (to != tensor_.rank()) continue;
    std::int64_t first = 0;
    for (int rank = 0; rank < tensor_.size(); ++rank) {
      kernels::copy_matrix<Real>(
          exec, slice_of(matrix_, *m, rank),
          part_matrix(part(gathered, first, m->elements_on(rank)), *m, rank));
      first += m->elements_on(rank);
    }
  }
}

/// X = X / ‖X‖, then `steps` times X = a X + (b G + c G²) X with G = X Xᵀ; if Xᵀ X is smaller,
/// X = a X + X (b G + c G²) with G = Xᵀ X. The result is in other_ if true is returned, otherwise
/// in matrix_.
template <class P>
bool Muon<P>::iterate(const kernels::Handle& handle, const Matrix& m, std::int64_t steps) const {
  using kernels::Transpose;
  const std::int64_t n = m.elements();
  const View1<double> blocks = part(squares_, 0, kernels::norm_blocks(n));
  kernels::squared_norm_blocks<Real>(handle, blocks, part(matrix_, 0, n));
  kernels::root_of_sum(handle, root_, blocks);
  kernels::divide_by<Real>(handle, part(matrix_, 0, n), root_);
  const bool wide = m.rows <= m.columns;
  const View2<Real> gram = matrix(gram_, m.side(), m.side());
  const View2<Real> polynomial = matrix(polynomial_, m.side(), m.side());
  View1<Real> from = matrix_, to = other_;
  for (std::int64_t step = 0; step < steps; ++step) {
    const View2<Real> x = whole(from, m), y = whole(to, m);
    kernels::matmul<Real>(handle, gram, x, x, wide ? Transpose::no : Transpose::yes,
                          wide ? Transpose::yes : Transpose::no);
    kernels::copy<Real>(handle, flat(polynomial), flat<const Real>(gram));
    kernels::matmul<Real>(handle, polynomial, gram, gram, Transpose::no, Transpose::no, quintic,
                          cubic);
    kernels::copy<Real>(handle, flat(y), flat<const Real>(x));
    if (wide)
      kernels::matmul<Real>(handle, y, polynomial, x, Transpose::no, Transpose::no, 1.0, linear);
    else
      kernels::matmul<Real>(handle, y, x, polynomial, Transpose::no, Transpose::no, 1.0, linear);
    std::swap(from, to);
  }
  return steps % 2 == 1;
}

/// Sends each tensor rank's result to all tensor ranks, each of which keeps its part in parts_.
/// `in_other`: this rank's result is in other_. Collective among the tensor ranks.
template <class P>
void Muon<P>::divide(const Exec& exec, const Work& work, int round, bool in_other) const {
  if (tensor_.size() == 1) {
    const Matrix* m = work.rounds.matrix(round, work.replicas->rank(), 0);
    if (m != nullptr && in_other)
      kernels::copy<Real>(exec, part(parts_, 0, m->elements()), part(other_, 0, m->elements()));
    return;
  }
  // This rank's result is sent from matrix_; other ranks' results pass through other_.
  if (const Matrix* mine = work.rounds.matrix(round, work.replicas->rank(), tensor_.rank());
      mine != nullptr && in_other)
    kernels::copy<Real>(exec, part(matrix_, 0, mine->elements()),
                        part(other_, 0, mine->elements()));
  for (int from = 0; from < tensor_.size(); ++from) {
    const Matrix* m = work.rounds.matrix(round, work.replicas->rank(), from);
    if (m == nullptr) continue;
    const View1<Real> result = from == tensor_.rank() ? matrix_ : other_;
    tensor_.template broadcast<Real>(exec, part(result, 0, m->elements()), from, "updates");
    kernels::copy_matrix<Real>(exec, part_matrix(part_of(work, from), *m, tensor_.rank()),
                               slice_of(result, *m, tensor_.rank()));
  }
}

template <class P>
void Muon<P>::orthogonalise(const kernels::Handle& handle, View1<typename P::Gradient> gradients,
                            std::int64_t steps) const {
  const Region region("orthogonalise");
  for (const Work& work : work_)
    for (int round = 0; round < work.rounds.rounds(); ++round) {
      for (int to = 0; to < tensor_.size(); ++to) collect_parts(handle, work, gradients, round, to);
      join(handle, work, round);
      bool in_other = false;
      if (const Matrix* m = work.rounds.matrix(round, work.replicas->rank(), tensor_.rank()))
        in_other = iterate(handle, *m, steps);
      divide(handle, work, round, in_other);
      for (int to = 0; to < tensor_.size(); ++to) return_parts(handle, work, gradients, round, to);
    }
}

template class Muon<model::Fp32>;
template class Muon<model::Fp64>;
template class Muon<model::MixedBf16>;
template class Muon<model::MixedFp16>;

}  // namespace trireme::optim
