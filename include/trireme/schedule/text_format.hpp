#pragma once

#include <trireme/schedule/program.hpp>

#include <string>
#include <string_view>

namespace trireme::schedule {

/// Reads a hand-written program, for `schedule = "file"`. It has one line per pipeline rank, from
/// rank 0 on, with the rank's computations in order. `#` begins a comment; lines without
/// instructions are skipped. An instruction is a letter and a micro-batch, followed by a point and
/// the chunk if ranks hold more than one stage. Numbers start at zero:
///
///     # 1f1b on two ranks, three micro-batches
///     F0 F1 B0 F2 B1 B2
///     F0 B0 F1 B1 F2 B2
///
/// `F` forward, `B` the whole backward pass, `I` and `W` its input and weight halves, `E` evaluate.
/// `F3.1` is micro-batch 3 of the rank's chunk 1, whose stage depends on the layout's placement. Do
/// not write transfers, reductions and the update: lower() adds them.
///
/// Throws UsageError with file, line, column, the word, the expectation and the remedy.
Program read_program(std::string_view content, std::string_view file_name,
                     const ProgramLayout& layout);

/// Writes a program's computing instructions in read_program's format, as a basis for editing.
std::string write_program(const Program& program);

}  // namespace trireme::schedule
