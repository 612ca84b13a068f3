// A rank's training steps and evaluations.
#include <trireme/train/typed_engine.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/kernels/matmul_peak.hpp>
#include <trireme/kernels/matmul_product.hpp>
#include <trireme/plan/choices.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/overlap.hpp>
#include <trireme/tensor/fence.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/precision.hpp>

#include <algorithm>
#include <span>

namespace trireme::train {
namespace {

/// Largest number of micro-batches of an evaluation program.
constexpr std::int64_t most_evaluated = 1024;

}  // namespace

template <class P>
TypedEngine<P>::TypedEngine(const deck::Config& config,
                            const architecture::Architecture& architecture, grid::Grid& grid,
                            const plan::Machine& machine,
                            std::span<const schedule::Program> programs)
    : config_(config),
      architecture_(architecture),
      grid_(programs.empty() ? grid
                             : grid.equal_part(static_cast<int>(config.parallel.worker_groups()))),
      machine_(machine),
      handle_(kernel_choice(config.precision)),
      parts_(config, architecture, grid_, machine, handle_.choice(), programs),
      actions_(config, parts_, handle_),
      results_(config, parts_, actions_, handle_, grid_),
      checkpoint_(config, architecture, parts_, actions_, results_, handle_, grid_) {
  timeline_.layout = parts_.layout;
  for (const schedule::Program& program : programs)
    executors_.emplace_back(program, parts_.pipeline.rank());
  if (config.parallel.workers > 1 && !programs.empty()) {
    parts_.local.emplace(config, architecture, parts_.parameters, *parts_.optimizer,
                         grid.across_parts(static_cast<int>(config.parallel.worker_groups())),
                         parts_.weight_gather ? &*parts_.weight_gather : nullptr);
    grid::Communicator& all = grid.communicator(Axis::data);
    actions_.evaluate_as(all.rank(), all.size());
  }
  if (config.run.audit_every > 0 && !programs.empty())
    audit_.emplace(config.run, parts_, actions_, handle_, grid_);
  handle_.prepare_products(dtype_of<T>);
  if (!parts_.fp8) return;
  const std::string obstacle = kernels::fp8_obstacle(handle_);
  check_usage(obstacle.empty(), "[precision] products = \"fp8\" is not possible: ", obstacle,
              "; choose products = \"compute\"");
  parts_.fp8->reset(handle_);
}

template <class P>
void TypedEngine<P>::initialise() {
  const Region region("initialise");
  parts_.finish_gathers();
  parts_.parameters.initialise(handle_, static_cast<std::uint64_t>(config_.run.seed));
  if (parts_.weight_gather) parts_.weight_gather->forget_windows();
  if (parts_.fp8) parts_.fp8->reset(handle_);
  if (!parts_.optimizer) return;
  results_.forget();
  parts_.optimizer->zero_state(handle_);
  parts_.optimizer->copy_masters_from_weights(handle_);
  const double scale = initial_loss_scale(config_.precision);
  parts_.optimizer->set_progress(handle_, {0, 0, scale, 0, 0, scale});
  parts_.copy_second_weights(handle_, 0);
  if (parts_.local) parts_.local->begin(handle_);
}

template <class P>
void TypedEngine<P>::run(const Executor& executor, StepPhase part) {
  executor.run([&](const PlacedInstr& placed, std::size_t) {
    if (!belongs_to(part, placed.instr.op)) return;
    publish(placed, part);
    train::run(actions_, placed);
  });
  if (begun_) return;
  parts_.transfers->finish();
  actions_.finish();
}

template <class P>
void TypedEngine<P>::publish(const PlacedInstr& placed, StepPhase part) const {
  const schedule::Instr& i = placed.instr;
  const std::string_view name = schedule::name_of(i.op);
  const bool audit = part == StepPhase::passes;
  std::int64_t number = actions_.step();
  int micro = i.micro;
  if (parts_.other_version) {
    const bool of_pass = i.op < schedule::Op::reduce_gradients;
    const int count = parts_.layout.micro_batches;
    number += of_pass ? micro / count : micro;
    micro = of_pass ? micro % count : 0;
  }
  if (parts_.servers)
    return grid::Heartbeat::publish(
        {text("worker ", parts_.servers->messages().number(), ", ", name), number, i.stage, micro});
  grid::Heartbeat::publish(
      {audit ? std::string_view(text("audit, ", name)) : name, number, i.stage, micro});
}

template <class P>
void TypedEngine<P>::begin_clock() {
  fence(handle_, "train/timed_step begins");
  grid_.world().barrier("the beginning of a timed step");
  timed_from_ = Clock::now();
}

/// Runs a part of a step, and waits after each instruction to record its times. The update of an
/// audited step continues the timeline of the step's last passes.
template <class P>
void TypedEngine<P>::run_timed(const Executor& executor, StepPhase part) {
  if (part != StepPhase::update) {
    timeline_.events.clear();
    begin_clock();
  }
  executor.run([&](const PlacedInstr& placed, std::size_t position) {
    if (!belongs_to(part, placed.instr.op)) return;
    publish(placed, part);
    actions_.has_begun();
    train::run(actions_, placed);
    fence(handle_, "train/timed_step waits for each instruction");
    timeline_.events.push_back({parts_.pipeline.rank(), static_cast<int>(position), placed.instr,
                                since_zero(actions_.began()), since_zero(Clock::now())});
  });
  parts_.transfers->finish();
  actions_.finish();
}

template <class P>
Executor& TypedEngine<P>::begin_step(std::int64_t step, const data::Samples& samples) {
  const Region region("begin_step");
  actions_.begin_training(step, samples);
  if (!parts_.other_version) {
    parts_.model->zero_losses(handle_);
    parts_.optimizer->zero_gradients(handle_);
    parts_.reducer->begin();
  }
  const std::int64_t micro_batches = data::micro_batches(actions_.batch());
  const auto found = std::ranges::find(executors_, micro_batches, &Executor::micro_batches);
  check(found != executors_.end(), "step ", step, ": no program has ", micro_batches,
        " micro-batches per rank");
  return *found;
}

template <class P>
void TypedEngine<P>::take_step(std::int64_t step, const std::function<void(StepPhase)>& run) {
  if (!audit_) return run(StepPhase::whole);
  if (audit_->due(step))
    audit_->step(step, run);
  else
    run(StepPhase::whole);
  audit_->after(step);
}

template <class P>
void TypedEngine<P>::audit_state(std::int64_t step) {
  if (audit_) audit_->compare_state(step);
}

template <class P>
template <class OneStep>
void TypedEngine<P>::for_workers(std::int64_t number, const OneStep& step) {
  if (!parts_.local) return step();
  results_.zero_worker_losses();
  for (std::int64_t w = 0; w < parts_.local->workers_here(); ++w) {
    parts_.local->select(handle_, w);
    actions_.train_worker(parts_.local->first_worker() + w);
    step();
    results_.add_worker_losses();
  }
  parts_.local->after_step(handle_, number);
}

template <class P>
void TypedEngine<P>::train_step(std::int64_t step, const data::Samples& samples) {
  if (parts_.other_version || parts_.servers) return overlapping_step(step, samples, false);
  const Region region("step");
  for_workers(step, [&] {
    const Executor& executor = begin_step(step, samples);
    take_step(step, [&](StepPhase part) { run(executor, part); });
  });
  results_.remember(step);
}

template <class P>
void TypedEngine<P>::timed_step(std::int64_t step, const data::Samples& samples) {
  if (parts_.other_version) return overlapping_step(step, samples, false);
  const Region region("step");
  for_workers(step, [&] {
    const Executor& executor = begin_step(step, samples);
    timeline_.layout.micro_batches = static_cast<int>(executor.micro_batches());
    take_step(step, [&](StepPhase part) { run_timed(executor, part); });
  });
  results_.remember(step);
}

template <class P>
schedule::Timeline TypedEngine<P>::timeline() {
  schedule::Timeline whole{timeline_.layout, {}};
  if (parts_.replicas.rank() > 0 || parts_.tensor.rank() > 0) return whole;
  for (const std::string& part :
       parts_.pipeline.gather(schedule::write_timeline(timeline_), 0, "timeline")) {
    const auto events = schedule::read_timeline(part, "timeline").events;
    whole.events.insert(whole.events.end(), events.begin(), events.end());
  }
  return whole;
}

template <class P>
template <class Use>
void TypedEngine<P>::with_shared_weights(const Use& use) {
  const bool apart = parts_.local && !parts_.local->schedule().together(actions_.step());
  if (apart) parts_.local->exchange_with_outer(handle_);
  use();
  if (apart) parts_.local->exchange_with_outer(handle_);
}

/// Ranks take groups of batch.micro samples in turn. If passes gather weights, or send tokens to
/// the experts of other replicas, all ranks have the same number of groups, some possibly without
/// samples.
template <class P>
void TypedEngine<P>::evaluate_groups(std::int64_t samples,
                                     const std::function<void(std::int64_t)>& begin) {
  const std::int64_t micro = config_.batch.micro;
  const std::int64_t groups = (samples + micro - 1) / micro;
  const bool together =
      parts_.parameters.weight_places().has_windows() || parts_.experts != nullptr;
  const std::int64_t first = together ? 0 : actions_.evaluator();
  const std::int64_t mine = (groups - first + actions_.evaluators() - 1) / actions_.evaluators();
  parts_.model->zero_losses(handle_);
  for (std::int64_t done = 0; done < mine; done += most_evaluated) {
    begin(done);
    const std::int64_t count = std::min(most_evaluated, mine - done);
    run(Executor(plan::evaluation_program(parts_.layout, static_cast<int>(count)),
                 parts_.pipeline.rank()));
  }
}

template <class P>
Evaluation TypedEngine<P>::evaluate(const data::Windows& file, std::int64_t windows,
                                    const std::vector<std::int32_t>& bytes_of_token) {
  const Region region("evaluation");
  if (parts_.servers) parts_.servers->fetch_current(handle_);
  std::vector<double> sums;
  actions_.begin_evaluation(file, windows, 0, bytes_of_token);
  with_shared_weights([&] {
    evaluate_groups(windows, [&](std::int64_t done) {
      actions_.begin_evaluation(file, windows, done, bytes_of_token);
    });
    sums = results_.loss_sums(parts_.model->losses(), "train/evaluate reads the loss");
  });
  const auto all = [&](std::int64_t mine) {
    return results_.from_last_stage(mine, parts_.data, "evaluation counts");
  };
  const std::int64_t samples = all(actions_.counted().samples);
  const std::int64_t targets = all(actions_.counted().targets);
  Evaluation found;
  found.bytes = all(actions_.counted().bytes);
  const architecture::TrainingObjective& objective = parts_.model->objective();
  found.expert_loads = objective.expert_loads(sums);
  found.dropped_choices = objective.dropped_choices(sums);
  const auto& terms = objective.losses;
  const std::vector<double> of_terms = objective.terms_of(sums);
  for (std::size_t i = 0; i < terms.size(); ++i)
    found.losses.push_back({std::string(terms[i].name), std::string(terms[i].counted), of_terms[i],
                            terms[i].count(targets, samples)});
  if (parts_.servers)
    parts_.servers->broadcast(found.losses.front().nats, "loss of the evaluation");
  return found;
}

template <class P>
void TypedEngine<P>::sum_of_requests(std::vector<double>& values) {
  for (grid::Communicator* ranks : {&parts_.replicas, &parts_.tensor, &parts_.pipeline})
    ranks->template all_reduce<double>(values, grid::Reduction::sum, "results of requests");
  if (parts_.local)
    parts_.local->across().template all_reduce<double>(std::span(values), grid::Reduction::sum,
                                                       "results of requests");
}

template <class P>
std::vector<Score> TypedEngine<P>::score(const data::Requests& requests) {
  const Region region("scoring");
  std::vector<double> sums(static_cast<std::size_t>(2 * requests.count()));
  evaluate_groups(requests.count(),
                  [&](std::int64_t done) { actions_.begin_requests(requests, done, sums); });
  sum_of_requests(sums);
  std::vector<Score> scores;
  for (std::size_t i = 0; i < sums.size(); i += 2) scores.push_back({-sums[i], sums[i + 1] == 0});
  return scores;
}

template <class P>
std::vector<std::vector<std::int32_t>> TypedEngine<P>::likeliest(const data::Requests& requests) {
  const Region region("likeliest_tokens");
  check(!parts_.servers, "likeliest tokens with parameter servers");
  std::vector<double> ids(static_cast<std::size_t>(requests.wanted()));
  with_shared_weights([&] {
    evaluate_groups(requests.count(),
                    [&](std::int64_t done) { actions_.begin_requests(requests, done, ids); });
  });
  sum_of_requests(ids);
  std::vector<std::vector<std::int32_t>> found;
  for (std::int64_t i = 0; i < requests.count(); ++i)
    found.emplace_back(ids.begin() + requests.first_wanted(i),
                       ids.begin() + requests.first_wanted(i + 1));
  return found;
}

template <class P>
std::vector<checkpoint::SliceView> TypedEngine<P>::share() {
  return checkpoint_.share();
}

template <class P>
void TypedEngine<P>::load(const checkpoint::Reader& reader) {
  results_.forget();
  begun_ = false;
  checkpoint_.load(reader);
}

template <class P>
std::vector<plan::MemoryRow> TypedEngine<P>::memory() const {
  const bool away = plan::offloads_optimizer(config_.parallel, machine_);
  std::vector<plan::MemoryRow> rows{{"weights", parts_.parameters.weight_bytes()}};
  if (parts_.optimizer) {
    rows.push_back({"gradients", parts_.parameters.gradient_bytes()});
    if (parts_.other_version) {
      rows.push_back({"weights, second version", parts_.other_version->parameters.weight_bytes()});
      rows.push_back(
          {"gradients, second version", parts_.other_version->parameters.gradient_bytes()});
    }
    if (!away) rows.push_back({"optimizer state", parts_.optimizer->state_bytes()});
  }
  rows.push_back({"saved activations", parts_.model->saved_bytes()});
  const Bytes shared = parts_.vocabulary ? parts_.vocabulary->memory.capacity() : 0;
  rows.push_back({"transfer buffers", parts_.transfers->bytes() + shared});
  rows.push_back(
      {"scratch", parts_.model->scratch_bytes() + actions_.score_bytes() + results_.bytes()});
  if (const Bytes bytes = handle_.workspace_bytes(); bytes > 0)
    rows.push_back({"kernel workspace", bytes});
  if (is_narrow<T>) rows.push_back({"two-byte products", handle_.widened_bytes()});
  if (parts_.fp8) rows.push_back({"fp8 scaling", parts_.fp8->bytes()});
  if (const Bytes bytes = parts_.reduction_bytes(); bytes > 0)
    rows.push_back({"reductions", bytes});
  if (parts_.optimizer && parts_.optimizer->muon_bytes() > 0)
    rows.push_back({"orthogonalisation", parts_.optimizer->muon_bytes()});
  if (parts_.optimizer && parts_.optimizer->means_bytes() > 0)
    rows.push_back({"sums of rows and columns", parts_.optimizer->means_bytes()});
  if (parts_.local) rows.push_back({"local training", parts_.local->device_bytes()});
  if (audit_) rows.push_back({"audits", audit_->bytes()});
  if (parts_.optimizer && away)
    rows.push_back({"optimizer state (host)", parts_.optimizer->state_bytes(), true});
  if (parts_.local && parts_.local->host_bytes() > 0)
    rows.push_back({"local training (host)", parts_.local->host_bytes(), true});
  if (const Bytes bytes = parts_.model->offloaded_bytes(); bytes > 0)
    rows.push_back({"saved activations (host)", bytes, true});
  return rows;
}

template <class P>
double TypedEngine<P>::measure_peak() {
  const Region region("measure_peak");
  return kernels::measure_matmul_peak(handle_, config_.precision.compute);
}

template <class P>
std::string TypedEngine<P>::description() const {
  const DType type = config_.precision.compute;
  return text(name_of(type), " products by ", handle_.choice().products_description(type),
              parts_.fp8 ? ", those of the layers in fp8" : "");
}

// Overlapping steps: a step's part of the program, its timeline, and its results.
template <class P>
void TypedEngine<P>::overlapping_step(std::int64_t step, const data::Samples& samples,
                                      bool next_follows) {
  if (parts_.servers) return served_step(step, samples, next_follows);
  const bool continues = begun_;
  overlap(step, samples, next_follows);
  if (continues) results_.remember(step - 1);
  if (!next_follows) results_.remember(step);
}

template <class P>
void TypedEngine<P>::overlap(std::int64_t step, const data::Samples& samples, bool next_follows) {
  check(parts_.other_version.has_value(), "steps of this schedule do not overlap");
  check(!begun_ || step == actions_.step() + 1, "step ", actions_.step() + 1,
        " has begun, but step ", step, " follows");
  const Region region("step");
  Executor& executor = begin_step(step, samples);
  executor.prepare(begun_, next_follows);
  const bool begins = !begun_;
  begun_ = next_follows;
  if (!config_.run.timeline) return run(executor);
  if (begins) {
    recorded_parts_ = 0;
    begin_clock();
  }
  if (begins && !next_follows) {
    timeline_.layout = executor.layout();
    timeline_.layout.steps = 1;
    return run_timed(executor, StepPhase::whole);
  }
  run_recorded(executor);
}

/// The timeline holds two consecutive steps: a later step replaces the first one, unless the later
/// step ends the overlap.
template <class P>
int TypedEngine<P>::make_room(const Executor& executor) {
  timeline_.layout = executor.layout();
  std::vector<schedule::Event>& events = timeline_.events;
  if (recorded_parts_ == 0) events.clear();
  if (recorded_parts_ == 2) {
    if (!begun_) return -1;
    events.erase(events.begin(), events.begin() + latest_part_);
    for (schedule::Event& e : events) e.instr = schedule::seen_from(e.instr, 1, timeline_.layout);
    std::erase_if(events, [passes = 2 * executor.micro_batches()](const schedule::Event& e) {
      return e.instr.micro < 0 || e.instr.micro >= passes;
    });
    const int first = events.empty() ? 0 : events.front().position;
    for (schedule::Event& e : events) e.position -= first;
  }
  latest_part_ = std::ssize(events);
  return recorded_parts_ < 2 ? recorded_parts_++ : 1;
}

template <class P>
void TypedEngine<P>::run_recorded(const Executor& executor) {
  const int part = make_room(executor);
  const int offset = timeline_.events.empty() ? 0 : timeline_.events.back().position + 1;
  executor.run([&](const PlacedInstr& placed, std::size_t position) {
    publish(placed, StepPhase::whole);
    actions_.has_begun();
    train::run(actions_, placed);
    fence(handle_, "train/timed_step waits for each instruction");
    const schedule::Instr instr = schedule::seen_from(placed.instr, -part, timeline_.layout);
    if (part >= 0 && instr.micro >= 0)
      timeline_.events.push_back({parts_.pipeline.rank(), offset + static_cast<int>(position),
                                  instr, since_zero(actions_.began()), since_zero(Clock::now())});
  });
  if (!begun_) parts_.transfers->finish();
}

template <class P>
StepResult TypedEngine<P>::result() {
  return parts_.other_version ? result_of(actions_.step()) : results_.result();
}

template <class P>
StepResult TypedEngine<P>::result_of(std::int64_t step) {
  if (!parts_.other_version) {
    check(step == actions_.step(), "step ", step, " is not the last one, ", actions_.step());
    return result();
  }
  check(step == actions_.step() ? !begun_ : step + 1 == actions_.step(), "the result of step ",
        step, " is not known at the end of step ", actions_.step());
  return results_.overlapping_result(step);
}

// Steps of a worker whose weights and optimizer state are on parameter servers.
template <class P>
void TypedEngine<P>::served_step(std::int64_t step, const data::Samples& samples,
                                 bool next_follows) {
  const Region region("step");
  ServerLink<P>& servers = *parts_.servers;
  grid::Heartbeat::publish({text("worker ", servers.messages().number(), ", fetch"), step});
  servers.finish();  // the gradients are about to change
  servers.fetch(handle_, step);
  run(begin_step(step, samples));
  servers.end_step(step, !next_follows);
  results_.remember(step);
}

template class TypedEngine<model::Fp32>;
template class TypedEngine<model::Fp64>;
template class TypedEngine<model::MixedBf16>;
template class TypedEngine<model::MixedFp16>;

}  // namespace trireme::train
