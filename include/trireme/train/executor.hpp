#pragma once

#include <trireme/schedule/program.hpp>

#include <cstdint>
#include <functional>
#include <vector>

namespace trireme::train {

/// What the instructions of a program mean; implemented by the worker. A slot holds the saved
/// activations of one micro-batch from its forward pass to the end of its backward pass.
class Actions {
 public:
  virtual ~Actions() = default;
  virtual void forward(schedule::Instr instr, int slot) = 0;
  virtual void backward(schedule::Instr instr, int slot) = 0;
  virtual void backward_input(schedule::Instr instr, int slot) = 0;
  virtual void backward_weight(schedule::Instr instr, int slot) = 0;
  virtual void reduce_gradients(schedule::Instr instr) = 0;
  virtual void optimizer_step(schedule::Instr instr) = 0;
};

/// Runs one rank's row of a program, once per step. Slots are handed out and taken back as
/// effects() says, in the same way in every step.
class Executor {
 public:
  Executor(const schedule::Program& program, Rank rank);

  int slots() const { return slots_; }
  void run(Actions& actions) const;

 private:
  struct Entry {
    schedule::Instr instr;
    int slot;
  };
  std::vector<Entry> entries_;
  int slots_ = 0;
};

}  // namespace trireme::train
