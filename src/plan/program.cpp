// Programs of a run's training steps and evaluations, and the memory that they need.
#include <trireme/plan/program.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/base/check.hpp>
#include <trireme/deck/batch_schedule.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/ranks.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/plan/search.hpp>
#include <trireme/plan/step_time.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/lower.hpp>
#include <trireme/schedule/share_vocabulary.hpp>
#include <trireme/schedule/text_format.hpp>
#include <trireme/schedule/validate.hpp>

#include <algorithm>

namespace trireme::plan {
namespace {

schedule::Program program_of_file(const std::string& path, const schedule::ProgramLayout& layout) {
  const std::string content =
      read_text_file(path, text("[parallel] program = \"", path, "\""),
                     "; `trireme draw DECK --format program -o FILE` writes one to start from");
  return schedule::read_program(content, path, layout);
}

/// The first mistakes, one per line, and the number of further mistakes.
std::string listed(const std::vector<std::string>& mistakes) {
  constexpr std::size_t most = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(most, mistakes.size()); ++i) out += "\n  " + mistakes[i];
  if (mistakes.size() > most) out += text("\n  and ", mistakes.size() - most, " more");
  return out;
}

schedule::ProgramLayout layout_of(const deck::Config& config, std::int64_t global) {
  schedule::ProgramLayout layout = passes_of(config.parallel, config.micro_batches(global));
  layout.shares_vocabulary = config.parallel.shares_vocabulary();
  return layout;
}

schedule::Cost flops_of(const deck::Config& config) {
  return flop_cost(stage_flops(architecture::describe(config.model), config.parallel));
}

/// The program of the named schedule. The passes of a shared vocabulary are placed by FLOPs.
schedule::Program named_program(const deck::Config& config, const schedule::ProgramLayout& layout) {
  schedule::Program program = schedule::generate(config.parallel.schedule, layout);
  if (layout.shares_vocabulary) schedule::share_vocabulary(program, flops_of(config));
  return program;
}

/// The order of transfers by ordered groups follows from FLOPs, which are equal on all ranks.
schedule::LowerOptions lowering(const deck::Config& config, const Machine& machine) {
  schedule::LowerOptions options{
      config.model.tied_embeddings, transport(config.parallel, machine), {}};
  if (options.transport == schedule::Transport::ordered_groups && config.parallel.pipeline > 1)
    options.cost = flops_of(config);
  return options;
}

schedule::Program program_of(const deck::Config& config, std::int64_t global,
                             const Machine& machine) {
  const deck::ParallelConfig& p = config.parallel;
  const schedule::ProgramLayout layout = layout_of(config, global);
  if (p.searches_program()) return fastest_program(config, layout, machine).program;
  const bool by_hand = p.reads_program();
  schedule::Program program =
      by_hand ? program_of_file(p.program, layout) : named_program(config, layout);
  for (const auto& row : program.ranks)
    for (const schedule::Instr& i : row)
      check_usage(i.op != schedule::Op::evaluate, p.program, ": ", i,
                  " does not train; a program for training has F, B, I and W");
  schedule::lower(program, lowering(config, machine));
  const auto mistakes = schedule::validate(program);
  check_usage(!by_hand || mistakes.empty(), p.program,
              ": the program cannot run:", listed(mistakes));
  check(mistakes.empty(), "the schedule ", name_of(p.schedule), " with a global batch of ", global,
        " samples, ", layout.micro_batches,
        " micro-batches per rank and step, cannot run:", listed(mistakes));
  return program;
}

}  // namespace

schedule::ProgramLayout passes_of(const deck::ParallelConfig& p, std::int64_t micro_batches) {
  schedule::ProgramLayout layout;
  layout.ranks = static_cast<int>(p.pipeline);
  layout.micro_batches = static_cast<int>(micro_batches);
  layout.chunks = static_cast<int>(p.chunks);
  layout.placement = p.stage_map().placement;
  return layout;
}

std::optional<ScheduleKind> estimated_schedule(ScheduleKind kind,
                                               const schedule::ProgramLayout& layout) {
  if (schedule::schedule_of(kind).generate != nullptr) return kind;
  for (const schedule::Schedule& s : schedule::schedules())
    if (s.compared && s.accepts(layout.chunks) && s.placement == layout.placement) return s.kind;
  return std::nullopt;
}

schedule::Program generated_program(const deck::Config& config, const Machine& machine) {
  schedule::Program program = named_program(config, layout_of(config, config.batch.global));
  schedule::lower(program, lowering(config, machine));
  return program;
}

schedule::Program step_program(const deck::Config& config, const Machine& machine) {
  return program_of(config, config.batch.global, machine);
}

