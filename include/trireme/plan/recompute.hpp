#pragma once

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/block_program.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>

#include <string>
#include <vector>

namespace trireme::plan {

/// Tensors that each layer keeps according to [parallel] recompute, by kind of layer. With "auto",
/// resolve_recompute() must have chosen the tensors.
std::vector<architecture::Kept> kept_tensors(const deck::ParallelConfig& parallel,
                                             const architecture::Architecture& architecture);

/// With recompute = "auto", chooses the tensors to recompute: one at a time the tensor whose
/// recomputation takes the least time per byte saved, until the bytes of every rank are at most
/// [parallel] memory_limit, or else the machine's memory. UsageError if neither is known, or if the
/// limit is exceeded even when everything but the layers' inputs is recomputed. The vocabulary and
/// the axes of the deck must be resolved.
void resolve_recompute(deck::Deck& deck, const Machine& machine);

/// "y1, y2, g": names of the recomputed tensors; "" if there are none.
std::string recomputed_text(const deck::ParallelConfig& parallel,
                            const architecture::Architecture& architecture);

}  // namespace trireme::plan
