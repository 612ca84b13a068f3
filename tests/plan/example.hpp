#pragma once

#include <trireme/architecture/shard.hpp>
#include <trireme/deck/config.hpp>
#include <trireme/deck/families.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/step_time.hpp>

namespace trireme::testing {

struct Axes {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t chunks = 1;
  bool sequence_parallel = false;
  bool tied = true;
  std::int64_t key_value_heads = 0;  ///< 0: family gpt
};

/// 4 layers with hidden size 32 and 4 heads, feed-forward 128, vocabulary 96; micro-batches of 2
/// samples of 32 tokens, 4 per rank and step; fp64.
inline deck::Config config_of(const Axes& axes) {
  deck::Config c;
  c.model.layers = 4;
  c.model.hidden = 32;
  c.model.heads = 4;
  if (axes.key_value_heads > 0) deck::set_family(c.model, Family::llama);
  c.model.key_value_heads = axes.key_value_heads;
  c.model.feed_forward = 128;
  c.model.sequence = 32;
  c.model.vocabulary = 96;
  c.model.tied_embeddings = axes.tied;
  c.batch.micro = 2;
  c.batch.global = 8 * axes.data;
  c.precision.compute = DType::fp64;
  c.parallel.tensor = axes.tensor;
  c.parallel.pipeline = axes.pipeline;
  c.parallel.data = axes.data;
  c.parallel.chunks = axes.chunks;
  c.parallel.schedule =
      axes.chunks > 1 ? ScheduleKind::interleaved : ScheduleKind::one_forward_one_backward;
  c.parallel.sequence_parallel = axes.sequence_parallel;
  c.parallel.bucket_bytes = 1 << 20;
  return c;
}

inline architecture::Shard shard_of(const deck::Config& c, const architecture::Architecture& a,
                                    int pipeline_rank, int tensor_rank) {
  return architecture::make_shard(a, c.parallel, pipeline_rank, tensor_rank);
}

inline plan::StepCosts costs_of(const deck::Config& c, const plan::Machine& m) {
  const auto a = architecture::describe(c.model);
  return plan::step_costs(c, a, plan::part_times(c, a, c.parallel.splits_backward(), m), m);
}

inline plan::StepTime predicted(const deck::Config& c, const plan::Machine& m) {
  return plan::predict_step(c, architecture::describe(c.model), plan::step_program(c, m), m);
}

/// Schedules whose stages do not form a V.
inline constexpr ScheduleKind schedules_in_order[]{ScheduleKind::gpipe,
                                                   ScheduleKind::one_forward_one_backward,
                                                   ScheduleKind::interleaved, ScheduleKind::zb_h1};

}  // namespace trireme::testing
