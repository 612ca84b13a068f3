#pragma once

#include <trireme/base/check.hpp>
#include <trireme/kernels/attention_blocks.hpp>
#include <trireme/kernels/flash_attention.hpp>
#include <trireme/kernels/flash_backward.hpp>
#include <trireme/kernels/flash_delta.hpp>
#include <trireme/kernels/flash_forward.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include "support/block_emulator.hpp"

namespace trireme::testing {

/// How emulated kernels are run.
struct EmulatedRun {
  int resident = 3;
  bool early_copies = false;
  bool backwards = false;
};

/// Attention by the kernels of tensor cores on an emulated device. What no one writes is NaN.
template <class T, int head_size>
class EmulatedAttention {
 public:
  EmulatedAttention(const std::vector<T>& qkv, const kernels::AttentionShape& shape,
                    const kernels::AttentionDropout& dropout, EmulatedRun how = {})
      : o(at(shape.tokens() * shape.heads * head_size), nan<T>()),
        logsumexp(at(shape.tokens() * shape.heads), nan<float>()),
        qkv_(qkv),
        shape_(kernels::resolved(shape)),
        dropout_(dropout),
        how_(how) {}

  std::vector<T> o;              ///< [T, H·K]
  std::vector<float> logsumexp;  ///< [B, H, S]
  std::vector<T> dqkv;           ///< as qkv
  std::int64_t bank_conflicts = 0;
  std::int64_t operations = 0;  ///< of warps

  void forward() {
    if (dropout_.rate > 0.0)
      forward_by<kernels::FlashForward<T, head_size, true>>();
    else
      forward_by<kernels::FlashForward<T, head_size, false>>();
  }

  void backward(const std::vector<T>& grad) {
    if (dropout_.rate > 0.0)
      backward_by<kernels::FlashBackward<T, head_size, true>>(grad);
    else
      backward_by<kernels::FlashBackward<T, head_size, false>>(grad);
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  template <class N>
  static N nan() {
    return N(std::numeric_limits<float>::quiet_NaN());
  }
  std::int64_t columns() const { return shape_.heads * head_size; }
  int blocks_of(int size) const { return static_cast<int>((shape_.sequence + size - 1) / size); }

  template <class Kernel>
  void launch(std::int64_t blocks, const typename Kernel::Arguments& arguments) {
    const EmulatorLaunch launch{static_cast<int>(blocks),   Kernel::Tile::threads,
                                Kernel::Tile::shared_bytes, how_.resident,
                                how_.early_copies,          how_.backwards};
    const EmulatorReport report =
        BlockEmulator::run(launch, [&](EmulatedBlock& block) { Kernel::run(block, arguments); });
    bank_conflicts += report.bank_conflicts;
    operations += report.operations;
  }

  template <class Kernel>
  void forward_by() {
    // Room for two heads: several sections.
    const std::int64_t room = 2 * 4 * shape_.sequence * head_size;
    kernels::FlashForwardArguments<T> a;
    a.shape = kernels::flash_forward_shape(shape_, shape_.qkv_columns(), room);
    a.dropout = kernels::flash_dropout(shape_, dropout_);
    a.o = o.data();
    a.o_stride = columns();
    a.logsumexp = logsumexp.data();
    a.qkv = qkv_.data();
    a.query_blocks = blocks_of(Kernel::Tile::queries);
    launch<Kernel>(shape_.batch * shape_.heads * a.query_blocks, a);
  }

  template <class Kernel>
  void backward_by(const std::vector<T>& grad) {
    const FlashWorkspace parts(shape_.sizes());
    std::vector<float> workspace(at(parts.elements()), nan<float>());
    std::vector<unsigned> counters(at(parts.counters), 12345);
    dqkv.assign(qkv_.size(), nan<T>());
    float* const deltas = workspace.data() + parts.sums;
    using Delta = kernels::FlashDelta<T, head_size>;
    const std::int64_t rows = shape_.tokens() * shape_.heads;
    launch<Delta>((rows + Delta::rows_per_block - 1) / Delta::rows_per_block,
                  {static_cast<int>(shape_.sequence), static_cast<int>(shape_.heads), rows, deltas,
                   grad.data(), columns(), o.data(), columns(), counters.data(), parts.counters});
    kernels::FlashBackwardArguments<T> a;
    a.shape = kernels::flash_backward_shape(shape_, shape_.qkv_columns(), 2);
    a.dropout = kernels::flash_dropout(shape_, dropout_);
    a.dqkv = dqkv.data();
    a.dqkv_stride = shape_.qkv_columns();
    a.grad = grad.data();
    a.grad_stride = columns();
    a.qkv = qkv_.data();
    a.logsumexp = logsumexp.data();
    a.delta = deltas;
    a.sums = workspace.data();
    a.ticket = counters.data();
    a.turns = counters.data() + 1;
    a.key_blocks = blocks_of(Kernel::Tile::keys);
    a.query_blocks = blocks_of(Kernel::Tile::queries);
    launch<Kernel>(shape_.batch * shape_.key_value_heads * a.key_blocks, a);
  }

  std::vector<T> qkv_;
  kernels::AttentionShape shape_;
  kernels::AttentionDropout dropout_;
  EmulatedRun how_;
};

}  // namespace trireme::testing
