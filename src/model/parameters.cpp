#include <trireme/base/philox.hpp>
#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/random.hpp>
#include <trireme/model/parameters.hpp>

namespace trireme::model {

using architecture::ArraySpec;

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
NamedTensor<T> whole(const ArraySpec& spec, View1<T> data) {
  return {spec.name, spec.shape, std::vector<std::int64_t>(spec.shape.size(), 0), spec.shape, data};
}

}  // namespace

template <class P>
Parameters<P>::Parameters(const architecture::Architecture& architecture, bool gradients)
    : placement_(architecture::place(architecture)),
      weights_("weights", placement_.elements * static_cast<std::int64_t>(sizeof(Compute))),
      gradients_("gradients", gradients ? placement_.gradient_elements *
                                              static_cast<std::int64_t>(sizeof(Gradient))
                                        : 0) {
  all_weights_ = weights_.take<Compute>(placement_.elements);
  if (gradients) {
    all_gradients_ = gradients_.take<Gradient>(placement_.gradient_elements);
    if (architecture.model.tied_embeddings) {
      const ArraySpec& token = architecture.arrays.front();
      tied_gradient_ = matrix(part(all_gradients_, placement_.tied_offset, token.elements()),
                              token.shape[0], token.shape[1]);
    }
  }
  for (std::size_t i = 0; i < architecture.arrays.size(); ++i) {
    const ArraySpec& spec = architecture.arrays[i];
    const std::int64_t offset = placement_.offset[i];
    entries_.push_back({&spec, static_cast<std::uint32_t>(i), offset,
                        whole(spec, part(all_weights_, offset, spec.elements())),
                        whole(spec, part(all_gradients_, offset, spec.elements()))});
    by_name_.emplace(spec.name, i);
  }
}

template <class P>
void Parameters<P>::initialise(const Exec& exec, std::uint64_t seed) {
  for (const Entry& e : entries_) {
    switch (e.spec->initialisation) {
      case architecture::Initialisation::zeros:
        kernels::fill(exec, e.weight.data, Compute(0));
        break;
      case architecture::Initialisation::ones:
        kernels::fill(exec, e.weight.data, Compute(1));
        break;
      case architecture::Initialisation::normal:
        kernels::normal_fill(exec, e.weight.data,
                             RandomKey{seed, Purpose::initialisation, e.number, 0},
                             e.spec->standard_deviation, 0);
        break;
    }
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
  return matrix(part(all_weights_, entry(name).offset, rows * columns), rows, columns);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t rows, std::int64_t columns) const
    -> View2<Gradient> {
  return matrix(part(all_gradients_, entry(name).offset, rows * columns), rows, columns);
}
template <class P>
auto Parameters<P>::weight(const std::string& name, std::int64_t elements) const -> View1<Compute> {
  return part(all_weights_, entry(name).offset, elements);
}
template <class P>
auto Parameters<P>::gradient(const std::string& name, std::int64_t elements) const
    -> View1<Gradient> {
  return part(all_gradients_, entry(name).offset, elements);
}

template <class P>
std::int64_t Parameters<P>::first_element_of_layer(std::int64_t layer) const {
  for (const Entry& e : entries_)
    if (e.spec->layer >= layer) return e.offset;
  return placement_.elements;
}

template class Parameters<Fp32>;
template class Parameters<Fp64>;

}  // namespace trireme::model
