#pragma once

#include <trireme/schedule/program.hpp>

#include <optional>
#include <string>
#include <vector>

namespace trireme::schedule {

struct ValidateOptions {
  int slots = 0;         ///< saved micro-batches that a rank may keep at a time; 0: any number
  int send_buffers = 0;  ///< of each channel; 0: as many as the program needs
};

/// Every mistake found in a lowered program, each with rank, position in the row and instruction;
/// empty if the program is complete and cannot hang. Checked are
/// - placement: each instruction on the rank of its stage, in range, on a boundary that exists;
/// - order in the row: what an instruction reads was written before and is not freed yet, no value
///   is written twice, an output is sent before the next computation overwrites it; this includes
///   the chain of weight gradients and the reductions before norm and update;
/// - completeness: every micro-batch of every stage forward and backward once (or evaluated once),
///   every weight updated, every send with its receive;
/// - queues: receives are posted in the order of their sends, by channel, under ordered groups by
///   pair of ranks;
/// - collectives: the same order on all members;
/// - slots within the limit;
/// - completion under the transport, by playing it (only if nothing else is wrong).
/// The transport is the one for which the program was lowered, unless another one is given.
std::vector<std::string> validate(const Program& program, std::optional<Transport> transport = {},
                                  const ValidateOptions& options = {});

}  // namespace trireme::schedule
