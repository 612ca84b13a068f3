// Lays out a rank's weights and gradients in two arenas, and sets initial values that do not
// depend on the layout.
#include <trireme/model/parameters.hpp>

#include <trireme/base/philox.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/random.hpp>

#include <algorithm>

namespace trireme::model {

using architecture::ArraySpec;
using architecture::LocalArray;

namespace {

template <class T>
View1<T> part(View1<T> all, std::int64_t offset, std::int64_t elements) {
  if (all.data() == nullptr) return {};
  check(offset >= 0 && offset + elements <= extent(all, 0), "elements [", offset, ", ",
        offset + elements, ") of an arena of ", extent(all, 0));
  return View1<T>(all.data() + offset, static_cast<std::size_t>(elements));
}

template <class T>
View2<T> matrix(View1<T> flat, std::int64_t rows, std::int64_t columns) {
  if (flat.data() == nullptr) return {};
  return View2<T>(flat.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
}

template <class T>
NamedTensor<T> slice(const ArraySpec& spec, const LocalArray& local, View1<T> data) {
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
      local_(architecture::local_arrays(architecture, shard)),
      placement_(architecture::place(architecture, shard, local_)),
      architecture_(architecture),
      replicas_(replicas),
      weight_places_(
          architecture::arranged_weights(bucket_cut(), replicas.division, replicas.rank)),
      gradient_places_(architecture::arranged_gradients(bucket_cut(), shard_, replicas.division,
                                                        replicas.cuts_tokens, replicas.rank)),
      weights_("weights", weight_places_.elements() * static_cast<std::int64_t>(sizeof(Compute))),
      gradients_("gradients", gradients ? gradient_places_.elements() *
                                              static_cast<std::int64_t>(sizeof(Gradient))
                                        : 0) {
  all_weights_ = weights_.take<Compute>(weight_places_.elements());
  if (gradients) all_gradients_ = gradients_.take<Gradient>(gradient_places_.elements());
  if (gradients && placement_.tied_elements > 0) {
    const LocalArray& token = local_.front();
    tied_gradient_ = matrix(part(all_gradients_, gradient_places_.place(placement_.tied_offset),
                                 placement_.tied_elements),
                            token.extent[0], token.extent[1]);
  }
  for (std::size_t i = 0; i < local_.size(); ++i) {
    const ArraySpec& spec = architecture.arrays[local_[i].number];
    const std::int64_t offset = placement_.offset[i];
    const std::int64_t n = local_[i].elements();
    entries_.push_back(
        {&spec, local_[i], offset,
         slice(spec, local_[i], part(all_weights_, place_of(weight_places_, i), n)),
         slice(spec, local_[i],
               spec.frozen ? View1<Gradient>()
                           : part(all_gradients_, place_of(gradient_places_, i), n))});
    by_name_.emplace(spec.name, i);
  }
}

namespace {

/// The slice of a random array: the axis that is split becomes the middle one of three.
template <class T>
void fill_random(const Exec& exec, const NamedTensor<T>& tensor, const ArraySpec& spec,
                 const RandomKey& key) {
  const auto axis = static_cast<std::size_t>(spec.split_axis < 0 ? 0 : spec.split_axis);
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const View3<T> x(tensor.data.data(), size(product(tensor.extent, 0, axis)),
                   size(tensor.extent[axis]),
                   size(product(tensor.extent, axis + 1, tensor.extent.size())));
  if (spec.initialisation == architecture::Initialisation::uniform)
    kernels::uniform_fill(exec, x, key, spec.standard_deviation, tensor.shape[axis],
                          tensor.offset[axis]);
  else
    kernels::normal_fill(exec, x, key, spec.standard_deviation, tensor.shape[axis],
                         tensor.offset[axis]);
}

}  // namespace

template <class P>
std::int64_t Parameters<P>::place_of(const architecture::Arrangement& places,
                                     std::size_t local) const {
  // An array without elements may be in no run.
  return local_[local].elements() == 0 ? 0 : places.place(placement_.offset[local]);
}

template <class P>
void Parameters<P>::set_weights(const Exec& exec, const std::function<void(const Entry&)>& set) {
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
        kernels::copy<Compute>(
            exec, part(all_weights_, own.place, own.end - own.begin),
            View1<const Compute>(part(all_weights_, places.place(own.begin), own.end - own.begin)));
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
  }
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
  return matrix(part(all_weights_, weight_places_.place(entry(name).offset), rows * columns), rows,
                columns);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t rows, std::int64_t columns) const
    -> View2<Gradient> {
  if (entry(name).spec->frozen) return {};
  return matrix(part(all_gradients_, gradient_places_.place(entry(name).offset), rows * columns),
                rows, columns);
}
template <class P>
auto Parameters<P>::weight(const std::string& name, std::int64_t elements) const -> View1<Compute> {
  return part(all_weights_, weight_places_.place(entry(name).offset), elements);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t elements) const
    -> View1<Gradient> {
  if (entry(name).spec->frozen) return {};
  return part(all_gradients_, gradient_places_.place(entry(name).offset), elements);
}

template <class P>
architecture::BucketCut Parameters<P>::bucket_cut(std::int64_t bucket_bytes, int data_ranks) const {
  const auto size = static_cast<std::int64_t>(sizeof(Gradient));
  return {architecture_,
          shard_,
          local_,
          placement_,
          std::max<std::int64_t>(1, bucket_bytes / size),
          data_ranks,
          replicas_.division.by_layer()};
}
template <class P>
architecture::BucketCut Parameters<P>::bucket_cut() const {
  return bucket_cut(replicas_.bucket_bytes, replicas_.size);
}

template <class P>
auto Parameters<P>::replicated_gradients(Stage stage, bool partial_gradient) const
    -> View1<Gradient> {
  const layout::Slice run =
      architecture::replicated_part(local_, placement_, stage, partial_gradient);
  if (run.extent == 0) return {};
  if (const auto* whole = gradient_places_.run_of(run.offset); whole && whole->takes_turns)
    return {};
  return part(all_gradients_, gradient_places_.place(run.offset), run.extent);
}

template class Parameters<Fp32>;
template class Parameters<Fp64>;
template class Parameters<MixedBf16>;
template class Parameters<MixedFp16>;

}  // namespace trireme::model
