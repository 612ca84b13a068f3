#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/search.hpp>

namespace trireme::plan {

/// The program for schedule = "auto": the fastest one for the times of [parallel] timeline, else of
/// [parallel] machine, else for each stage's FLOPs, with which every rank fits into the memory
/// limit (memory_limit()). Lowered. UsageError with the remedy if the times cannot be read or
/// belong to other stages, or if no program fits.
schedule::FoundProgram fastest_program(const deck::Config& config,
                                       const schedule::ProgramLayout& layout,
                                       const Machine& machine);

}  // namespace trireme::plan
