#pragma once

/// Search for the layout with the shortest step.
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine.hpp>
#include <trireme/plan/search_space.hpp>
#include <trireme/plan/step_time.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

/// A layout with its memory and time.
struct Candidate {
  Layout layout;
  Seconds estimate = 0;    ///< time by the formula (estimated_seconds)
  Bytes bytes = 0;         ///< memory of the rank that needs the most
  bool simulated = false;  ///< `time` is set, and `bytes` is exact for the program
  StepTime time;

  Seconds seconds() const { return simulated ? time.seconds : estimate; }
};

struct SearchOptions {
  Bytes memory_limit = 0;     ///< 0: [parallel] memory_limit, or the memory of the machine
  std::size_t best = 50;      ///< number of layouts that are simulated
  std::size_t of_front = 20;  ///< further layouts, of the estimated Pareto front
};

struct SearchResult {
  std::vector<Candidate> candidates;  ///< simulated, at most `best`, ascending time
  std::vector<Candidate> front;       ///< Pareto front of time and memory
  std::vector<Rejection> rejected;
  std::int64_t evaluated = 0;  ///< layouts that fit and that no other division of state beats
  Bytes limit = 0;             ///< memory limit per rank; 0: none is known
  Seconds estimating = 0;      ///< wall-clock time of evaluating the formulas
  Seconds seconds = 0;         ///< wall-clock time of the whole search
};

/// Estimates all layouts of the deck on this number of ranks, and simulates the best layouts. Keys
/// that the deck fixes (deck::is_fixed) keep their values. The vocabulary must be resolved, and the
/// machine must have the speeds that times need. UsageError if no layout can use the ranks, or if
/// none fits into the memory.
SearchResult search_layouts(const deck::Deck& deck, std::int64_t ranks, const Machine& machine,
                            const SearchOptions& options = {});

/// Simulates the layout of a deck whose axes are resolved. `arrays_only`: see most_bytes().
Candidate simulate_layout(const deck::Config& config, const Machine& machine, bool arrays_only);

/// The bytes that a rank may use, and whether only its arrays count.
struct MemoryLimit {
  Bytes bytes = 0;  ///< 0: none is known
  bool arrays_only = false;
};
/// The first known limit of `given`, [parallel] memory_limit and the memory of the machine. The
/// memory of a host limits the whole process, any other limit only the arrays.
MemoryLimit memory_limit(const deck::ParallelConfig& parallel, const Machine& machine, Bytes given);

/// The machine with typical speeds in place of unknown speeds, for plans and searches without a
/// machine file.
Machine with_usual_speeds(const Machine& machine);

/// Chooses the layout for [parallel] layout = "auto": sets the keys of deck::layout_keys() that the
/// deck does not fix, layout to "given", and the reason for the log (deck::set_layout). The
/// vocabulary must be resolved. UsageError if no layout fits the number of ranks or the memory, or
/// if the machine's file lacks a speed.
void choose_layout(deck::Deck& deck, std::int64_t ranks, const Machine& machine);

}  // namespace trireme::plan
