#pragma once

#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/program.hpp>

#include <string>

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

/// The choices in words, for `check` and the log. Empty where there is nothing to say: on a host
/// without [parallel] transport, for offload = "none", tf32 = false, attention = "auto" and
/// products = "compute".
std::string transport_note(const deck::ParallelConfig& parallel, const Machine& machine);
std::string offload_note(const deck::ParallelConfig& parallel, const Machine& machine);
std::string tf32_note(const deck::PrecisionConfig& precision, const Machine& machine);
std::string products_note(const deck::PrecisionConfig& precision, const Machine& machine);
std::string attention_note(const deck::PrecisionConfig& precision, const Machine& machine);
/// If attention to packed documents is not computed by the kernels that the deck chooses.
std::string packing_note(const deck::Config& config, const Machine& machine);

}  // namespace trireme::plan
