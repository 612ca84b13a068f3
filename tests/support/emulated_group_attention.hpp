#pragma once

#include <trireme/base/check.hpp>
#include <trireme/kernels/flash_arguments.hpp>
#include <trireme/kernels/flash_launch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
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
/// device. Elements never written are NaN. Rows of qkv have `padding` additional elements.
template <class T, int head_size>
class EmulatedGroupAttention {
 public:
  EmulatedGroupAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                         const kernels::AttentionDropout& dropout, EmulatedRun how = {},
                         std::int64_t padding = 0)
      // A cache of four heads, half of it for keys and values, for several sections.
      : grid(how, 4 * 4 * shape.sequence * head_size),
        o(at(shape.tokens() * shape.heads * head_size), nan<T>()),
        logsumexp(at(shape.tokens() * shape.heads), nan<float>()),
        qkv_stride_(shape.qkv_columns() + padding),
        qkv_(at(shape.tokens() * qkv_stride_), nan<T>()),
        shape_(kernels::resolved(shape)),
        dropout_(dropout) {
    for (std::int64_t t = 0; t < shape.tokens(); ++t)
      std::copy_n(qkv.begin() + t * shape.qkv_columns(), shape.qkv_columns(),
                  qkv_.begin() + t * qkv_stride_);
  }

  EmulatedGroupGrid grid;
  std::vector<T> o;              ///< [T, H·K]
  std::vector<float> logsumexp;  ///< [B, H, S]
  std::vector<T> dqkv;           ///< like qkv, with its padding

  void forward();
  /// Requires an earlier forward().
  void backward(const std::vector<T>& grad);

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  template <class N>
  static N nan() {
    return N(std::numeric_limits<float>::quiet_NaN());
  }

  std::size_t tokens() const { return at(shape_.tokens()); }
  std::size_t columns() const { return at(shape_.heads * head_size); }
  View2<const T> qkv() const { return View2<const T>(qkv_.data(), tokens(), at(qkv_stride_)); }
  template <class N>
  View3<N> rows(N* x) const {
    return View3<N>(x, at(shape_.batch), at(shape_.heads), at(shape_.sequence));
  }

  std::int64_t qkv_stride_;
  std::vector<T> qkv_;
  kernels::AttentionShape shape_;
  kernels::AttentionDropout dropout_;
};

template <class T, int head_size>
void EmulatedGroupAttention<T, head_size>::forward() {
  const auto a = kernels::group_forward_arguments<T>(View2<T>(o.data(), tokens(), columns()),
                                                     rows(logsumexp.data()), qkv(), shape_,
                                                     dropout_, grid.cache_bytes());
  kernels::group_forward<T, head_size>(grid, a, qkv_.data(), dropout_.rate > 0.0);
}

template <class T, int head_size>
void EmulatedGroupAttention<T, head_size>::backward(const std::vector<T>& grad) {
  const FlashWorkspace parts(shape_.sizes());
  std::vector<float> workspace(at(parts.elements()), nan<float>());
  dqkv.assign(qkv_.size(), nan<T>());
  const kernels::GroupGradientArguments<T> a(
      View2<T>(dqkv.data(), tokens(), at(qkv_stride_)),
      View2<const T>(grad.data(), tokens(), columns()),
      View2<const T>(o.data(), tokens(), columns()), qkv(), rows<const float>(logsumexp.data()),
      View1<float>(workspace.data(), workspace.size()), shape_, dropout_, grid.processors());
  kernels::flash_delta<T, head_size>(grid, a.delta);
  kernels::group_backward<T, head_size>(grid, a.gradients, dropout_.rate > 0.0);
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
