#pragma once

#include <trireme/base/types.hpp>

#include <iosfwd>
#include <string>
#include <vector>

/// One representation of a schedule: a list of instructions per rank, generated, lowered,
/// validated, simulated and executed. Nothing else in the program knows a schedule by its name.
namespace trireme::schedule {

enum class Op : std::uint8_t {
  forward,          ///< stage's forward pass of one micro-batch; the last stage's includes the loss
  backward,         ///< input and weight halves together
  backward_input,   ///< gradient of the stage's input
  backward_weight,  ///< gradient of the stage's weights
  reduce_gradients,  ///< sum of a stage's weight gradients over the data axis
  optimizer_step,    ///< update of a stage's weights
};

/// `stage` and `micro` are zero-based; micro is 0 where an operation belongs to the whole step.
struct Instr {
  Op op = Op::forward;
  Stage stage = 0;
  Micro micro = 0;
  bool operator==(const Instr&) const = default;
};

std::string to_string(const Instr& instr);
std::ostream& operator<<(std::ostream& out, const Instr& instr);

struct ProgramLayout {
  int ranks = 1;          ///< pipeline size; stage s lives on rank s
  int micro_batches = 1;  ///< per data-parallel rank and step
  int stages() const { return ranks; }
  Rank rank_of(Stage stage) const { return stage; }
};

/// Order only: no times, peers or buffer numbers.
struct Program {
  ProgramLayout layout;
  std::vector<std::vector<Instr>> ranks;
};

/// What an instruction depends on and what it provides. A value is written once per step.
struct Value {
  enum class Kind : std::uint8_t {
    activation,       ///< output of a stage for a micro-batch
    saved,            ///< what its backward pass needs again: the content of one slot
    input_gradient,   ///< gradient of a stage's input for a micro-batch
    weight_work,      ///< what backward_input leaves for backward_weight
    weight_gradient,  ///< weight gradient that includes micro-batches 0 … micro
    reduced,          ///< weight gradient summed over the data axis
    weights,          ///< updated weights
  };
  Kind kind = Kind::activation;
  Stage stage = 0;
  Micro micro = 0;
  auto operator<=>(const Value&) const = default;
};

struct Effects {
  std::vector<Value> reads;
  std::vector<Value> writes;
  std::vector<Value> frees;
};

/// The only statement of what depends on what. Weight gradients are a chain 0 … m−1, so that every
/// valid schedule adds micro-batches in the same order and gives the same bits.
Effects effects(const Instr& instr, const ProgramLayout& layout);

/// Orders by the named schedule: "gpipe" (Huang et al. 2019) or "1f1b" (Narayanan et al. 2019,
/// PipeDream-Flush).
Program generate(ScheduleKind kind, const ProgramLayout& layout);

/// Appends the gradient reduction and the update of each rank's stages.
void lower(Program& program);

/// Every mistake found, each with rank, position and instruction; empty if the program is complete
/// and cannot hang.
std::vector<std::string> validate(const Program& program);

/// Slots of saved activations that `rank` needs at the same time.
int slots_needed(const Program& program, Rank rank);

/// Hash of the whole program, to be compared between ranks.
std::uint64_t fingerprint(const Program& program);

}  // namespace trireme::schedule
