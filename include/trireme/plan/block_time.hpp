#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/kernel_time.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/network_time.hpp>
#include <trireme/plan/typed_sizes.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::plan {

/// Seconds of a pass by activity of the rank, and FLOPs of its matrix products.
struct PassTime {
  Seconds compute = 0;  ///< kernels
  /// Messages of the tensor and context axes that computation does not hide, and exchanges of
  /// tokens among replicas that divide the experts.
  Seconds tensor = 0;
  Seconds host = 0;  ///< waiting for the host to start kernels
  Seconds data = 0;  ///< waiting for weights that replicas divide
  double flops = 0;  ///< FLOPs of the rank's products, recomputation included

  Seconds total() const { return compute + tensor + host + data; }
  PassTime& operator+=(const PassTime& other);
  PassTime operator*(double times) const;
};

/// Passes of one micro-batch through a part of the model. The backward pass is `backward`, or its
/// two halves if the schedule splits it.
struct BlockTime {
  PassTime forward;
  PassTime backward;
  PassTime backward_input;
  PassTime backward_weight;

  BlockTime& operator+=(const BlockTime& other);
  BlockTime operator*(double times) const;
};

/// Times of the passes of a rank with these sizes on a machine, computed from the calls of
/// operations: the matrix products and the memory traffic of a call follow from its tensors.
class BlockTimeModel {
 public:
  BlockTimeModel(const architecture::Architecture& architecture, const TypedSizes& sizes,
                 const KernelTime& kernels, const NetworkTime& network, const Machine& machine);

  /// Times of a layer that keeps the tensors in `program.kept` and recomputes other tensors.
  BlockTime layer(const architecture::BlockDescription& layer,
                  const architecture::BlockProgram& program) const;
  BlockTime embedding() const;
  BlockTime head(architecture::HeadGradient gradient) const;
  /// Times of a rank's part of a shared vocabulary: `forward` is the logits, the loss and the
  /// gradient of the logits' input; `backward_weight` is the table's gradient.
  BlockTime shared_logits(architecture::HeadGradient gradient) const;

 private:
  using Part = architecture::BlockDescription;
  BlockTime layer_of_stream(const Part& layer, const architecture::BlockProgram& program) const;
  PassTime calls(const Part& layer, const std::vector<architecture::OperationCall>& calls) const;
  PassTime call(const Part& part, const architecture::OperationCall& call) const;
  PassTime end(const Part& part, architecture::Pass pass, bool logits_again = false) const;
  Seconds loss_time(architecture::Pass pass, bool logits_again) const;
  void add_product(PassTime& time, const Part& part, const architecture::OperationCall& call) const;
  /// Rows of a rank's experts, all together, and their number.
  struct RoutedRows {
    std::int64_t experts = 0;
    std::int64_t rows = 0;
  };
  void add_expert_product(PassTime& time, const Part& part,
                          const architecture::OperationCall& call) const;
  void add_routing(PassTime& time, const Part& part, const architecture::OperationCall& call,
                   RoutedRows routed) const;
  std::pair<ProductSizes, double> product_of(architecture::Pass pass, std::int64_t rows,
                                             std::int64_t in, std::int64_t columns) const;
  Seconds adding_time(double weights) const;
  void add_adapter(PassTime& time, const Part& part, const architecture::OperationCall& call) const;
  void add_kernel(PassTime& time, const Part& part, const architecture::OperationCall& call) const;
  void add_rounds(PassTime& time, const Part& part, const architecture::OperationCall& call) const;
  void add_attention(PassTime& time, const Part& part,
                     const architecture::OperationCall& call) const;
  /// Time of the messages of attention over the context axis.
  Seconds ring_time(bool forward) const;
  double ring_sum_bytes(bool forward) const;
  void add_stored_scores(PassTime& time, const architecture::Operation& attention,
                         bool forward) const;
  std::int64_t rows_of(const architecture::Rows& rows) const;
  double bytes_of(const Part& part, const architecture::Value& value) const;
  double bytes_moved(const Part& part, const architecture::OperationCall& call) const;
  Seconds message(const Part& part, const architecture::Operation& op,
                  architecture::Pass pass) const;
  Seconds exchange(const Part& part, const architecture::Operation& op,
                   architecture::Pass pass) const;
  std::int64_t launches(const Part& part, const architecture::OperationCall& call) const;
  bool sends_copies() const;
  double copies() const;
  double message_bytes(const Part& part, const architecture::Message& message) const;

  const architecture::Architecture& architecture_;
  TypedSizes sizes_;
  const KernelTime& kernels_;
  const NetworkTime& network_;
  const Machine& machine_;
};

}  // namespace trireme::plan
