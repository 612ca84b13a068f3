#include <trireme/commands/bench_shard.hpp>

namespace trireme::commands {

BenchShard shard_of(const Session& session) {
  const deck::Config& config = session.config();
  const deck::ParallelConfig& p = config.parallel;
  const layout::Coordinates at = session.grid->coordinates();
  const architecture::Shard shard = architecture::make_shard(
      session.architecture, static_cast<int>(p.pipeline), static_cast<int>(p.chunks), at.pipeline,
      static_cast<int>(p.tensor), at.tensor);
  BenchShard out;
  out.sizes =
      architecture::local_sizes(config.model, shard, config.batch.micro, config.model.sequence,
                                p.sequence_parallel, session.machine.logit_elements());
  for (const Stage stage : shard.stages)
    out.layers += shard.stage_layers[static_cast<std::size_t>(stage)].extent;
  out.micros = config.batch.global / (config.batch.micro * p.data);
  for (const auto& array : architecture::local_arrays(session.architecture, shard))
    out.parameters += array.elements();
  out.states = p.distributed_optimizer ? (out.parameters + p.data - 1) / p.data : out.parameters;
  out.has_embedding = shard.has_embedding();
  out.has_head = shard.has_head();
  return out;
}

}  // namespace trireme::commands
