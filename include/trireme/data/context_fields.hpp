#pragma once

#include <trireme/architecture/local_sizes.hpp>
#include <trireme/architecture/objective.hpp>
#include <trireme/data/batch_reader.hpp>

namespace trireme::data {

/// Numbers of each field that a rank of the context axis holds, of the fields of whole samples: its
/// tokens of each sample; its part of all chosen targets and of all pairs; all rows, as numbers
/// among its own tokens, or −1 where another rank has the token. `own` has the sizes of `sizes`.
void take_own_fields(const architecture::TrainingObjective& objective,
                     const architecture::Shard& shard, const architecture::LocalSizes& sizes,
                     std::int64_t sequence, BatchFields whole, BatchFields own);

}  // namespace trireme::data
