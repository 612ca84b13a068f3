#pragma once

#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/flash_arguments.hpp>
#include <trireme/kernels/flash_launch.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include "support/block_emulator.hpp"

namespace trireme::testing {

/// Options for running emulated kernels.
struct EmulatedRun {
  int resident = 3;
  bool early_copies = false;
  bool backwards = false;
};

/// The emulated device for flash_launch.hpp: each launch ends before it returns.
class EmulatedGrid {
 public:
  /// The numbers of processors and of bytes of cache determine how many heads are in flight.
  EmulatedGrid(EmulatedRun how, int processors, std::int64_t cache_bytes)
      : how_(how), processors_(processors), cache_bytes_(cache_bytes) {}

  EmulatorReport report;  ///< for all launches; `most`: for the last one

  int processors() const { return processors_; }
  std::int64_t cache_bytes() const { return cache_bytes_; }

  template <class Kernel>
  void launch(const char*, std::int64_t blocks, const typename Kernel::Arguments& arguments) {
    const EmulatorLaunch launch{static_cast<int>(blocks),   Kernel::Tile::threads,
                                Kernel::Tile::shared_bytes, how_.resident,
                                how_.early_copies,          how_.backwards};
    const EmulatorReport now =
        BlockEmulator::run(launch, [&](EmulatedBlock& block) { Kernel::run(block, arguments); });
    report.bank_conflicts += now.bank_conflicts;
    report.operations += now.operations;
    report.most = now.most;
  }

 private:
  EmulatedRun how_;
  int processors_;
  std::int64_t cache_bytes_;
};

/// Attention by the tensor-core kernels on an emulated device, with the launches of a real device.
/// Elements never written are NaN.
template <class T, int head_size>
class EmulatedAttention {
 public:
  EmulatedAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                    const kernels::AttentionDropout& dropout, EmulatedRun how = {})
      // A cache of two heads, for several sections.
      : grid(how, 2, 3 * 2 * 4 * shape.sequence * head_size),
        o(at(shape.tokens() * shape.heads * head_size), nan<T>()),
        logsumexp(at(shape.tokens() * shape.heads), nan<float>()),
        qkv_(qkv),
        shape_(kernels::resolved(shape)),
        dropout_(dropout) {}

  EmulatedGrid grid;
  std::vector<T> o;              ///< [T, H·K]
  std::vector<float> logsumexp;  ///< [B, H, S]
  std::vector<T> dqkv;           ///< like qkv

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
  std::size_t qkv_columns() const { return at(shape_.qkv_columns()); }
  View2<const T> qkv() const { return View2<const T>(qkv_.data(), tokens(), qkv_columns()); }
  template <class N>
  View3<N> rows(N* x) const {
    return View3<N>(x, at(shape_.batch), at(shape_.heads), at(shape_.sequence));
  }

  std::vector<T> qkv_;
  kernels::AttentionShape shape_;
  kernels::AttentionDropout dropout_;
};

template <class T, int head_size>
void EmulatedAttention<T, head_size>::forward() {
  const auto a = kernels::flash_forward_arguments<T>(View2<T>(o.data(), tokens(), columns()),
                                                     rows(logsumexp.data()), qkv(), shape_,
                                                     dropout_, grid.cache_bytes());
  kernels::flash_forward<T, head_size>(grid, a, dropout_.rate > 0.0);
}

template <class T, int head_size>
void EmulatedAttention<T, head_size>::backward(const std::vector<T>& grad) {
  const FlashWorkspace parts(shape_.sizes());
  std::vector<float> workspace(at(parts.elements()), nan<float>());
  dqkv.assign(qkv_.size(), nan<T>());
  const kernels::FlashGradientArguments<T> a(
      View2<T>(dqkv.data(), tokens(), qkv_columns()),
      View2<const T>(grad.data(), tokens(), columns()),
      View2<const T>(o.data(), tokens(), columns()), qkv(), rows<const float>(logsumexp.data()),
      View1<float>(workspace.data(), workspace.size()), shape_, dropout_, grid.processors(),
      kernels::flash_backward_keys(head_size));
  kernels::flash_backward<T, head_size>(grid, a.delta, a.gradients, dropout_.rate > 0.0);
}

// Slow to compile; instantiated once, in tests/kernels/emulated/.
extern template class EmulatedAttention<Bf16, 16>;
extern template class EmulatedAttention<Bf16, 32>;
extern template class EmulatedAttention<Bf16, 64>;
extern template class EmulatedAttention<Bf16, 80>;
extern template class EmulatedAttention<Bf16, 96>;
extern template class EmulatedAttention<Bf16, 112>;
extern template class EmulatedAttention<Bf16, 128>;
extern template class EmulatedAttention<Bf16, 160>;
extern template class EmulatedAttention<Bf16, 256>;
extern template class EmulatedAttention<Fp16, 64>;
extern template class EmulatedAttention<Fp16, 128>;
extern template class EmulatedAttention<Fp16, 192>;

}  // namespace trireme::testing
