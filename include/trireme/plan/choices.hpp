#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <string>
#include <vector>

/// Choices of a deck that depend on the machine.
namespace trireme::plan {

/// Throws a UsageError if kernels run on a device and the deck requires a feature that the machine
/// lacks.
void expect_available(const deck::Deck& deck, const Machine& machine);

/// Whether messages between ranks use NCCL. The result depends only on the arguments, so that all
/// ranks and `check` agree.
bool uses_nccl(const deck::ParallelConfig& parallel, const Machine& machine);
/// ordered_groups if messages use NCCL, otherwise independent_channels.
schedule::Transport transport(const deck::ParallelConfig& parallel, const Machine& machine);

/// Whether [parallel] offload moves the optimizer's state, or saved activations, to the host's
/// memory. False without separate device memory.
bool offloads_optimizer(const deck::ParallelConfig& parallel, const Machine& machine);
bool offloads_activations(const deck::ParallelConfig& parallel, const Machine& machine);

/// Whether the deck chooses cuDNN for attention and the machine has it.
bool has_cudnn_gradient(const deck::PrecisionConfig& precision, const Machine& machine);

/// The effect of one of the deck's choices.
struct Note {
  std::string topic;  ///< "transport", "offload", "tf32", "products", "attention" or "experts"
  std::string words;
};

/// Notes about the choices that have an effect to report, for `check` and the log.
std::vector<Note> notes(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
