#include <trireme/kernels/elementwise.hpp>
#include <trireme/kernels/update.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/tensor/copy.hpp>

#include <algorithm>
#include <numeric>

namespace trireme::optim {

template <class P>
Optimizer<P>::Optimizer(const deck::OptimizerConfig& config,
                        const architecture::Architecture& architecture,
                        model::Parameters<P>& parameters, grid::Communicator& model_group)
    : config_(config),
      parameters_(parameters),
      model_group_(model_group),
      state_("optimizer state", 2 * aligned(parameters.placement().elements *
                                            static_cast<std::int64_t>(sizeof(Master)))) {
  first_moment_ = state_.take<Master>(parameters.placement().elements);
  second_moment_ = state_.take<Master>(parameters.placement().elements);
  lay_out_sums(static_cast<std::int64_t>(architecture.arrays.size()));
}

template <class P>
bool Optimizer<P>::counted(const Entry& entry) const {
  return !entry.local.copy && (entry.local.split || parameters_.shard().tensor_rank == 0);
}

template <class P>
void Optimizer<P>::lay_out_sums(std::int64_t arrays) {
  const architecture::Shard& shard = parameters_.shard();
  const std::int64_t sums = arrays * shard.tensor_size;
  std::vector<std::int64_t> ends(static_cast<std::size_t>(sums), 0);
  std::vector<std::int64_t> begins_of_blocks;
  std::vector<std::int64_t> ends_of_blocks;
  for (const auto& entry : parameters_.entries()) {
    if (!counted(entry)) continue;
    const std::int64_t at =
        entry.number() * shard.tensor_size + (entry.local.split ? shard.tensor_rank : 0);
    const std::int64_t end = entry.offset + entry.local.elements();
    ends[static_cast<std::size_t>(at)] = kernels::norm_blocks(entry.local.elements());
    for (std::int64_t begin = entry.offset; begin < end; begin += kernels::norm_block) {
      begins_of_blocks.push_back(begin);
      ends_of_blocks.push_back(std::min(end, begin + kernels::norm_block));
    }
  }
  std::inclusive_scan(ends.begin(), ends.end(), ends.begin());
  const auto blocks = static_cast<std::int64_t>(begins_of_blocks.size());
  scalars_ = Arena("optimizer scalars",
                   3 * aligned(blocks * 8) + 2 * aligned(sums * 8) + 2 * arena_alignment_bytes);
  partial_ = scalars_.take<double>(blocks);
  block_begins_ = scalars_.take<std::int64_t>(blocks);
  block_ends_ = scalars_.take<std::int64_t>(blocks);
  sums_ = scalars_.take<double>(sums);
  ends_ = scalars_.take<std::int64_t>(sums);
  norm_ = scalars_.take<double>(1);
  clip_ = scalars_.take<double>(1);
  const Exec exec;
  copy_to_device<std::int64_t>(exec, block_begins_, begins_of_blocks);
  copy_to_device<std::int64_t>(exec, block_ends_, ends_of_blocks);
  copy_to_device<std::int64_t>(exec, ends_, ends);
  fence(exec, "optim/lay_out_sums copies where blocks and arrays end");
}

template <class P>
void Optimizer<P>::zero_gradients(const Exec& exec) const {
  kernels::fill(exec, parameters_.all_gradients(), typename P::Gradient(0));
}

template <class P>
void Optimizer<P>::zero_state(const Exec& exec) const {
  kernels::fill(exec, first_moment_, Master(0));
  kernels::fill(exec, second_moment_, Master(0));
}

template <class P>
void Optimizer<P>::combine_tied_gradients(const Exec& exec) const {
  using G = typename P::Gradient;
  const auto tied = parameters_.tied_gradient();
  if (tied.data() == nullptr) return;
  const auto& token = parameters_.entries().front();
  const View1<const G> flat(tied.data(), tied.extent(0) * tied.extent(1));
  kernels::accumulate<G>(exec, token.gradient.data, flat);
}

template <class P>
void Optimizer<P>::find_norm(const Exec& exec) const {
  kernels::squared_norm_blocks<typename P::Gradient>(exec, partial_, parameters_.all_gradients(),
                                                     block_begins_, block_ends_);
  kernels::segment_sums(exec, sums_, partial_, ends_);
  // A sum is held by one rank, the others add zeros: exact.
  model_group_.all_reduce<double>(exec, sums_, grid::Reduction::sum, "gradient norm");
  kernels::root_of_sum(exec, norm_, sums_);
  kernels::clip_coefficient(exec, clip_, norm_, config_.clip_norm);
}

template <class P>
void Optimizer<P>::step(const Exec& exec, std::int64_t step, double learning_rate) const {
  for (const auto& entry : parameters_.entries()) {
    const kernels::AdamW adamw{learning_rate,
                               config_.beta1,
                               config_.beta2,
                               config_.epsilon,
                               entry.spec->decay ? config_.weight_decay : 0.0,
                               step};
    kernels::adamw_update<Master>(exec, entry.weight.data, part(first_moment_, entry),
                                  part(second_moment_, entry), entry.gradient.data, adamw, clip_);
  }
}

template <class P>
View1<typename P::Master> Optimizer<P>::part(View1<Master> all, const Entry& entry) const {
  return View1<Master>(all.data() + entry.offset, static_cast<std::size_t>(entry.local.elements()));
}

template <class P>
std::vector<NamedTensor<typename P::Master>> Optimizer<P>::state() const {
  std::vector<NamedTensor<Master>> list;
  for (const auto& entry : parameters_.entries()) {
    const auto& w = entry.weight;
    list.push_back({"optimizer.first_moment." + w.name, w.shape, w.offset, w.extent,
                    part(first_moment_, entry)});
    list.push_back({"optimizer.second_moment." + w.name, w.shape, w.offset, w.extent,
                    part(second_moment_, entry)});
  }
  return list;
}

template class Optimizer<model::Fp32>;
template class Optimizer<model::Fp64>;

}  // namespace trireme::optim
