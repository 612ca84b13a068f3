// The training loop's part for overlapping steps: which step ends the overlap, and what is done a
// step late because no rank waits for the others in between.
#include <trireme/base/process_memory.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/train/trainer.hpp>

#include <algorithm>

namespace trireme::train {
namespace {}  // namespace

/// Evaluations and checkpoints need the weights of a step with all updates before and none after.
bool Trainer::ends_overlap(std::int64_t step) const {
  const deck::Config& c = parts_.config;
  return step == c.run.steps || due(step, c.run.evaluate_every) || due(step, c.checkpoint.every) ||
         due(step, c.checkpoint.local_every) || save_is_due_ || local_is_due_ ||
         wanted_.stop != 0 || wanted_.checkpoint != 0 ||
         batches_.global(step + 1) != batches_.global(step);
}

/// Takes a step and logs the one before, whose update it contains. Returns all requests if the step
/// ends the overlap, otherwise none.
Request Trainer::take_overlapping_step(std::int64_t step) {
  const bool ends = ends_overlap(step);
  const auto log_last = [&](bool late) {
    if (step > first_step_ && step - 1 > logged_step_ && is_logged(step - 1))
      log_step(step - 1, late);
  };
  worker_.overlapping_step(step, parts_.samples, !ends);
  ended_.at(static_cast<std::size_t>(step % 2)) = Clock::now();
  end_agreement();
  if (!ends) {
    begin_agreement(step);
    log_last(true);
    return {};
  }
  log_last(true);
  if (parts_.config.run.timeline) write_timeline();
  Request request = agreement(step);
  request.stop = std::max(request.stop, wanted_.stop);
  request.checkpoint = std::max(request.checkpoint, wanted_.checkpoint);
  wanted_ = {};
  return request;
}

void Trainer::begin_agreement(std::int64_t step) {
  mine_ = wishes(step);
  mine_.push_back(peak_resident_bytes());
  if (words_.extent(0) == 0)
    words_ = View1<std::int64_t>(agreement_memory_.take<std::int64_t>(std::ssize(mine_)));
  copy_to_device<std::int64_t>(exec_, words_, mine_);
  agreement_ = parts_.world.start_all_reduce<std::int64_t>(exec_, words_, grid::Reduction::maximum);
}

/// Ends the agreement of the last step, if one has begun.
void Trainer::end_agreement() {
  if (mine_.empty()) return;
  parts_.world.wait(agreement_, "agreement at a step's end");
  copy_to_host<std::int64_t>(exec_, mine_, words_, "train/end_agreement reads the requests");
  peak_bytes_ = mine_.back();
  const Request found = agreed(mine_, saver_.phases());
  mine_.clear();
  wanted_.stop = std::max(wanted_.stop, found.stop);
  wanted_.checkpoint = std::max(wanted_.checkpoint, found.checkpoint);
}

}  // namespace trireme::train
