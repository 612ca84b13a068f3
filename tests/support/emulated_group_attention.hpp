#pragma once

#include <trireme/base/check.hpp>
#include <trireme/kernels/flash_arguments.hpp>
#include <trireme/kernels/flash_launch.hpp>

#include <cstdint>
#include <vector>

#include "support/emulated_attention.hpp"
#include "support/warpgroup_emulator.hpp"

namespace trireme::testing {

/// The emulated device of warpgroups for flash_launch.hpp: each launch ends before it returns.
class EmulatedGroupGrid {
 public:
  EmulatedGroupGrid(EmulatedRun how, std::int64_t cache_bytes)
      : how_(how), cache_bytes_(cache_bytes) {}

  EmulatorReport report;  ///< for the last launch

  int processors() const { return how_.resident; }
  std::int64_t cache_bytes() const { return cache_bytes_; }
  kernels::TensorMap tensor_map(const kernels::TensorMapShape& shape) const {
    return emulated_tensor_map(shape);
  }
  unsigned* counters() { return counters_; }

  template <class Kernel>
  void launch(const char*, std::int64_t blocks, const typename Kernel::Arguments& arguments) {
    const EmulatorLaunch launch{static_cast<int>(blocks),   Kernel::Tile::threads,
                                Kernel::Tile::shared_bytes, how_.resident,
                                how_.early_copies,          how_.backwards};
    report = WarpgroupEmulator::run(
        launch, [&](EmulatedGroupBlock& block) { Kernel::run(block, arguments); });
    check(counters_[0] == 0 && counters_[1] == 0, "the counters are not zero after the kernel");
  }

 private:
  EmulatedRun how_;
  std::int64_t cache_bytes_;
  unsigned counters_[2] = {0, 0};
};

/// Attention by the kernels for warpgroups on an emulated device, with the launches of a real
/// device.
template <class T, int head_size>
class EmulatedGroupAttention : public EmulatedArrays<T, head_size> {
 public:
  EmulatedGroupAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                         const kernels::AttentionDropout& dropout, EmulatedRun how = {},
                         std::int64_t padding = 0)
      : EmulatedArrays<T, head_size>(qkv, shape, dropout, padding),
        // A cache of four heads, half of it for keys and values, for several sections.
        grid(how, 4 * 4 * shape.sequence * head_size) {}

  EmulatedGroupGrid grid;

  void forward();
  /// Requires an earlier forward().
  void backward(const std::vector<T>& grad);
};

template <class T, int head_size>
void EmulatedGroupAttention<T, head_size>::forward() {
  const auto a = kernels::group_forward_arguments<T>(
      this->like_o(this->o.data()), this->rows(this->logsumexp.data()), this->qkv(), this->shape_,
      this->dropout_, grid.cache_bytes());
  kernels::group_forward<T, head_size>(grid, a, this->qkv_.data(), this->dropout_.rate > 0.0);
}

template <class T, int head_size>
void EmulatedGroupAttention<T, head_size>::backward(const std::vector<T>& grad) {
  this->template backward_into<kernels::GroupGradientArguments<T>>(
      grad,
      [&](const auto& a) {
        kernels::flash_delta<T, head_size>(grid, a.delta);
        kernels::group_backward<T, head_size>(grid, a.gradients, this->dropout_.rate > 0.0);
      },
      grid.processors());
}

// Slow to compile; instantiated once, in tests/kernels/emulated/.
extern template class EmulatedGroupAttention<Bf16, 64>;
extern template class EmulatedGroupAttention<Bf16, 96>;
extern template class EmulatedGroupAttention<Bf16, 128>;
extern template class EmulatedGroupAttention<Bf16, 192>;
extern template class EmulatedGroupAttention<Bf16, 256>;
extern template class EmulatedGroupAttention<Fp16, 128>;
extern template void EmulatedGroupAttention<Fp16, 64>::forward();
extern template void EmulatedGroupAttention<Fp16, 192>::forward();

}  // namespace trireme::testing
