// Overlapping steps of a worker: which part of the program a step runs, its timeline and results.
#include <trireme/schedule/overlap.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>
#include <trireme/train/typed_worker.hpp>

#include <algorithm>
#include <array>

namespace trireme::train {

template <class P>
void TypedWorker<P>::overlapping_step(std::int64_t step, const data::Samples& samples,
                                      bool next_follows) {
  if (parts_.servers) return served_step(step, samples, next_follows);
  const bool continues = begun_;
  overlap(step, samples, next_follows);
  if (continues) remember(step - 1);
  if (!next_follows) remember(step);
}

template <class P>
void TypedWorker<P>::overlap(std::int64_t step, const data::Samples& samples, bool next_follows) {
  check(parts_.second.has_value(), "steps of this schedule do not overlap");
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
    return run_timed(executor, StepPart::whole);
  }
  run_recorded(executor);
}

/// A timeline holds the last two steps: the repeated one, and the one before. The end of the last
/// step is recorded only if no step was repeated.
template <class P>
int TypedWorker<P>::make_room(const Executor& executor) {
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
void TypedWorker<P>::run_recorded(const Executor& executor) {
  const int part = make_room(executor);
  const int offset = timeline_.events.empty() ? 0 : timeline_.events.back().position + 1;
  executor.run([&](const Step& step, std::size_t position) {
    publish(step, StepPart::whole);
    actions_.has_begun();
    train::run(actions_, step);
    fence(handle_, "train/timed_step waits for each instruction");
    const schedule::Instr instr = schedule::seen_from(step.instr, -part, timeline_.layout);
    if (part >= 0 && instr.micro >= 0)
      timeline_.events.push_back({parts_.pipeline.rank(), offset + static_cast<int>(position),
                                  instr, since_zero(actions_.began()), since_zero(Clock::now())});
  });
  if (!begun_) parts_.transfers->finish();
}

template <class P>
StepResult TypedWorker<P>::result_of(std::int64_t step) {
  if (!parts_.second) {
    check(step == actions_.step(), "step ", step, " is not the last one, ", actions_.step());
    return result();
  }
  check(step == actions_.step() ? !begun_ : step + 1 == actions_.step(), "the result of step ",
        step, " is not known at the end of step ", actions_.step());
  const Region region("result");
  const StepRecords& records = actions_.records();
  std::vector<double> sums(records.losses(step).extent(0));
  std::array<double, kernels::status_size> status{};
  std::array<double, 1> before{};
  copy_to_host<double>(handle_, sums, records.losses(step), "train/result reads the loss");
  copy_to_host<double>(handle_, status, records.status(step),
                       "train/result reads the gradient norm and what was skipped");
  copy_to_host<double>(handle_, before, records.scale_before(step),
                       "train/result reads the loss scale before the update");
  StepResult found = result_from(sums, status, step);
  if (found.skips.loss_scale) found.skips.scale_before = before[0];
  found.earlier = earlier_steps(step);
  return found;
}

template void TypedWorker<model::Fp32>::overlapping_step(std::int64_t, const data::Samples&, bool);
template void TypedWorker<model::Fp32>::overlap(std::int64_t, const data::Samples&, bool);
template int TypedWorker<model::Fp32>::make_room(const Executor&);
template void TypedWorker<model::Fp32>::run_recorded(const Executor&);
template StepResult TypedWorker<model::Fp32>::result_of(std::int64_t);
template void TypedWorker<model::Fp64>::overlapping_step(std::int64_t, const data::Samples&, bool);
template void TypedWorker<model::Fp64>::overlap(std::int64_t, const data::Samples&, bool);
template int TypedWorker<model::Fp64>::make_room(const Executor&);
template void TypedWorker<model::Fp64>::run_recorded(const Executor&);
template StepResult TypedWorker<model::Fp64>::result_of(std::int64_t);
template void TypedWorker<model::MixedBf16>::overlapping_step(std::int64_t, const data::Samples&,
                                                              bool);
template void TypedWorker<model::MixedBf16>::overlap(std::int64_t, const data::Samples&, bool);
template int TypedWorker<model::MixedBf16>::make_room(const Executor&);
template void TypedWorker<model::MixedBf16>::run_recorded(const Executor&);
template StepResult TypedWorker<model::MixedBf16>::result_of(std::int64_t);
template void TypedWorker<model::MixedFp16>::overlapping_step(std::int64_t, const data::Samples&,
                                                              bool);
template void TypedWorker<model::MixedFp16>::overlap(std::int64_t, const data::Samples&, bool);
template int TypedWorker<model::MixedFp16>::make_room(const Executor&);
template void TypedWorker<model::MixedFp16>::run_recorded(const Executor&);
template StepResult TypedWorker<model::MixedFp16>::result_of(std::int64_t);

}  // namespace trireme::train
