#include <trireme/plan/typed_sizes.hpp>

namespace trireme::plan {

Bytes moment_bytes(const deck::Config& config) {
  if (config.optimizer.moments == Moments::bf16) return 2;
  return config.precision.compute == DType::fp64 ? 8 : 4;
}

TypedSizes typed_sizes(const deck::Config& config, const architecture::Shard& shard,
                       const Machine& machine) {
  const Bytes element = size_of(config.precision.compute);
  return {architecture::rank_sizes(config.model, shard, config.batch.micro, config.model.sequence,
                                   config.parallel.sequence_parallel, machine.logit_elements()),
          element, element == 8 ? 8 : 4, moment_bytes(config)};
}

}  // namespace trireme::plan
