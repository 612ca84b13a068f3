#pragma once

#include <trireme/schedule/program.hpp>

#include <optional>
#include <string>
#include <vector>

namespace trireme::schedule {

struct ValidateOptions {
  int slots = 0;         ///< saved micro-batches that a rank may keep at once; 0: any number
  int send_buffers = 0;  ///< send buffers per channel; 0: as many as the program needs
};

/// Returns the mistakes in a lowered program, with rank, position in the row and instruction: the
/// first 32 mistakes, and the number of further mistakes. The result is empty if the program is
/// complete and cannot hang. The checks are
/// - placement: each instruction is on the rank of its stage, in range, on a boundary that exists;
/// - order in the row: values are read after they are written and before they are freed, no value
///   is written twice, an output is sent before the next computation overwrites it;
/// - completeness: every micro-batch of every stage has one forward and one backward pass (or one
///   evaluation), every weight is updated, every send has its receive;
/// - queues: receives are posted in the order of their sends, per channel, or per pair of ranks
///   under ordered groups;
/// - collectives: all members call them in the same order; messages among all ranks begin in the
///   order of the micro-batches;
/// - slots: no rank exceeds the limit;
/// - completion: the simulated program completes with the transport (checked only if nothing else
///   is wrong).
///
/// `transport` defaults to the transport for which the program was lowered.
std::vector<std::string> validate(const Program& program, std::optional<Transport> transport = {},
                                  const ValidateOptions& options = {});

}  // namespace trireme::schedule
