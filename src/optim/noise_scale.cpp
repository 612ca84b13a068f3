// Squares of the first micro-batch's gradient are summed layer by layer, in its backward pass;
// Optimizer::squares() has the squares of the whole batch's gradient.
#include <trireme/optim/noise_scale.hpp>

#include <trireme/base/check.hpp>
#include <trireme/kernels/noise_scale.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>
#include <vector>

namespace trireme::optim {

bool shows_noise(const architecture::ArraySpec& a, std::int64_t layers) {
  // With group > 1, tensor ranks that share a head of keys and values have parts of its gradient.
  return a.decay && !a.frozen && !a.partial_gradient &&
         !a.is_divided(architecture::Divide::groups) && a.block >= 1 && a.block <= layers;
}

template <class P>
NoiseScale<P>::NoiseScale(const architecture::Architecture& architecture,
                          const model::Parameters<P>& parameters, grid::Communicator& model_group,
                          grid::Communicator& replicas)
    : parameters_(parameters), model_group_(model_group), replicas_(replicas) {
  const std::int64_t layers = architecture.model.all_layers();
  const int parts = parameters.shard().tensor_size;
  std::vector<std::int64_t> chosen, begins, ends;
  for (std::size_t i = 0; i < architecture.arrays.size(); ++i)
    if (shows_noise(architecture.arrays[i], layers))
      for (int part = 0; part < parts; ++part)
        chosen.push_back(static_cast<std::int64_t>(i) * parts + part);
  check_usage(
      !chosen.empty(),
      "[run] gradient_noise_scale needs a trained matrix in the layers, with a head of keys "
      "and values for each head of queries; set gradient_noise_scale = false");
  std::map<std::int64_t, std::vector<const typename model::Parameters<P>::Entry*>> by_block;
  for (const auto& entry : parameters.entries())
    if (shows_noise(*entry.spec, layers)) by_block[entry.spec->block].push_back(&entry);
  for (const auto& [block, entries] : by_block) {
    Blocks& blocks = layers_[block];
    blocks.first = std::ssize(begins);
    for (const auto* entry : entries)
      for (const architecture::Piece& piece : entry->local.pieces) {
        if (!piece.counted) continue;
        const std::int64_t end = entry->offset + piece.first + piece.elements();
        for (std::int64_t at = entry->offset + piece.first; at < end; at += norm_block) {
          begins.push_back(parameters.gradient_places().place(at));
          ends.push_back(begins.back() + std::min(end - at, norm_block));
        }
      }
    blocks.count = std::ssize(begins) - blocks.first;
  }
  const std::int64_t n = std::ssize(begins);
  memory_ =
      Arena("gradient noise scale", 3 * aligned(n * 8) + aligned(std::ssize(chosen) * 8) +
                                        2 * aligned(8) + aligned(kernels::noise_state_size * 8));
  partial_ = memory_.take<double>(n);
  begins_ = memory_.take<std::int64_t>(n);
  ends_ = memory_.take<std::int64_t>(n);
  chosen_ = memory_.take<std::int64_t>(std::ssize(chosen));
  all_ = memory_.take<std::int64_t>(1);
  sum_ = memory_.take<double>(1);
  state_ = memory_.take<double>(kernels::noise_state_size);
  const Exec exec;
  copy_to_device<std::int64_t>(exec, begins_, begins);
  copy_to_device<std::int64_t>(exec, ends_, ends);
  copy_to_device<std::int64_t>(exec, chosen_, chosen);
  copy_to_device<std::int64_t>(exec, all_, std::vector{n});
  copy_to_device<double>(exec, state_, std::vector<double>(kernels::noise_state_size));
  fence(exec, "optim/noise_scale copies the places of blocks");
}

template <class P>
void NoiseScale<P>::after_first(const Exec& exec, std::int64_t block) const {
  const auto found = layers_.find(block);
  if (found == layers_.end()) return;
  const auto part = [&](const auto& all) {
    using View = std::remove_cvref_t<decltype(all)>;
    return View(all.data() + found->second.first, static_cast<std::size_t>(found->second.count));
  };
  kernels::squared_norm_blocks<typename P::Gradient>(
      exec, part(partial_), parameters_.all_gradients(), part(begins_), part(ends_));
}

template <class P>
void NoiseScale<P>::add_step(const Exec& exec, View1<const double> sums,
                             View1<const double> loss_scale, std::int64_t micro,
                             std::int64_t global) const {
  kernels::segment_sums(exec, sum_, partial_, all_);
  for (grid::Communicator* ranks : {&replicas_, &model_group_})
    ranks->template all_reduce<double>(exec, sum_, grid::Reduction::sum, "gradient noise scale");
  kernels::add_noise_sample(exec, state_, sum_, sums, chosen_, loss_scale,
                            {static_cast<double>(micro), static_cast<double>(global),
                             static_cast<double>(replicas_.size())});
}

template class NoiseScale<model::Fp32>;
template class NoiseScale<model::Fp64>;
template class NoiseScale<model::MixedBf16>;
template class NoiseScale<model::MixedFp16>;

}  // namespace trireme::optim
