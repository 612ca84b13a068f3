#pragma once

#include <trireme/deck/config.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/schedule/needs.hpp>
#include <trireme/schedule/program.hpp>
#include <trireme/schedule/search.hpp>

#include <optional>
#include <span>
#include <vector>

namespace trireme::plan {

/// The layout of a step's computing instructions, without a shared vocabulary.
schedule::ProgramLayout passes_of(const deck::ParallelConfig& parallel, std::int64_t micro_batches);

/// The named schedule by which the needs and times of a program are estimated: `kind`, or for a
/// program that is searched for or read from a file, the first schedule of the table with the same
/// stages. Empty if there is none.
std::optional<ScheduleKind> estimated_schedule(ScheduleKind kind,
                                               const schedule::ProgramLayout& layout);

/// The program of a training step of a resolved deck with the full global batch: generated, read
/// from the deck's program file, or found by fastest_program(); and lowered. Throws a UsageError
/// with the first mistakes of a program file.
schedule::Program step_program(const deck::Config& config, const Machine& machine);

/// The generated program of a training step, lowered but not validated, for searches.
schedule::Program generated_program(const deck::Config& config, const Machine& machine);

/// The programs of a run's training steps, one for each size of the global batch in ascending order
/// (deck::BatchSchedule). The last program is step_program().
std::vector<schedule::Program> step_programs(const deck::Config& config, const Machine& machine);

/// The lowered program of an evaluation with this many micro-batches.
schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches);

/// Slots and buffers that each rank needs for evaluations of any length.
std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout);

/// Slots and buffers that each rank needs in a run that trains with these programs and evaluates.
std::vector<schedule::Needs> training_needs(std::span<const schedule::Program> programs);

/// The program for schedule = "auto", lowered: the fastest program found with which every rank fits
/// into the memory limit (memory_limit()). Durations come from [parallel] timeline, otherwise from
/// the speeds of [parallel] machine, otherwise from each stage's FLOPs. UsageError with the remedy
/// if durations are missing or belong to other stages, or if no program fits.
schedule::FoundProgram fastest_program(const deck::Config& config,
                                       const schedule::ProgramLayout& layout,
                                       const Machine& machine);

}  // namespace trireme::plan
