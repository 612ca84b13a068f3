// Places a rank's weights and gradients in two arenas, and sets initial values that do not depend
// on the layout.
#include <trireme/model/parameters.hpp>

#include <trireme/architecture/state.hpp>
#include <trireme/base/philox.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/kernels/weight_norm.hpp>
#include <trireme/tensor/fence.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::ArraySpec;
using architecture::RankArray;

namespace {

template <class T>
View1<T> part_or_none(View1<T> all, std::int64_t offset, std::int64_t elements) {
  if (all.data() == nullptr) return {};
  check(offset >= 0 && offset + elements <= extent(all, 0), "elements [", offset, ", ",
        offset + elements, ") of an arena of ", extent(all, 0));
  return View1<T>(all.data() + offset, static_cast<std::size_t>(elements));
}

template <class T>
View2<T> matrix_or_none(View1<T> flat, std::int64_t rows, std::int64_t columns) {
  if (flat.data() == nullptr) return {};
  return View2<T>(flat.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

template <class T>
NamedTensor<T> slice(const ArraySpec& spec, const RankArray& local, View1<T> data) {
  return {spec.name, spec.shape, local.offset, local.extent, data};
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t begin, std::size_t end) {
  std::int64_t n = 1;
  for (std::size_t axis = begin; axis < end; ++axis) n *= shape[axis];
  return n;
}

}  // namespace

template <class P>
Parameters<P>::Parameters(const architecture::Architecture& architecture,
                          const architecture::Shard& shard, bool gradients,
                          const Replicas& replicas)
    : shard_(shard),
      local_(architecture::rank_arrays(architecture, shard)),
      placement_(architecture::place(architecture, shard, local_)),
      architecture_(architecture),
      replicas_(replicas),
      weight_places_(
          architecture::arranged_weights(weight_cut(), replicas.division, replicas.rank)),
      gradient_places_(architecture::arranged_gradients(bucket_cut(), shard_, replicas.division,
                                                        replicas.cuts_tokens, replicas.rank)),
      weights_("weights", weight_places_.elements() * static_cast<std::int64_t>(sizeof(Compute))),
      gradients_("gradients", gradients ? gradient_places_.elements() *
                                              static_cast<std::int64_t>(sizeof(Gradient))
                                        : 0) {
  all_weights_ = weights_.take<Compute>(weight_places_.elements());
  if (gradients) all_gradients_ = gradients_.take<Gradient>(gradient_places_.elements());
  if (gradients && placement_.tied_elements > 0) {
    const RankArray& token = local_.front();
    tied_gradient_ =
        matrix_or_none(part_or_none(all_gradients_, gradient_places_.place(placement_.tied_offset),
                                    placement_.tied_elements),
                       token.extent[0], token.extent[1]);
  }
  for (std::size_t i = 0; i < local_.size(); ++i) {
    const ArraySpec& spec = architecture.arrays[local_[i].number];
    const std::int64_t offset = placement_.offset[i];
    const std::int64_t n = local_[i].elements();
    entries_.push_back(
        {&spec, local_[i], offset,
         slice(spec, local_[i], part_or_none(all_weights_, place_of(weight_places_, i), n)),
         slice(spec, local_[i],
               spec.frozen ? View1<Gradient>()
                           : part_or_none(all_gradients_, place_of(gradient_places_, i), n))});
    by_name_.emplace(spec.name, i);
  }
}

namespace {

/// Fills this rank's slice of a random array. The kernels see three dimensions: those before the
/// last divided dimension as one, this one, and those after it as one. Of those before it, only the
/// first may be divided.
template <class T>
void fill_random(const Exec& exec, const NamedTensor<T>& tensor, const ArraySpec& spec,
                 const RandomKey& key) {
  const auto axis = static_cast<std::size_t>(spec.cuts.empty() ? 0 : spec.cuts.back().dimension);
  const std::int64_t first = axis == 0 ? 0 : tensor.offset[0] * product(tensor.shape, 1, axis);
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const View3<T> x(tensor.data.data(), size(product(tensor.extent, 0, axis)),
                   size(tensor.extent[axis]),
                   size(product(tensor.extent, axis + 1, tensor.extent.size())));
  if (spec.initialisation == architecture::Initialisation::uniform)
    kernels::uniform_fill(exec, x, key, spec.standard_deviation, tensor.shape[axis],
                          tensor.offset[axis], first);
  else
    kernels::normal_fill(exec, x, key, spec.standard_deviation, tensor.shape[axis],
                         tensor.offset[axis], first);
}

}  // namespace

template <class P>
std::int64_t Parameters<P>::place_of(const architecture::Arrangement& places,
                                     std::size_t local) const {
  // An array without elements need not belong to a run.
  return local_[local].elements() == 0 ? 0 : places.place(placement_.offset[local]);
}

template <class P>
void Parameters<P>::set_weights(const Exec& exec, const std::function<void(const Entry&)>& set) {
  changed();
  const auto& places = weight_places_;
  const auto unit = [&](const Entry& e) {
    const auto* run = e.local.elements() > 0 ? places.run_of(e.offset) : nullptr;
    return run != nullptr && run->takes_turns ? run->unit : -1;
  };
  for (const Entry& e : entries_)
    if (unit(e) < 0) set(e);
  for (int u = 0; u < static_cast<int>(places.units().size()); ++u) {
    for (const Entry& e : entries_)
      if (unit(e) == u) set(e);
    for (const architecture::Arrangement::Own& own : places.own())
      if (places.run_of(own.begin)->unit == u)
        kernels::copy<Compute>(exec, part_or_none(all_weights_, own.place, own.end - own.begin),
                               View1<const Compute>(part_or_none(
                                   all_weights_, places.place(own.begin), own.end - own.begin)));
  }
}

template <class P>
void Parameters<P>::initialise(const Exec& exec, std::uint64_t seed) {
  set_weights(exec, [&](const Entry& e) { initialise(exec, e, seed); });
}

template <class P>
void Parameters<P>::initialise(const Exec& exec, const Entry& e, std::uint64_t seed) const {
  switch (e.spec->initialisation) {
    case architecture::Initialisation::zeros:
      kernels::fill(exec, e.weight.data, Compute(0));
      break;
    case architecture::Initialisation::ones:
      kernels::fill(exec, e.weight.data, Compute(1));
      break;
    case architecture::Initialisation::normal:
    case architecture::Initialisation::uniform:
      fill_random(exec, e.weight, *e.spec, RandomKey{seed, Purpose::initialisation, e.number(), 0});
      break;
    case architecture::Initialisation::row_norms:
      set_row_norms(exec, e, [&](const NamedTensor<Compute>& rows) {
        ArraySpec by_rows = *entry(rows.name).spec;
        by_rows.cuts = architecture::tensor_cuts(0);
        fill_random(exec, rows, by_rows,
                    RandomKey{seed, Purpose::initialisation, entry(rows.name).number(), 0});
      });
      break;
  }
}

template <class P>
void Parameters<P>::set_row_norms(
    const Exec& exec, const Entry& e,
    const std::function<void(const NamedTensor<Compute>&)>& read) const {
  const std::int64_t n = e.weight.elements();
  if (n == 0) return;
  const std::string& name = e.spec->name;
  const Entry& w = entry(name.substr(0, name.size() - architecture::adapter_m.size()));
  const std::int64_t columns = product(w.spec->shape, e.spec->shape.size(), w.spec->shape.size());
  Arena squares("norms of rows", n * static_cast<std::int64_t>(sizeof(Accumulate<Compute>)));
  const auto sums = squares.take<Accumulate<Compute>>(n);
  if (w.weight.elements() == n * columns) {
    kernels::row_squares<Compute>(exec, sums, matrix_or_none(w.weight.data, n, columns));
  } else {
    constexpr std::int64_t most_bytes = std::int64_t{16} << 20;
    const auto row_bytes = columns * static_cast<std::int64_t>(sizeof(Compute));
    const std::int64_t most = std::clamp<std::int64_t>(most_bytes / row_bytes, 1, n);
    Arena memory("rows of weights", most * row_bytes);
    const auto all = memory.take<Compute>(most * columns);
    for (std::int64_t row = 0; row < n; row += most) {
      const std::int64_t count = std::min(most, n - row);
      NamedTensor<Compute> rows{
          w.spec->name, w.spec->shape, {}, w.spec->shape, part_or_none(all, 0, count * columns)};
      rows.offset.assign(rows.shape.size(), 0);
      rows.offset.front() = row;
      rows.extent.front() = count;
      read(rows);
      kernels::row_squares<Compute>(exec, part_or_none(sums, row, count),
                                    matrix_or_none(rows.data, count, columns));
      fence(exec, "model/parameters reads rows of weights");
    }
  }
  kernels::row_magnitudes<Compute>(exec, e.weight.data, sums);
  fence(exec, "model/parameters finds norms of rows");
}

template <class P>
auto Parameters<P>::entry(const std::string& name) const -> const Entry& {
  const auto found = by_name_.find(name);
  check(found != by_name_.end(), "no parameter named ", name);
  return entries_[found->second];
}

template <class P>
auto Parameters<P>::weight(const std::string& name, std::int64_t rows, std::int64_t columns) const
    -> View2<Compute> {
  return matrix_or_none(
      part_or_none(all_weights_, weight_places_.place(entry(name).offset), rows * columns), rows,
      columns);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t rows, std::int64_t columns) const
    -> View2<Gradient> {
  if (entry(name).spec->frozen) return {};
  return matrix_or_none(
      part_or_none(all_gradients_, gradient_places_.place(entry(name).offset), rows * columns),
      rows, columns);
}
template <class P>
auto Parameters<P>::weight(const std::string& name, std::int64_t elements) const -> View1<Compute> {
  return part_or_none(all_weights_, weight_places_.place(entry(name).offset), elements);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t elements) const
    -> View1<Gradient> {
  if (entry(name).spec->frozen) return {};
  return part_or_none(all_gradients_, gradient_places_.place(entry(name).offset), elements);
}

template <class P>
architecture::BucketCut Parameters<P>::bucket_cut(std::int64_t bucket_bytes, int data_ranks,
                                                  architecture::CutOf of) const {
  const auto size = static_cast<std::int64_t>(sizeof(Gradient));
  return {architecture_,
          shard_,
          local_,
          placement_,
          std::max<std::int64_t>(1, bucket_bytes / size),
          data_ranks,
          replicas_.division.by_block(),
          of};
}
template <class P>
architecture::BucketCut Parameters<P>::bucket_cut(std::int64_t bucket_bytes, int data_ranks) const {
  return bucket_cut(bucket_bytes, data_ranks, architecture::CutOf::gradients);
}
template <class P>
architecture::BucketCut Parameters<P>::bucket_cut() const {
  return bucket_cut(replicas_.bucket_bytes, replicas_.size);
}
template <class P>
architecture::BucketCut Parameters<P>::weight_cut() const {
  return bucket_cut(replicas_.bucket_bytes, replicas_.size, architecture::CutOf::weights);
}

template <class P>
auto Parameters<P>::owned_frozen() const -> std::vector<NamedTensor<Compute>> {
  std::vector<NamedTensor<Compute>> owned;
  const auto buckets = architecture::gradient_buckets(weight_cut());
  for (const architecture::StateBlock& block :
       architecture::owned_frozen(local_, placement_, buckets, replicas_.rank)) {
    if (!block.counted) continue;
    const Entry& e = entries_[block.local];
    owned.push_back({e.spec->name, e.spec->shape, block.offset, block.extent,
                     part_or_none(all_weights_, weight_places_.own_place(e.offset + block.first),
                                  block.elements())});
  }
  return owned;
}

template <class P>
auto Parameters<P>::replicated_gradients(Stage stage, bool partial_gradient) const
    -> View1<Gradient> {
  const layout::Slice run =
      architecture::replicated_part(local_, placement_, stage, partial_gradient);
  if (run.extent == 0) return {};
  if (const auto* whole = gradient_places_.run_of(run.offset); whole && whole->takes_turns)
    return {};
  return part_or_none(all_gradients_, gradient_places_.place(run.offset), run.extent);
}

template class Parameters<Fp32>;
template class Parameters<Fp64>;
template class Parameters<MixedBf16>;
template class Parameters<MixedFp16>;

}  // namespace trireme::model
