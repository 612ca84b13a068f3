#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>

#include <vector>

namespace trireme::plan {

/// The program of one training step of a resolved deck: generated, or read from the deck's file,
/// lowered and validated. Throws UsageError where a file's program has mistakes, all of them at
/// once.
schedule::Program step_program(const deck::Config& config);

/// Forward passes of so many micro-batches, lowered.
schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches);

/// What each rank keeps at the same time in evaluations of any length.
std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout);

/// What each rank keeps at the same time in a run that trains by this program and evaluates.
std::vector<schedule::Needs> training_needs(const schedule::Program& program);

}  // namespace trireme::plan
