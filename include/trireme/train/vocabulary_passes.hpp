#pragma once

#include <trireme/data/batch_reader.hpp>
#include <trireme/grid/communicator.hpp>
#include <trireme/tensor/copy_queue.hpp>
#include <trireme/train/engine_parts.hpp>
#include <trireme/train/executor.hpp>

#include <array>
#include <functional>
#include <span>
#include <vector>

namespace trireme::train {

/// The passes of a vocabulary that all pipeline ranks share, with their messages: all-gathers of
/// statistics, sums to the first and the last stage, and broadcasts from these stages. Each kind of
/// sum and broadcast alternates between two buffers (schedule::share_vocabulary).
template <class P>
class VocabularyPasses {
 public:
  using T = typename P::Compute;
  using Instr = schedule::Instr;

  /// Fills the fields of a micro-batch's whole samples, by their index in the objective.
  using Read = std::function<void(Micro micro, data::BatchFields fields)>;

  /// Arguments must outlive this object.
  VocabularyPasses(EngineParts<P>& parts, const kernels::Handle& handle, Read read);

  /// Waits for the messages whose content or buffer the instruction needs.
  void await(const PlacedInstr& placed);
  /// Runs an instruction of a shared vocabulary. The first `rows` rows of the micro-batch count in
  /// the loss.
  void run(const PlacedInstr& placed, const model::MicroContext& context, std::int64_t rows);

  /// Waits for the sum of all look-ups, and moves it to the input of the first stage.
  void take_input(const PlacedInstr& placed);
  /// Records that the instruction's slot holds the last stage's output of its micro-batch.
  void output_is_in(const PlacedInstr& placed);
  /// Waits for the gradient of the last stage's output, and moves it to the slot of this output.
  void take_output_gradient(const PlacedInstr& placed);
  /// Waits for the sums in flight. The broadcasts end in await().
  void finish();

 private:
  static constexpr int buffers = schedule::shared_buffers;
  struct Message {
    View2<T> slice;  // [tokens of a message, D]
    grid::Request request;
    Micro micro = -1;  ///< micro-batch of a gradient that has not been moved; −1: none
  };
  using Messages = std::array<Message, buffers>;
  struct HostFields {
    StagingBuffer memory;
    std::vector<std::span<std::int32_t>> fields;
    Event copied;
  };

  static Message& of(Messages& messages, Micro micro) {
    return messages.at(static_cast<std::size_t>(micro % buffers));
  }
  Rank last() const { return parts_.pipeline.size() - 1; }
  bool is_first() const { return parts_.pipeline.rank() == 0; }
  bool is_last() const { return parts_.pipeline.rank() == last(); }
  void upload(Micro micro, const char* field, View1<std::int32_t> to);
  View3<double> statistics() const;
  void broadcast(grid::Communicator& ranks, Message& message, Rank root);
  void reduce(grid::Communicator& ranks, Message& message, Rank root);
  void look_up(const PlacedInstr& placed);
  void share_output(const PlacedInstr& placed);
  void logits(const PlacedInstr& placed);
  void combine(const PlacedInstr& placed, const model::MicroContext& context, std::int64_t rows);
  void share_gradient(const PlacedInstr& placed);
  void look_up_gradient(const PlacedInstr& placed);
  void take(Message& message);

  EngineParts<P>& parts_;
  const kernels::Handle& handle_;
  Read read_;
  typename model::SharedVocabulary<P>::Between between_;
  HostFields host_;
  Messages inputs_, outputs_, gradients_, input_gradients_;
  grid::Request statistics_;
  /// Slots of the last stage's outputs, by micro-batch mod slots_.size().
  std::array<int, 4 * buffers> slots_{};
  bool trains_ = true;  ///< whether the latest logits are of a training step
};

extern template class VocabularyPasses<model::Fp32>;
extern template class VocabularyPasses<model::Fp64>;
extern template class VocabularyPasses<model::MixedBf16>;
extern template class VocabularyPasses<model::MixedFp16>;

}  // namespace trireme::train
