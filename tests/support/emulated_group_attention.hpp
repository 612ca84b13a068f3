#pragma once

#include <trireme/base/attention_memory.hpp>
#include <trireme/base/check.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/flash_group_backward.hpp>
#include <trireme/kernels/flash_group_forward.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/emulated_attention.hpp"
#include "support/warpgroup_emulator.hpp"

namespace trireme::testing {

/// Attention by the kernels of warpgroups on an emulated device. What no one writes is NaN. Rows of
/// qkv have `padding` more numbers than heads.
template <class T, int head_size>
class EmulatedGroupAttention {
 public:
  EmulatedGroupAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                         const kernels::AttentionDropout& dropout, EmulatedRun how = {},
                         std::int64_t padding = 0)
      : o(at(shape.tokens() * shape.heads * head_size), nan<T>()),
        logsumexp(at(shape.tokens() * shape.heads), nan<float>()),
        qkv_stride_(shape.qkv_columns() + padding),
        qkv_(at(shape.tokens() * qkv_stride_), nan<T>()),
        shape_(kernels::resolved(shape)),
        dropout_(dropout),
        how_(how) {
    for (std::int64_t t = 0; t < shape.tokens(); ++t)
      std::copy_n(qkv.begin() + t * shape.qkv_columns(), shape.qkv_columns(),
                  qkv_.begin() + t * qkv_stride_);
  }

  std::vector<T> o;              ///< [T, H·K]
  std::vector<float> logsumexp;  ///< [B, H, S]
  std::vector<T> dqkv;           ///< as qkv, with its padding
  EmulatorReport report;

  void forward() {
    if (dropout_.rate > 0.0)
      forward_by<kernels::GroupForward<T, head_size, true>>();
    else
      forward_by<kernels::GroupForward<T, head_size, false>>();
  }

  /// After forward().
  void backward(const std::vector<T>& grad) {
    if (dropout_.rate > 0.0)
      backward_by<kernels::GroupBackward<T, head_size, true>>(grad);
    else
      backward_by<kernels::GroupBackward<T, head_size, false>>(grad);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  template <class N>
  static N nan() {
    return N(std::numeric_limits<float>::quiet_NaN());
  }

  template <class Kernel>
  void forward_by() {
    using Tile = typename Kernel::Tile;
    // Room for two heads: several sections.
    const std::int64_t room = 2 * 4 * shape_.sequence * head_size;
    kernels::GroupForwardArguments<T> a;
    a.shape = kernels::flash_forward_shape(shape_, qkv_stride_, room);
    a.dropout = kernels::flash_dropout(shape_, dropout_);
    a.o = o.data();
    a.o_stride = shape_.heads * head_size;
    a.logsumexp = logsumexp.data();
    kernels::set_group_forward_blocks<Tile>(a, how_.resident);
    unsigned counters[2] = {0, 0};
    a.counters = counters;
    a.queries =
        emulated_tensor_map(kernels::heads_map(qkv_.data(), a.shape, head_size, Tile::queries));
    a.keys = emulated_tensor_map(kernels::heads_map(qkv_.data(), a.shape, head_size, Tile::keys));
    run<Kernel>(a.blocks, a.blocks, a);
    check(counters[0] == 0 && counters[1] == 0, "the counters are not zero after the kernel");
  }

  template <class Kernel>
  void backward_by(const std::vector<T>& grad) {
    const FlashWorkspace parts(shape_.sizes());
    std::vector<float> workspace(at(parts.elements()), nan<float>());
    std::vector<unsigned> counters(at(parts.counters), 12345);
    dqkv.assign(qkv_.size(), nan<T>());
    using Delta = kernels::FlashDelta<T, head_size>;
    const std::int64_t columns = shape_.heads * head_size, rows = shape_.tokens() * shape_.heads;
    float* const deltas = workspace.data() + parts.sums;
    run<Delta>(static_cast<int>((rows + Delta::rows_per_block - 1) / Delta::rows_per_block), 1,
               {static_cast<int>(shape_.sequence), static_cast<int>(shape_.heads), rows, deltas,
                grad.data(), columns, o.data(), columns, counters.data(), parts.counters});
    kernels::GroupBackwardArguments<T> a;
    a.shape = kernels::flash_backward_shape(shape_, qkv_stride_, 2,
                                            kernels::group_backward_keys(head_size));
    a.dropout = kernels::flash_dropout(shape_, dropout_);
    a.dqkv = dqkv.data();
    a.dqkv_stride = qkv_stride_;
    a.grad = grad.data();
    a.grad_stride = columns;
    a.qkv = qkv_.data();
    a.logsumexp = logsumexp.data();
    a.delta = deltas;
    a.sums = workspace.data();
    a.ticket = counters.data();
    a.turns = counters.data() + 1;
    const int blocks = kernels::set_group_backward<typename Kernel::Tile>(
        a, head_size,
        [](const kernels::TensorMapShape& shape) { return emulated_tensor_map(shape); });
    run<Kernel>(blocks, how_.resident, a);
  }

  template <class Kernel>
  void run(int blocks, int resident, const typename Kernel::Arguments& arguments) {
    EmulatorLaunch launch;
    launch.blocks = blocks;
    launch.resident = resident;
    launch.threads = Kernel::Tile::threads;
    launch.shared_bytes = Kernel::Tile::shared_bytes;
    launch.early_copies = how_.early_copies;
    launch.backwards = how_.backwards;
    report = WarpgroupEmulator::run(
        launch, [&](EmulatedGroupBlock& block) { Kernel::run(block, arguments); });
  }

  std::int64_t qkv_stride_;
  std::vector<T> qkv_;
  kernels::AttentionShape shape_;
  kernels::AttentionDropout dropout_;
  EmulatedRun how_;
};

}  // namespace trireme::testing
