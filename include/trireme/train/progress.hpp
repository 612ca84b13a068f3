#pragma once

#include <trireme/checkpoint/reader.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/optim/optimizer.hpp>
#include <trireme/train/skips.hpp>

#include <span>

namespace trireme::train {

/// Skipped steps and loss scale from an optimizer's status, indexed by kernels::UpdateStatus.
template <class P>
Skips skips_from(const deck::Config& config, std::span<const double> status,
                 const optim::Optimizer<P>& optimizer);

/// The optimizer's progress with which a run continues after step `step`.
optim::Progress progress_of(const deck::Config& config, const Skips& skips, std::int64_t step);
/// The progress with which a run continues a checkpoint. `fresh`: without its optimizer state.
optim::Progress progress_after(const deck::Config& config, const checkpoint::Reader& reader,
                               bool fresh);

}  // namespace trireme::train
