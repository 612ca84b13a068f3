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

/// An instruction and its memory. With overlapping steps, micro-batches 0 … m − 1 belong to the
/// current step and later micro-batches to the next step. In an instruction of a whole step,
/// instr.micro is 0 for the current step and −1 for the previous step.
struct PlacedInstr {
  schedule::Instr instr;
  int slot = 0;         ///< slot of the micro-batch's saved activations
  int logits_slot = 0;  ///< slot of the micro-batch's logits, with a shared vocabulary
  /// Index of the receive buffer, or of the buffer for a message to the same rank; −1: none.
  int buffer = -1;
  /// Whether the instruction is the first or the last transfer of a group of transfers.
  bool opens_group = false;
  bool closes_group = false;
};

/// Actions of a program's instructions. StepActions implements them.
class Actions {
 public:
  virtual ~Actions() = default;
  virtual void forward(const PlacedInstr& placed) = 0;
  virtual void evaluate(const PlacedInstr& placed) = 0;
  virtual void backward(const PlacedInstr& placed) = 0;
  virtual void backward_input(const PlacedInstr& placed) = 0;
  virtual void backward_weight(const PlacedInstr& placed) = 0;
  /// Called for all instructions of a shared vocabulary.
  virtual void shared_vocabulary(const PlacedInstr&) {}
  virtual void send_activation(const PlacedInstr& placed) = 0;
  virtual void receive_activation(const PlacedInstr& placed) = 0;
  virtual void send_gradient(const PlacedInstr& placed) = 0;
  virtual void receive_gradient(const PlacedInstr& placed) = 0;
  /// Called before and after the transfers of one group.
  virtual void begin_group() {}
  virtual void end_group() {}
  virtual void reduce_gradients(const PlacedInstr& placed) = 0;
  virtual void reduce_tied(const PlacedInstr& placed) = 0;
  virtual void gradient_norm(const PlacedInstr& placed) = 0;
  virtual void optimizer_step(const PlacedInstr& placed) = 0;
  virtual void begin_tied(const PlacedInstr&) {}
  virtual void begin_norm(const PlacedInstr&) {}
};

/// Runs an instruction, and begins or ends a group of transfers as `placed` requires.
void run(Actions& actions, const PlacedInstr& placed);

/// Gives each value that `counts` selects the lowest free number, from its write until it is freed.
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

/// Runs one rank's row of a program. In a program of several steps, run() runs the step that
/// prepare() chose.
class Executor {
 public:
  Executor(const schedule::Program& program, Rank rank);

  std::int64_t micro_batches() const { return micro_batches_; }  ///< per step and data rank
  int slots() const { return slots_; }
  int logits_slots() const { return logits_slots_; }
  /// Largest number of posted receives of activations.
  int activation_buffers() const { return activation_buffers_; }
  /// Largest number of posted receives of gradients.
  int gradient_buffers() const { return gradient_buffers_; }
  /// Largest number of messages to the same rank that are not yet consumed.
  int handed_over_buffers() const { return handed_over_buffers_; }
  bool splits_backward() const { return splits_backward_; }
  bool overlaps_steps() const { return layout_.overlaps_steps(); }
  const schedule::ProgramLayout& layout() const { return layout_; }

  /// Chooses the step that run() runs. `begun`: the previous step has run forward passes of this
  /// step. `next_follows`: this step runs forward passes of the next step. No effect on a program
  /// of one step.
  void prepare(bool begun, bool next_follows);
  /// Index of the chosen step in the program, and the position of the step's first instruction.
  int part() const { return static_cast<int>(part_); }
  std::size_t first_position() const { return part_ == 0 ? 0 : ends_[part_ - 1]; }

  /// Called with each instruction and its position in the step; must run the instruction.
  using Around = std::function<void(const PlacedInstr& placed, std::size_t position)>;
  void run(Actions& actions) const;
  void run(const Around& around) const;

 private:
  using Row = std::vector<schedule::Instr>;

  void reset_numbers();
  /// Assigns slots and buffers to a row's instructions, and appends the instructions to placed_,
  /// renumbered for a program that begins with step `step`.
  void assign(std::span<const schedule::Instr> row, int step);
  void mark_groups();

  schedule::ProgramLayout layout_;
  Row row_;
  Row alone_;                      ///< row of a single step, if the program has several
  std::vector<std::size_t> ends_;  ///< ends of the steps in row_
  std::size_t part_ = 0;
  /// Numbers of slots, logits slots, received activations, received gradients, local messages.
  std::vector<Numbers> numbers_;
  std::vector<PlacedInstr> placed_;
  std::int64_t micro_batches_ = 0;
  int slots_ = 0;
  int logits_slots_ = 0;
  int activation_buffers_ = 0;
  int gradient_buffers_ = 0;
  int handed_over_buffers_ = 0;
  bool splits_backward_ = false;
};

}  // namespace trireme::train
