#pragma once

#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/flash_arguments.hpp>
#include <trireme/kernels/flash_launch.hpp>

#include <algorithm>
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

/// Arrays of attention on an emulated device. Elements never written are NaN. Rows of qkv have
/// `padding` additional elements.
template <class T, int head_size>
class EmulatedArrays {
 public:
  EmulatedArrays(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                 const kernels::AttentionDropout& dropout, std::int64_t padding)
      : o(at(shape.tokens() * shape.heads * head_size), nan<T>()),
        logsumexp(at(shape.tokens() * shape.heads), nan<float>()),
        qkv_stride_(shape.qkv_columns() + padding),
        qkv_(at(shape.tokens() * qkv_stride_), nan<T>()),
        shape_(kernels::resolved(shape)),
        dropout_(dropout) {
    for (std::int64_t t = 0; t < shape.tokens(); ++t)
      std::copy_n(qkv.begin() + t * shape.qkv_columns(), shape.qkv_columns(),
                  qkv_.begin() + t * qkv_stride_);
  }

  std::vector<T> o;              ///< [T, H·K]
  std::vector<float> logsumexp;  ///< [B, H, S]
  std::vector<T> dqkv;           ///< like qkv, with its padding

 protected:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  template <class N>
  static N nan() {
    return N(std::numeric_limits<float>::quiet_NaN());
  }
  View2<const T> qkv() const { return like_qkv<const T>(qkv_.data()); }
  template <class N>
  View2<N> like_qkv(N* x) const {
    return View2<N>(x, at(shape_.tokens()), at(qkv_stride_));
  }
  template <class N>
  View2<N> like_o(N* x) const {
    return View2<N>(x, at(shape_.tokens()), at(shape_.heads * head_size));
  }
  template <class N>
  View3<N> rows(N* x) const {
    return View3<N>(x, at(shape_.batch), at(shape_.heads), at(shape_.sequence));
  }
  /// Calls `launch` with the arguments of a backward pass, whose results are new arrays.
  template <class Arguments, class... More, class Launch>
  void backward_into(const std::vector<T>& grad, const Launch& launch, More... more) {
    const FlashWorkspace parts(shape_.sizes());
    std::vector<float> workspace(at(parts.elements()), nan<float>());
    dqkv.assign(qkv_.size(), nan<T>());
    launch(Arguments(like_qkv(dqkv.data()), like_o(grad.data()), like_o<const T>(o.data()), qkv(),
                     rows<const float>(logsumexp.data()),
                     View1<float>(workspace.data(), workspace.size()), shape_, dropout_, more...));
  }

  std::int64_t qkv_stride_;
  std::vector<T> qkv_;
  kernels::AttentionShape shape_;
  kernels::AttentionDropout dropout_;
};

/// Attention by the tensor-core kernels on an emulated device, with the launches of a real device.
template <class T, int head_size>
class EmulatedAttention : public EmulatedArrays<T, head_size> {
 public:
  EmulatedAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                    const kernels::AttentionDropout& dropout, EmulatedRun how = {})
      : EmulatedArrays<T, head_size>(qkv, shape, dropout, 0),
        // A cache of two heads, for several sections.
        grid(how, 2, 3 * 2 * 4 * shape.sequence * head_size) {}

  EmulatedGrid grid;

  void forward();
  /// Requires an earlier forward().
  void backward(const std::vector<T>& grad);
};

template <class T, int head_size>
void EmulatedAttention<T, head_size>::forward() {
  const auto a = kernels::flash_forward_arguments<T>(
      this->like_o(this->o.data()), this->rows(this->logsumexp.data()), this->qkv(), this->shape_,
      this->dropout_, grid.cache_bytes());
  kernels::flash_forward<T, head_size>(grid, a, this->dropout_.rate > 0.0);
}

template <class T, int head_size>
void EmulatedAttention<T, head_size>::backward(const std::vector<T>& grad) {
  this->template backward_into<kernels::FlashGradientArguments<T>>(
      grad,
      [&](const auto& a) {
        kernels::flash_backward<T, head_size>(grid, a.delta, a.gradients,
                                              this->dropout_.rate > 0.0);
      },
      grid.processors(), kernels::flash_backward_keys(head_size));
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
