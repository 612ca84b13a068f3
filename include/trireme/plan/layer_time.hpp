#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/ends.hpp>
#include <trireme/architecture/layer_program.hpp>
#include <trireme/base/types.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/plan/kernel_time.hpp>
#include <trireme/plan/local_sizes.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/network_time.hpp>

namespace trireme::plan {

/// Seconds of a pass by activity of the rank, and FLOPs of its matrix products.
struct PassTime {
  Seconds compute = 0;  ///< kernels
  Seconds tensor = 0;   ///< messages of the tensor axis that computation does not hide
  Seconds host = 0;     ///< waiting for the host to start kernels
  Seconds data = 0;     ///< waiting for weights that replicas divide
  double flops = 0;     ///< FLOPs of the rank's products, recomputation included

  Seconds total() const { return compute + tensor + host + data; }
  PassTime& operator+=(const PassTime& other);
  PassTime operator*(double times) const;
};

/// Passes of one micro-batch through a part of the model. The backward pass is `backward`, or its
/// two halves if the schedule splits it.
struct PartTime {
  PassTime forward;
  PassTime backward;
  PassTime backward_input;
  PassTime backward_weight;

  PartTime& operator+=(const PartTime& other);
  PartTime operator*(double times) const;
};

/// Costs of the passes of a rank with these sizes on a machine, from the lists of operations: each
/// step is a kernel whose products, and bytes read and written, follow from its tensors.
class LayerTime {
 public:
  LayerTime(const architecture::Architecture& architecture, const LocalSizes& sizes,
            const KernelTime& kernels, const NetworkTime& network, const Machine& machine);

  /// One layer that keeps the program's tensors and recomputes other tensors.
  PartTime layer(const architecture::LayerDescription& layer,
                 const architecture::LayerProgram& program) const;
  PartTime embedding() const;
  PartTime head(architecture::HeadGradient gradient) const;
  /// A rank's part of a shared vocabulary: the logits with the gradient of their input as
  /// `forward`, and the table's gradient as `backward_weight`.
  PartTime shared_logits(architecture::HeadGradient gradient) const;

 private:
  using Part = architecture::LayerDescription;
  PassTime steps(const Part& layer, const std::vector<architecture::Step>& steps) const;
  PassTime step(const Part& part, const architecture::Step& step) const;
  PassTime end(const Part& part, architecture::Pass pass, bool logits_again = false) const;
  Seconds loss_time(architecture::Pass pass, bool logits_again) const;
  void add_product(PassTime& time, const Part& part, const architecture::Step& step) const;
  void add_adapter(PassTime& time, const Part& part, const architecture::Step& step) const;
  void add_kernel(PassTime& time, const Part& part, const architecture::Step& step) const;
  void add_attention(PassTime& time, const Part& part, const architecture::Step& step) const;
  /// Messages of attention over the context axis.
  Seconds ring_time(bool forward) const;
  void add_stored_scores(PassTime& time, bool forward) const;
  double bytes_of(const Part& part, const architecture::Value& value) const;
  double bytes_moved(const Part& part, const architecture::Step& step) const;
  Seconds message(const Part& part, const architecture::Operation& op,
                  architecture::Pass pass) const;
  double message_bytes(const Part& part, const architecture::Message& message) const;

  const architecture::Architecture& architecture_;
  LocalSizes sizes_;
  const KernelTime& kernels_;
  const NetworkTime& network_;
  const Machine& machine_;
};

}  // namespace trireme::plan
