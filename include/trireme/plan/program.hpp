#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/search.hpp>

#include <span>
#include <vector>

namespace trireme::plan {

/// The program of a training step of a resolved deck with the full global batch: generated, or read
/// from the deck's file; lowered and validated. Throws UsageError with all mistakes of a file's
/// program.
schedule::Program step_program(const deck::Config& config, const Machine& machine);

/// Like step_program without validation, for the many generated schedules of the search.
schedule::Program generated_program(const deck::Config& config, const Machine& machine);

/// The programs of a run's training steps, one for each size of the global batch in ascending order
/// (deck::BatchSchedule); the last one is step_program().
std::vector<schedule::Program> step_programs(const deck::Config& config, const Machine& machine);

/// The lowered program of an evaluation with this many micro-batches.
schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches);

/// Slots and buffers that each rank needs for evaluations of any length.
std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout);

/// Slots and buffers that each rank needs in a run that trains with these programs and evaluates.
std::vector<schedule::Needs> training_needs(std::span<const schedule::Program> programs);

/// The program for schedule = "auto": the fastest one with which every rank fits into the memory
/// limit (memory_limit()), by the times of [parallel] timeline, else of [parallel] machine, else by
/// each stage's FLOPs. Lowered. UsageError with the remedy if the times cannot be read or belong to
/// other stages, or if no program fits.
schedule::FoundProgram fastest_program(const deck::Config& config,
                                       const schedule::ProgramLayout& layout,
                                       const Machine& machine);

}  // namespace trireme::plan
