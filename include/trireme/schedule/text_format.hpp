#pragma once

#include <trireme/schedule/program.hpp>

#include <string>
#include <string_view>

namespace trireme::schedule {

/// Reads a program written by hand, for `schedule = "file"`. One line for each pipeline rank, from
/// rank 0 on, with its computations in order; `#` begins a comment, lines without instructions do
/// not count. An instruction is a letter, a micro-batch and, where ranks hold more than one stage,
/// a point and the chunk, all counted from zero:
///
///     # 1f1b on two ranks, three micro-batches
///     F0 F1 B0 F2 B1 B2
///     F0 B0 F1 B1 F2 B2
///
/// `F` forward, `B` the whole backward pass, `I` and `W` its input and weight halves, `E` evaluate;
/// `F3.1` is micro-batch 3 of the rank's chunk 1, that is stage ranks + rank. Transfers, reductions
/// and the update are not written: lower() adds them.
///
/// Throws UsageError with file, line, column, the word, what was expected and the remedy: for words
/// that are no instruction, micro-batches and chunks that the layout does not have, instructions
/// written twice, left out, or before what they need in the same row, and too few or many lines.
Program read_program(std::string_view content, std::string_view file_name,
                     const ProgramLayout& layout);

/// The computing instructions of a program in the same format: a start for one's own.
std::string write_program(const Program& program);

}  // namespace trireme::schedule
