#pragma once

#include <trireme/base/kernel_memory.hpp>
#include <trireme/kernels/flash_backward.hpp>
#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/flash_forward.hpp>
#include <trireme/kernels/flash_group_backward.hpp>
#include <trireme/kernels/flash_group_forward.hpp>

#include <cstdint>

/// Launches of the tensor-core attention kernels: numbers of blocks, tensor maps, and order. A Grid
/// executes the launches: ExecGrid (block_launch.hpp) on a device, StreamGrid (group_launch.hpp)
/// for warpgroups, and EmulatedGrid and EmulatedGroupGrid in tests. A Grid has
/// launch<Kernel>(label, blocks, arguments). A Grid for warpgroups also has processors(),
/// tensor_map(shape), and counters(), which returns two counters that are zero.
namespace trireme::kernels {

constexpr int blocks_of(std::int64_t sequence, int block) {
  return static_cast<int>((sequence + block - 1) / block);
}

template <class Kernel, class Grid>
void launch_flash_forward(Grid& grid, typename Kernel::Arguments a) {
  a.query_blocks = blocks_of(a.shape.sequence, Kernel::Tile::queries);
  grid.template launch<Kernel>("kernels/attention_forward",
                               std::int64_t{a.shape.batch} * a.shape.heads * a.query_blocks, a);
}

/// flash_attention_forward for one head size.
template <class T, int head_size, class Grid>
void flash_forward(Grid& grid, const FlashForwardArguments<T>& a, bool with_dropout) {
  if (a.shape.positions != nullptr)
    with_dropout ? launch_flash_forward<FlashForward<T, head_size, true, true>>(grid, a)
                 : launch_flash_forward<FlashForward<T, head_size, false, true>>(grid, a);
  else if (with_dropout)
    launch_flash_forward<FlashForward<T, head_size, true>>(grid, a);
  else
    launch_flash_forward<FlashForward<T, head_size, false>>(grid, a);
}

/// One block of threads per multiprocessor, or fewer, takes blocks of queries until none is left.
template <class Kernel, class Grid, class T>
void launch_forward_of_groups(Grid& grid, typename Kernel::Arguments a, const T* qkv,
                              int head_size) {
  using Tile = typename Kernel::Tile;
  a.query_blocks = blocks_of(a.shape.sequence, Tile::queries);
  const std::int64_t all = std::int64_t{a.shape.batch} * a.shape.heads * a.query_blocks;
  a.blocks = all < grid.processors() ? static_cast<int>(all) : grid.processors();
  a.counters = grid.counters();
  a.queries = grid.tensor_map(heads_map(qkv, a.shape, head_size, Tile::queries));
  a.keys = grid.tensor_map(heads_map(qkv, a.shape, head_size, Tile::keys));
  grid.template launch<Kernel>("kernels/attention_forward", a.blocks, a);
}

/// group_attention_forward for one head size.
template <class T, int head_size, class Grid>
void group_forward(Grid& grid, const GroupForwardArguments<T>& a, const T* qkv, bool with_dropout) {
  if (with_dropout)
    launch_forward_of_groups<GroupForward<T, head_size, true>>(grid, a, qkv, head_size);
  else
    launch_forward_of_groups<GroupForward<T, head_size, false>>(grid, a, qkv, head_size);
}

/// Launches FlashDelta, which computes delta and sets the counters to zero.
template <class T, int head_size, class Grid>
void flash_delta(Grid& grid, const FlashDeltaArguments<T>& a) {
  using Delta = FlashDelta<T, head_size>;
  grid.template launch<Delta>("kernels/attention_delta",
                              (a.rows + Delta::rows_per_block - 1) / Delta::rows_per_block, a);
}

/// Sets the numbers of blocks of queries and of keys. Returns the number of blocks of threads.
template <class Tile, class Arguments>
std::int64_t set_gradient_blocks(Arguments& a) {
  static_assert(Tile::queries >= FlashWorkspace::smallest_block);
  a.query_blocks = blocks_of(a.shape.sequence, Tile::queries);
  a.key_blocks = blocks_of(a.shape.sequence, Tile::keys);
  return std::int64_t{a.shape.batch} * a.shape.key_value_heads * a.key_blocks;
}

template <class Kernel, class Grid>
void launch_flash_gradients(Grid& grid, typename Kernel::Arguments a) {
  static_assert(FlashWorkspace::largest_block % Kernel::Tile::queries == 0);
  const std::int64_t blocks = set_gradient_blocks<typename Kernel::Tile>(a);
  grid.template launch<Kernel>("kernels/attention_backward", blocks, a);
}

/// flash_attention_backward for one head size: first delta and the counters, then the gradients.
template <class T, int head_size, class Grid>
void flash_backward(Grid& grid, const FlashDeltaArguments<T>& delta,
                    const FlashBackwardArguments<T>& a, bool with_dropout) {
  flash_delta<T, head_size>(grid, delta);
  if (a.shape.positions != nullptr)
    with_dropout ? launch_flash_gradients<FlashBackward<T, head_size, true, true>>(grid, a)
                 : launch_flash_gradients<FlashBackward<T, head_size, false, true>>(grid, a);
  else if (with_dropout)
    launch_flash_gradients<FlashBackward<T, head_size, true>>(grid, a);
  else
    launch_flash_gradients<FlashBackward<T, head_size, false>>(grid, a);
}

template <class Kernel, class Grid>
void launch_gradients_of_groups(Grid& grid, typename Kernel::Arguments a, int head_size) {
  using Tile = typename Kernel::Tile;
  const std::int64_t blocks = set_gradient_blocks<Tile>(a);
  FlashShape grads = a.shape;
  grads.key_value_heads = 0;
  grads.qkv_stride = a.grad_stride;
  a.qkv_map = grid.tensor_map(heads_map(a.qkv, a.shape, head_size, Tile::box_rows));
  a.grad_map = grid.tensor_map(heads_map(a.grad, grads, head_size, Tile::box_rows));
  grid.template launch<Kernel>("kernels/attention_backward", blocks, a);
}

/// The second kernel of group_attention_backward for one head size: the gradients.
template <class T, int head_size, class Grid>
void group_backward(Grid& grid, const GroupBackwardArguments<T>& a, bool with_dropout) {
  if (with_dropout)
    launch_gradients_of_groups<GroupBackward<T, head_size, true>>(grid, a, head_size);
  else
    launch_gradients_of_groups<GroupBackward<T, head_size, false>>(grid, a, head_size);
}

}  // namespace trireme::kernels
