#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/schedule/program.hpp>

namespace trireme::plan {

/// The program of one training step of a resolved deck: generated, or read from the deck's file,
/// lowered and validated. Throws UsageError where a file's program has mistakes, all of them at
/// once.
schedule::Program step_program(const deck::Config& config);

}  // namespace trireme::plan
