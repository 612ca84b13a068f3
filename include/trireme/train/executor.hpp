#pragma once

#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::train {

/// An instruction and its memory.
struct Step {
  schedule::Instr instr;
  int slot = 0;  ///< number of the micro-batch's slot of saved activations
  /// Receive buffer that it posts or reads, or the buffer of a message to its own rank that it
  /// writes or reads; −1: none.
  int buffer = -1;
  /// First and last transfer of a sequence of adjacent transfers in the row, under ordered groups.
  bool opens_group = false;
  bool closes_group = false;
};

/// Actions of a program's instructions; the worker implements them.
class Actions {
 public:
  virtual ~Actions() = default;
  virtual void forward(const Step& step) = 0;
  virtual void evaluate(const Step& step) = 0;
  virtual void backward(const Step& step) = 0;
  virtual void backward_input(const Step& step) = 0;
  virtual void backward_weight(const Step& step) = 0;
  virtual void send_activation(const Step& step) = 0;
  virtual void receive_activation(const Step& step) = 0;
  virtual void send_gradient(const Step& step) = 0;
  virtual void receive_gradient(const Step& step) = 0;
  /// Called before and after the transfers of one group.
  virtual void begin_group() {}
  virtual void end_group() {}
  virtual void reduce_gradients(const Step& step) = 0;
  virtual void reduce_tied(const Step& step) = 0;
  virtual void gradient_norm(const Step& step) = 0;
  virtual void optimizer_step(const Step& step) = 0;
};

/// Runs an instruction, and opens or closes its group.
void run(Actions& actions, const Step& step);

/// Runs one rank's row of a program, once per training step. Slots of saved activations and receive
/// buffers are assigned and released according to effects(), in the same way in each step.
class Executor {
 public:
  Executor(const schedule::Program& program, Rank rank);

  std::int64_t micro_batches() const { return micro_batches_; }  ///< per step and data rank
  int slots() const { return slots_; }
  int activation_buffers() const { return activation_buffers_; }  ///< posted at the same time
  int gradient_buffers() const { return gradient_buffers_; }
  /// Messages to the rank itself that are not yet consumed, at the same time.
  int handed_over_buffers() const { return handed_over_buffers_; }
  bool splits_backward() const { return splits_backward_; }

  /// Calls `around` with each step, in the order of the row; `around` runs the step.
  using Around = std::function<void(const Step& step, std::size_t position)>;
  void run(Actions& actions) const;
  void run(const Around& around) const;

 private:
  void mark_groups(const schedule::ProgramLayout& layout);

  std::vector<Step> steps_;
  std::int64_t micro_batches_ = 0;
  int slots_ = 0;
  int activation_buffers_ = 0;
  int gradient_buffers_ = 0;
  int handed_over_buffers_ = 0;
  bool splits_backward_ = false;
};

}  // namespace trireme::train
