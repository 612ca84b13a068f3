#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <string>
#include <vector>

/// Choices of a deck that depend on the machine.
namespace trireme::plan {

/// Throws a UsageError if the deck requires a feature that the machine lacks. Every command that
/// runs or plans a deck calls it first.
void expect_available(const deck::Deck& deck, const Machine& machine);

/// Whether messages between ranks use NCCL. Every rank, and `check` anywhere, decide alike.
bool uses_nccl(const deck::ParallelConfig& parallel, const Machine& machine);
/// Queueing of transfers between pipeline stages, for which programs are lowered.
schedule::Transport transport(const deck::ParallelConfig& parallel, const Machine& machine);

/// Effect of [parallel] offload: none without separate device memory.
bool offloads_optimizer(const deck::ParallelConfig& parallel, const Machine& machine);
bool offloads_activations(const deck::ParallelConfig& parallel, const Machine& machine);

/// Whether cuDNN computes the gradient of attention, which needs an additional workspace.
bool has_cudnn_gradient(const deck::PrecisionConfig& precision, const Machine& machine);

/// The effect of one of the deck's choices.
struct Note {
  std::string topic;  ///< "transport", "offload", "tf32", "products" or "attention"
  std::string words;
};

/// The choices in words, for `check` and the log. On a host a deck without such keys has none.
std::vector<Note> notes(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
