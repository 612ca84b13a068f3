#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <string>

/// Choices of a deck that depend on the machine.
namespace trireme::plan {

/// Throws a UsageError if the deck requires a feature that the machine lacks. Every command that
/// runs or plans a deck calls it first.
void expect_available(const deck::Deck& deck, const Machine& machine);

/// Whether messages between ranks use NCCL. Every rank, and `check` elsewhere, decide alike.
bool uses_nccl(const deck::ParallelConfig& parallel, const Machine& machine);
/// Queueing of transfers between pipeline stages, for which programs are lowered.
schedule::Transport transport(const deck::ParallelConfig& parallel, const Machine& machine);

/// Effect of [parallel] offload: none without separate device memory.
bool offloads_optimizer(const deck::ParallelConfig& parallel, const Machine& machine);
bool offloads_activations(const deck::ParallelConfig& parallel, const Machine& machine);

/// Whether cuDNN computes the gradient of attention, which needs an additional workspace.
bool has_cudnn_gradient(const deck::PrecisionConfig& precision, const Machine& machine);

/// The choices in words, for `check` and the log. Empty on a host without [parallel] transport, for
/// offload = "none", tf32 = false, attention = "auto" and products = "compute".
std::string transport_note(const deck::ParallelConfig& parallel, const Machine& machine);
std::string offload_note(const deck::ParallelConfig& parallel, const Machine& machine);
std::string tf32_note(const deck::PrecisionConfig& precision, const Machine& machine);
std::string products_note(const deck::PrecisionConfig& precision, const Machine& machine);
std::string attention_note(const deck::PrecisionConfig& precision, const Machine& machine);
/// A note if attention to packed documents does not use the kernels that the deck chooses.
std::string packing_note(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
