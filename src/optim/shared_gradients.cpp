#include <trireme/optim/shared_gradients.hpp>

#include <trireme/architecture/shard.hpp>
#include <trireme/base/check.hpp>

#include <algorithm>

namespace trireme::optim {
namespace {

/// Communicator of the holders of each head. Consecutive heads alternate between two communicators.
std::vector<grid::Communicator*> holders_of(grid::Grid& grid, const deck::ModelConfig& model,
                                            const architecture::Shard& shard,
                                            const std::vector<std::int64_t>& heads) {
  const layout::Slice mine = shard.groups(model.key_value_heads, model.heads_per_group());
  std::vector<grid::Communicator*> communicators(heads.size());
  for (std::size_t parity = 0; parity < std::min<std::size_t>(2, heads.size()); ++parity) {
    // A rank that holds none of these heads is alone in its communicator.
    std::int64_t colour = model.key_value_heads + shard.tensor_rank;
    for (std::size_t i = parity; i < heads.size(); i += 2)
      if (mine.offset <= heads[i] && heads[i] < mine.end()) colour = heads[i];
    auto& part = grid.part_of_tensor_axis(text("holders of shared heads ", parity),
                                          static_cast<int>(colour));
    for (std::size_t i = parity; i < heads.size(); i += 2) communicators[i] = &part;
  }
  return communicators;
}

}  // namespace

template <class P>
SharedGradients<P>::SharedGradients(grid::Grid& grid, const deck::ModelConfig& model,
                                    const model::Parameters<P>& parameters) {
  const architecture::Shard& shard = parameters.shard();
  const std::vector<std::int64_t> heads = architecture::shared_heads(model, shard.tensor_size);
  const auto communicators = holders_of(grid, model, shard, heads);
  for (const auto& entry : parameters.entries())
    for (const architecture::Piece& piece : entry.local.pieces) {
      if (entry.spec->frozen || !entry.local.split || piece.holders.extent == 1) continue;
      const auto axis = static_cast<std::size_t>(entry.spec->tensor_cut()->dimension);
      const auto found = std::ranges::find(heads, piece.offset[axis]);
      check(found != heads.end() && piece.extent[axis] == 1, entry.spec->name,
            ": what tensor ranks share is not a single head of keys or values");
      grid::Communicator& holders = *communicators[static_cast<std::size_t>(found - heads.begin())];
      check(holders.size() == piece.holders.extent, entry.spec->name, ": ", holders.size(),
            " tensor ranks sum its shared head, but ", piece.holders.extent, " hold it");
      const View1<typename P::Gradient> gradient(entry.gradient.data.data() + piece.first,
                                                 static_cast<std::size_t>(piece.elements()));
      shared_.push_back({entry.spec->block, &holders, gradient, {}});
    }
}

template <class P>
void SharedGradients<P>::sum(const Exec& exec, std::int64_t block) {
  for (Shared& s : shared_)
    if (s.block == block)
      s.request = s.holders->start_all_reduce(exec, s.gradient, grid::Reduction::sum);
  for (Shared& s : shared_)
    if (s.block == block) s.holders->wait(s.request, "gradients of shared keys and values");
}

template class SharedGradients<model::Fp32>;
template class SharedGradients<model::Fp64>;
template class SharedGradients<model::MixedBf16>;
template class SharedGradients<model::MixedFp16>;

}  // namespace trireme::optim
