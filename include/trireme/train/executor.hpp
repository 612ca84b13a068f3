#pragma once

#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace trireme::train {

/// An instruction and its memory. With overlapping steps, micro-batches and steps are numbered
/// relative to the current step: its own micro-batches are 0 … m − 1, the next step's follow, and
/// −1 is the previous step.
struct Step {
  schedule::Instr instr;
  int slot = 0;         ///< slot of the micro-batch's saved activations
  int logits_slot = 0;  ///< slot of its logits, with a shared vocabulary
  /// Receive buffer that the instruction posts or reads, or buffer of a message to the same rank
  /// that it writes or reads; −1: none.
  int buffer = -1;
  /// Whether the instruction is the first or last of a sequence of adjacent transfers in the row,
  /// under ordered groups.
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
  /// Called for all instructions of a shared vocabulary.
  virtual void shared_vocabulary(const Step&) {}
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
  virtual void begin_tied(const Step&) {}
  virtual void begin_norm(const Step&) {}
};

/// Runs an instruction, and opens or closes its group.
void run(Actions& actions, const Step& step);

/// Assigns each value that `counts` selects the lowest number that is free during its lifetime.
class Numbers {
 public:
  explicit Numbers(std::function<bool(const schedule::Value&)> counts)
      : counts_(std::move(counts)) {}

  void take(const schedule::Effects& effects);
  /// Number of the value that the instruction reads or has just written; −1 if there is none.
  int find(const schedule::Effects& effects) const;
  void give_back(const schedule::Effects& effects);
  /// Subtracts `by` from the micro-batches of all held values.
  void renumber(int by);
  int used() const { return used_; }

 private:
  std::function<bool(const schedule::Value&)> counts_;
  int used_ = 0;
  std::set<int> free_;
  std::map<schedule::Value, int> held_;
};

/// Runs one rank's row of a program, once per training step. Slots of saved activations and receive
/// buffers are assigned and released according to effects(), identically in each step. A program of
/// several steps without a flush is run in parts, which prepare() chooses.
class Executor {
 public:
  Executor(const schedule::Program& program, Rank rank);

  std::int64_t micro_batches() const { return micro_batches_; }  ///< per step and data rank
  int slots() const { return slots_; }
  int logits_slots() const { return logits_slots_; }
  int activation_buffers() const { return activation_buffers_; }  ///< posted at a time
  int gradient_buffers() const { return gradient_buffers_; }
  /// Largest number of messages to the same rank that are not yet consumed.
  int handed_over_buffers() const { return handed_over_buffers_; }
  bool splits_backward() const { return splits_backward_; }
  bool overlaps_steps() const { return layout_.overlaps_steps(); }
  const schedule::ProgramLayout& layout() const { return layout_; }

  /// Chooses the part that run() runs: a single step, or one of a program's steps. `begun`: the
  /// previous step has run forward passes of this step. `next_follows`: this step runs forward
  /// passes of the next.
  void prepare(bool begun, bool next_follows);
  /// The chosen step of the program, and the position of its first instruction.
  int part() const { return static_cast<int>(part_); }
  std::size_t first_position() const { return part_ == 0 ? 0 : ends_[part_ - 1]; }

  /// Calls `around` with each step, in the order of the row; `around` runs the step.
  using Around = std::function<void(const Step& step, std::size_t position)>;
  void run(Actions& actions) const;
  void run(const Around& around) const;

 private:
  using Row = std::vector<schedule::Instr>;

  void reset_numbers();
  /// Assigns numbers to a row's instructions, and appends the instructions to steps_.
  void assign(std::span<const schedule::Instr> row, int step);
  void mark_groups();

  schedule::ProgramLayout layout_;
  Row row_;
  Row alone_;                      ///< row of a single step, for a program of several
  std::vector<std::size_t> ends_;  ///< ends of the steps in row_
  std::size_t part_ = 0;
  std::vector<Numbers> numbers_;  ///< slots, logits, activations, gradients, messages to this rank
  std::vector<Step> steps_;
  std::int64_t micro_batches_ = 0;
  int slots_ = 0;
  int logits_slots_ = 0;
  int activation_buffers_ = 0;
  int gradient_buffers_ = 0;
  int handed_over_buffers_ = 0;
  bool splits_backward_ = false;
};

}  // namespace trireme::train
