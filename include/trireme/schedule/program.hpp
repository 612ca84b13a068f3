#pragma once

#include <trireme/base/types.hpp>
#include <trireme/layout/stage_map.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// A schedule is a list of instructions per pipeline rank. It is generated (or read from a file),
/// lowered, validated, simulated, drawn and executed. Except for the generation, these steps do not
/// depend on the schedule's name.
namespace trireme::schedule {

/// Time of an event that never happens.
inline constexpr Seconds never = std::numeric_limits<Seconds>::infinity();

enum class Op : std::uint8_t {
  // Computations
  forward,          ///< forward pass of one micro-batch that saves activations
  evaluate,         ///< forward pass that saves nothing
  backward,         ///< whole backward pass: the input half and the weight half
  backward_input,   ///< input half: gradient of the stage's input
  backward_weight,  ///< weight half: gradient of the stage's weights
  // Computations with a pipeline rank's part of a shared vocabulary
  look_up,           ///< rows of the token table; their sum is the first stage's input
  logits,            ///< logits, their statistics, and the gradient of the last stage's output
  evaluate_logits,   ///< logits and statistics without gradient
  combine_logits,    ///< finishes `logits` with the statistics of all ranks
  logits_gradient,   ///< gradient of the output table
  look_up_gradient,  ///< gradient of the token table
  // Transfers between stages, all non-blocking
  send_activation,     ///< starts sending the stage's output to the next stage
  receive_activation,  ///< posts the receive of the stage's input from the previous stage
  send_gradient,       ///< starts sending the gradient of the stage's input to the previous stage
  receive_gradient,    ///< posts the receive of the gradient of the stage's output
  // Broadcasts to all pipeline ranks, non-blocking
  share_output,    ///< broadcast of the last stage's output
  share_gradient,  ///< broadcast of the gradient of the first stage's input
  // Once per step
  reduce_gradients,  ///< end of the sum of a stage's weight gradients over the data axis
  reduce_tied,       ///< sum of the first and the last stage's gradients of the tied token table
  gradient_norm,     ///< once per rank: norm of all gradients, a collective of all pipeline ranks
  optimizer_step,    ///< once per rank: update of the weights of all its stages
  // Beginnings of the collectives above, only in programs of several steps
  begin_tied,  ///< begins the sum that reduce_tied ends
  begin_norm,  ///< begins the sum that gradient_norm ends
};
inline constexpr int ops = 23;

std::string_view name_of(Op op);
/// True for the instructions that count as busy time.
constexpr bool is_compute(Op op) {
  return op <= Op::look_up_gradient;
}
constexpr bool is_send(Op op) {
  return op == Op::send_activation || op == Op::send_gradient;
}
constexpr bool is_receive(Op op) {
  return op == Op::receive_activation || op == Op::receive_gradient;
}
constexpr bool is_transfer(Op op) {
  return is_send(op) || is_receive(op);
}
/// True for the instructions that begin a collective that another instruction ends.
constexpr bool is_begin(Op op) {
  return op == Op::begin_tied || op == Op::begin_norm;
}
/// True for the instructions that begin a message among all pipeline ranks. The message arrives
/// once all ranks have begun it.
constexpr bool is_shared(Op op) {
  return op == Op::look_up || op == Op::logits || op == Op::evaluate_logits ||
         op == Op::combine_logits || op == Op::share_output || op == Op::share_gradient;
}
/// True for the passes through a stage's layers.
constexpr bool is_pass(Op op) {
  return op <= Op::backward_weight;
}
constexpr bool is_collective(Op op) {
  return op == Op::reduce_tied || op == Op::gradient_norm;
}

/// An instruction. `stage` and `micro` are zero-based. For an operation of a whole step, `micro` is
/// the step's index in the program: 0 if the program has only one step. For an operation of the
/// whole rank, `stage` is the rank's first stage.
struct Instr {
  Op op = Op::forward;
  Stage stage = 0;
  Micro micro = 0;
  bool opens_group = false;  ///< a transfer that begins a new group; not compared by ==
  bool operator==(const Instr& other) const {
    return op == other.op && stage == other.stage && micro == other.micro;
  }
};

std::string to_string(const Instr& instr);
std::ostream& operator<<(std::ostream& out, const Instr& instr);

/// The ordering rule of transfers, which determines whether a program completes.
enum class Transport : std::uint8_t {
  /// MPI tags and requests: one first-in-first-out queue per channel (receiving stage, direction).
  independent_channels,
  /// One NCCL communicator: a rank's transfers form one queue in program order. Adjacent transfers,
  /// up to the next transfer that opens a group, form one group. A group completes when all its
  /// transfers have matched, and only then the next group starts. Sends and receives between two
  /// ranks match in order.
  ordered_groups,
};
std::string_view name_of(Transport transport);

/// An item that instructions read and write. A value is written once per program.
struct Value {
  enum class Kind : std::uint8_t {
    output,             ///< result of a stage's forward pass in scratch: activations or the loss
    sent_activation,    ///< the message with this stage's input, in flight
    posted_activation,  ///< the receive buffer of this stage's input
    saved,              ///< activations for a stage's backward pass: the content of one slot
    input_gradient,     ///< gradient of a stage's input, in scratch
    sent_gradient,      ///< the message with the gradient of this stage's output, in flight
    posted_gradient,    ///< the receive buffer of the gradient of this stage's output
    weight_work,        ///< values from backward_input for backward_weight, in the slot
    weight_gradient,    ///< weight gradient that includes micro-batches 0 … micro
    reduced,            ///< weight gradient summed over the data axis
    tied,               ///< gradient of the token table summed over first and last stage
    norm,               ///< norm of all gradients, on one rank
    weights,            ///< updated weights
    tied_part,          ///< start of the stage's part in the sum over first and last stage
    norm_part,          ///< start of the rank's part in the norm
    // Only with a shared vocabulary; `stage` is on the rank that reads or writes the value.
    looked_up,           ///< arrival of the first stage's input
    shared_output,       ///< arrival of the last stage's output
    scores,              ///< statistics of this rank's logits
    statistics,          ///< arrival of the statistics of all ranks' logits
    combined,            ///< statistics of the whole vocabulary; losses up to this micro-batch
    output_gradient,     ///< arrival of the gradient of the last stage's output
    embedding_gradient,  ///< gradient of the first stage's input, in scratch
    shared_gradient,     ///< arrival of the gradient of the first stage's input
    logits_slot,         ///< values kept for logits_gradient
    table_gradient,      ///< gradient of the output table with micro-batches 0 … micro
    look_up_sum,         ///< gradient of the token table with micro-batches 0 … micro
  };
  static constexpr int kinds = 26;
  Kind kind = Kind::output;
  Stage stage = 0;
  Micro micro = 0;
  auto operator<=>(const Value&) const = default;
};

/// Whether a value of this kind is a message that arrives.
constexpr bool is_arrival(Value::Kind kind) {
  using Kind = Value::Kind;
  return kind == Kind::sent_activation || kind == Kind::sent_gradient || kind == Kind::looked_up ||
         kind == Kind::shared_output || kind == Kind::statistics || kind == Kind::output_gradient ||
         kind == Kind::shared_gradient;
}
/// Kind of the value that arrives once all ranks have executed `op`; is_shared(op) must hold.
Value::Kind arrival_of(Op op);
/// Largest number of messages of one kind in flight with a shared vocabulary.
inline constexpr int shared_buffers = 2;

struct ProgramLayout {
  int ranks = 1;          ///< pipeline size p
  int micro_batches = 1;  ///< m, per data-parallel rank and step
  int chunks = 1;         ///< v, stages of each rank
  bool tied = false;      ///< the last stage uses the first stage's token table; set by lower()
  Transport transport =
      Transport::independent_channels;  ///< transport of the lowered program; set by lower()
  StagePlacement placement = StagePlacement::round_robin;
  /// Consecutive training steps without a flush between them, as in PipeDream-2BW (Narayanan et al.
  /// 2021, arXiv 2006.09503). Micro-batches are numbered across all steps. Step t is computed with
  /// the weights before the update of step t − 1.
  int steps = 1;

