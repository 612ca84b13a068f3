#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <string>
#include <vector>

/// Effects of a deck's choices on a machine.
namespace trireme::plan {

/// Throws a UsageError where the deck asks for what the machine lacks. Every command that reads a
/// deck for running it, or on its behalf, calls it first.
void expect_available(const deck::Deck& deck, const Machine& machine);

/// Whether messages between ranks go by NCCL: every rank, and `check` elsewhere, find the same.
bool uses_nccl(const deck::ParallelConfig& parallel, const Machine& machine);
/// How transfers between pipeline stages queue, for which programs are lowered.
schedule::Transport transport(const deck::ParallelConfig& parallel, const Machine& machine);

/// Effect of [parallel] offload: none without separate device memory.
bool offloads_optimizer(const deck::ParallelConfig& parallel, const Machine& machine);
bool offloads_activations(const deck::ParallelConfig& parallel, const Machine& machine);

/// Whether cuDNN computes the gradient of attention, which takes a workspace of its own size.
bool has_cudnn_gradient(const deck::PrecisionConfig& precision, const Machine& machine);

/// The effect of one of the deck's choices.
struct Note {
  std::string topic;  ///< "transport", "offload", "tf32", "products" or "attention"
  std::string words;
};

/// The choices in words, for `check` and the log. On a host a deck without such keys has none.
std::vector<Note> notes(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
