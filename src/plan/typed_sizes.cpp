#include <trireme/plan/typed_sizes.hpp>

namespace trireme::plan {

TypedSizes typed_sizes(const deck::Config& config, const architecture::Shard& shard,
                       const Machine& machine) {
  const Bytes element = size_of(config.precision.compute);
  return {architecture::rank_sizes(config.model, shard, config.batch.micro, config.model.sequence,
                                   config.parallel.sequence_parallel, machine.logit_elements()),
          element, element == 8 ? 8 : 4};
}

}  // namespace trireme::plan