  /// Number of micro-batches in all steps.
  int passes() const { return micro_batches * steps; }
  int step_of(Micro micro) const { return micro / micro_batches; }
  bool overlaps_steps() const { return steps > 1; }
  /// Whether the token and output tables are divided among all pipeline ranks.
  bool shares_vocabulary = false;

  layout::StageMap map() const { return {ranks, chunks, placement}; }
  int stages() const { return ranks * chunks; }
  Stage last_stage() const { return stages() - 1; }
  Rank rank_of(Stage stage) const { return map().rank_of(stage); }
  int chunk_of(Stage stage) const { return map().chunk_of(stage); }
  Stage stage_of(Rank rank, int chunk) const { return map().stage_of(rank, chunk); }
  /// The stage of an instruction of the whole rank.
  Stage first_stage(Rank rank) const { return stage_of(rank, 0); }
  /// Number of ranks that hold the tied token table: the ranks of the first and the last stage.
  int holders_of_table() const { return rank_of(0) == rank_of(last_stage()) ? 1 : 2; }
  /// The stages that have a gradient of the table, one for each holder.
  std::vector<Stage> ends_of_table() const {
    return holders_of_table() == 1 ? std::vector<Stage>{0} : std::vector<Stage>{0, last_stage()};
  }
  bool holds_table(Rank rank) const { return rank == rank_of(0) || rank == rank_of(last_stage()); }
  /// Whether a transfer stays on its rank. It then needs no message.
  bool is_local(const Instr& transfer) const;
  /// Whether the value belongs to a transfer that stays on its rank.
  bool is_local(const Value& message) const;
  bool operator==(const ProgramLayout&) const = default;
};

/// A program is only an order of instructions: it has no times, peers or buffer numbers.
struct Program {
  ProgramLayout layout;
  std::vector<std::vector<Instr>> ranks;
  bool operator==(const Program&) const = default;
};

std::string to_string(const Value& value);

/// Dense index of a value in [0, values(layout)), so that tables over values are plain arrays.
inline std::size_t index_of(const Value& v, const ProgramLayout& layout) {
  return (static_cast<std::size_t>(v.stage) * static_cast<std::size_t>(layout.passes()) +
          static_cast<std::size_t>(v.micro)) *
             Value::kinds +
         static_cast<std::size_t>(v.kind);
}
inline std::size_t values(const ProgramLayout& layout) {
  return static_cast<std::size_t>(layout.stages()) * static_cast<std::size_t>(layout.passes()) *
         Value::kinds;
}

struct Effects {
  std::vector<Value> reads;
  std::vector<Value> writes;
  std::vector<Value> frees;  ///< values that are freed after the instruction
};

/// The only definition of dependences: lowering, validation, simulation, slots and buffers derive
/// from it. A received value exists once its message was sent and its receive was posted. The
/// weight gradients of a step's micro-batches 0 … m−1 form a chain, and so do the last stage's
/// forward passes. Every valid schedule therefore sums micro-batches in the same order and gives
/// the same bits. Every stage boundary is a transfer, even within a rank.
Effects effects(const Instr& instr, const ProgramLayout& layout);
/// Writes the effects to `out`, whose memory is reused.
void effects(const Instr& instr, const ProgramLayout& layout, Effects& out);

/// For a transfer: the rank at its other end, and the instruction of that rank.
Rank peer_of(const Instr& instr, const ProgramLayout& layout);
Instr partner_of(const Instr& instr);

/// Reason why the row of `rank` cannot contain `instr`, for a message; "" if it can.
std::string misplaced(const Instr& instr, const ProgramLayout& layout, Rank rank);

/// The number of ranks that a collective instruction needs; rank 0 is always one of them.
inline int members_of(Op collective, const ProgramLayout& layout) {
  return collective == Op::reduce_tied ? layout.holders_of_table() : layout.ranks;
}

/// Hash of programs, to compare them between ranks.
std::uint64_t fingerprint(std::span<const Program> programs);

}  // namespace trireme::schedule