std::vector<schedule::Program> step_programs(const deck::Config& config, const Machine& machine) {
  std::vector<schedule::Program> programs;
  for (const deck::BatchPhase& phase : deck::BatchSchedule(config.batch).phases())
    programs.push_back(program_of(config, phase.global, machine));
  return programs;
}

schedule::Program evaluation_program(const schedule::ProgramLayout& layout, int micro_batches) {
  schedule::ProgramLayout evaluation = layout;
  evaluation.micro_batches = micro_batches;
  evaluation.tied = false;
  evaluation.steps = 1;
  schedule::Program program = schedule::generate_evaluation(evaluation);
  if (layout.shares_vocabulary) schedule::share_vocabulary(program, schedule::unit_cost);
  schedule::lower(program, {.transport = layout.transport});
  return program;
}

std::vector<schedule::Needs> evaluation_needs(const schedule::ProgramLayout& layout) {
  constexpr int rounds = 4;  // micro-batches per rank; more micro-batches need no more slots
  // Largest number of passes, for very deep pipelines.
  constexpr int most = 1 << 16;
  return schedule::needs(evaluation_program(
      layout, std::min(rounds * layout.ranks, std::max(rounds, most / layout.stages()))));
}

std::vector<schedule::Needs> training_needs(std::span<const schedule::Program> programs) {
  check(!programs.empty(), "the needs of no program");
  std::vector<schedule::Needs> all = schedule::needs(programs.back());
  for (const schedule::Program& program : programs.first(programs.size() - 1)) {
    const std::vector<schedule::Needs> other = schedule::needs(program);
    for (std::size_t r = 0; r < all.size(); ++r) all[r].include(other[r]);
  }
  const std::vector<schedule::Needs> evaluating = evaluation_needs(programs.back().layout);
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].received_activations =
        std::max(all[r].received_activations, evaluating[r].received_activations);
    all[r].handed_over = std::max(all[r].handed_over, evaluating[r].handed_over);
  }
  return all;
}

// schedule = "auto": searches for a program, given the durations of passes and the number of
// micro-batches that each rank can save.

namespace {

using architecture::Architecture;
using schedule::Instr;
using schedule::Op;
using schedule::ProgramLayout;

schedule::Cost flops(const deck::Config& config, const Architecture& a) {
  return flop_cost(stage_flops(a, architecture::partition(a, config.parallel),
                               kept_tensors(config.parallel, a),
                               architecture::head_gradient(config.parallel)));
}

/// Durations from the speeds of [parallel] machine. Whole and split backward passes may recompute
/// different tensors.
schedule::Cost predicted(const deck::Config& config, const Architecture& a) {
  const Machine machine = load_machine(config.parallel.machine);
  const std::string missing = machine.time_mistake(config.precision, config.parallel.ranks());
  check_usage(missing.empty(), machine.called(), " does not give ", missing,
              ", without which schedule = \"auto\" cannot predict times; add it to the file, or "
              "leave [parallel] machine out");
  const auto with = [&](bool split) {
    return cost_of(step_costs(config, a, part_times(config, a, split, machine), machine));
  };
  return [whole = with(false), split = with(true)](const Instr& i) {
    return i.op == Op::backward ? whole(i) : split(i);
  };
}

/// Durations from [parallel] timeline. If only whole backward passes were measured, their time is
/// divided between the two halves by FLOPs; if only halves were measured, their times are added.
schedule::Cost measured(const deck::Config& config, const Architecture& a,
                        const ProgramLayout& layout) {
  const std::string& file = config.parallel.timeline;
  const std::string cited = text("[parallel] timeline = \"", file, "\"");
  const schedule::Timeline timeline = schedule::read_timeline(
      read_text_file(file, cited, "; a run with run.timeline = true writes one"), file);
  const ProgramLayout& other = timeline.layout;
  check_usage(other.map() == layout.map(), cited, " was measured with ", other.ranks,
              " pipeline ranks and ", other.chunks, " chunks, but the deck has ", layout.ranks,
              " and ", layout.chunks, other.stages() == layout.stages() ? ", in other places" : "",
              "; measure a run with these, or leave timeline out");
  const schedule::Cost mean = schedule::mean_costs(timeline);
  for (Stage s = 0; s < layout.stages(); ++s)
    check_usage(mean({Op::forward, s, 0}) > 0 &&
                    mean({Op::backward, s, 0}) + mean({Op::backward_input, s, 0}) > 0,
                cited, " has no forward and backward pass of stage ", s,
                "; give the whole timeline of a step");
  return [mean, share = flops(config, a)](const Instr& i) {
    const Seconds found = mean(i);
    if (found > 0) return found;
    const auto of = [&](const schedule::Cost& cost, Op op) { return cost({op, i.stage, i.micro}); };
    if (i.op == Op::backward) return of(mean, Op::backward_input) + of(mean, Op::backward_weight);
    if (i.op != Op::backward_input && i.op != Op::backward_weight) return found;
    return of(mean, Op::backward) * of(share, i.op) /
           (of(share, Op::backward_input) + of(share, Op::backward_weight));
  };
}

schedule::Cost pass_costs(const deck::Config& config, const Architecture& a,
                          const ProgramLayout& layout) {
  if (!config.parallel.timeline.empty()) return measured(config, a, layout);
  return config.parallel.machine.empty() ? flops(config, a) : predicted(config, a);
}

/// Number of slots of each pipeline rank within the memory limit.
class SlotLimit {
 public:
  SlotLimit(const deck::Config& config, const Architecture& a, const ProgramLayout& layout,
            const Machine& machine)
      : config_(config),
        architecture_(a),
        layout_(layout),
        machine_(machine),
        limit_(memory_limit(config.parallel, machine, 0)) {}

  /// Estimate of the slots of each rank that fit into its memory: bytes are linear in the slots.
  std::vector<int> slots() const {
    const int least = layout_.chunks;
    const int most = std::max(least, schedule::most_slots(layout_));
    const auto ranks = static_cast<std::size_t>(layout_.ranks);
    if (limit_.bytes == 0 || most == least) return std::vector<int>(ranks, most);
    const std::vector<Bytes> few = bytes_with(least), many = bytes_with(most);
    std::vector<int> slots;
    for (std::size_t r = 0; r < ranks; ++r) {
      expect_room(few[r]);
      const Bytes each = std::max<Bytes>(1, (many[r] - few[r]) / (most - least));
      slots.push_back(
          static_cast<int>(std::min<Bytes>(most, least + (limit_.bytes - few[r]) / each)));
    }
    return slots;
  }

  /// Removes a slot from each rank whose program exceeds the limit. Returns whether there was such
  /// a rank. UsageError if such a rank has the least number of slots.
  bool corrects(std::vector<int>& slots, const schedule::Program& program) const {
    if (limit_.bytes == 0) return false;
    const std::vector<Bytes> bytes = of_ranks(training_needs({&program, 1}));
    bool found = false;
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      if (bytes[r] <= limit_.bytes) continue;
      if (slots[r] == layout_.chunks) expect_room(bytes[r]);
      --slots[r];
      found = true;
    }
    return found;
  }

 private:
  std::vector<Bytes> bytes_with(int slots) const {
    std::vector<schedule::Needs> needs;
    for (Rank r = 0; r < layout_.ranks; ++r) {
      needs.push_back(schedule::buffers_needed(layout_, r));
      needs.back().slots = slots;
      needs.back().split_backward = true;
    }
    return of_ranks(needs);
  }

  /// Bytes of each pipeline rank: the maximum over its tensor ranks.
  std::vector<Bytes> of_ranks(const std::vector<schedule::Needs>& needs) const {
    std::vector<Bytes> bytes(needs.size());
    const bool arrays = limit_.arrays_only || machine_.on_device();
    for (const RankPlan& rank : plan_ranks(config_, architecture_, needs, machine_)) {
      Bytes& most = bytes[static_cast<std::size_t>(rank.pipeline)];
      most = std::max(most, arrays ? device_total(rank.memory) : rank.peak());
    }
    return bytes;
  }

  void expect_room(Bytes bytes) const {
    check_usage(bytes <= limit_.bytes, "schedule = \"auto\" finds no program within the ",
                human_bytes(limit_.bytes), " per rank of ",
                config_.parallel.memory_limit > 0 ? "[parallel] memory_limit" : machine_.called(),
                ": a rank needs ", human_bytes(bytes),
                " with one micro-batch in flight; choose a smaller batch.micro, more tensor or "
                "pipeline ranks, recompute = \"full\", or shard = \"optimizer\"");
  }

  const deck::Config& config_;
  const Architecture& architecture_;
  const ProgramLayout& layout_;
  const Machine& machine_;
  MemoryLimit limit_;
};

}  // namespace

schedule::FoundProgram fastest_program(const deck::Config& config, const ProgramLayout& layout,
                                       const Machine& machine) {
  const Architecture a = architecture::describe(config.model);
  const schedule::Cost cost = pass_costs(config, a, layout);
  const schedule::LowerOptions lowering{config.model.tied_embeddings,
                                        transport(config.parallel, machine), cost};
  const SlotLimit limit(config, a, layout, machine);
  std::vector<int> slots = limit.slots();
  schedule::FoundProgram found;
  do {
    found = schedule::search_program(layout, cost, slots, lowering);
  } while (limit.corrects(slots, found.program));
  return found;
}

}  // namespace trireme::plan
