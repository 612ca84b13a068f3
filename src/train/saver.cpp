// Checkpoints in two phases: shards, and completion of the folder.
#include <trireme/train/saver.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/runtime.hpp>

#include <utility>

namespace trireme::train {
namespace {

constexpr double assumed_bytes_per_second = 100e6;
}  // namespace

Saver::Saver(const deck::CheckpointConfig& config, grid::Communicator& world, Engine& engine,
             Bytes copy_bytes)
    : config_(config), world_(world), engine_(engine), copy_memory_(copy_bytes) {
  for (const auto& slice : engine_.share()) share_bytes_ += slice.bytes();
  // Maximum over all ranks: a rank whose stages hold no arrays needs no copy.
  in_background_ = world_.all_reduce<std::int64_t>(copy_bytes, grid::Reduction::maximum,
                                                   "memory for checkpoints") > 0;
  grid::together(world_, [&] {
    if (world_.rank() == 0) checkpoint::prepare_directory(config_.directory);
  });
}

Saver::~Saver() {
  if (part_.valid() && background_) part_.wait();
}

Seconds Saver::expected_seconds() const {
  return last_seconds_ > 0 ? last_seconds_
                           : static_cast<double>(share_bytes_) / assumed_bytes_per_second;
}

void Saver::save(const checkpoint::RunState& state, bool goes_on) {
  const auto asked = Clock::now();
  finish();
  began_ = Clock::now();
  state_ = state;
  background_ = goes_on && in_background_;
  grid::Heartbeat::publish({"checkpoint", state_.step});
  grid::together(world_, [&] {
    if (world_.rank() == 0) checkpoint::begin_inside(config_.directory, state_.step);
  });
  enter(Phase::shards);
  const auto share = engine_.share();
  write_share(background_ ? copy_memory_.copy(share) : share);
  held_up_ = seconds(Clock::now() - asked);
  if (!background_) finish();
}

void Saver::write_share(std::vector<checkpoint::SliceView> slices) {
  part_ = start_part(background_, [this, slices = std::move(slices)] {
    std::int64_t bytes = 0;
    for (const auto& slice : slices) bytes += slice.bytes();
    if (bytes == 0) return std::string();
    return checkpoint::pack(checkpoint::write_shard(
        checkpoint::partial_folder(config_.directory, state_.step), world_.rank(), slices,
        [this] { has_moved(); },
        background_ ? checkpoint::Cache::bypassed : checkpoint::Cache::used));
  });
}

/// Counts progress for the watchdog; in the background, wait_for_own_part() publishes the count.
void Saver::has_moved() {
  ++moved_;
  if (!background_) grid::Heartbeat::publish({"checkpoint", state_.step});
}

/// Gathers the summaries of the shards; the first rank then completes the checkpoint.
void Saver::complete() {
  std::vector<std::string> packed = world_.gather(shard_, 0, "a checkpoint's shards");
  enter(Phase::completion);
  if (world_.rank() > 0) return;
  part_ = start_part(background_, [this, packed = std::move(packed)] {
    std::vector<checkpoint::ShardSummary> shards;
    for (const std::string& p : packed)
      if (!p.empty()) shards.push_back(checkpoint::parse_summary(p));
    written_bytes_ = 0;
    for (const checkpoint::ShardSummary& shard : shards) written_bytes_ += shard.bytes;
    checkpoint::commit(config_.directory, state_, shards, {config_.keep, config_.keep_every},
                       [this] { has_moved(); });
    return std::string();
  });
}

Saver::Progress Saver::progress() {
  if (part_.valid() && part_.wait_for(Clock::duration::zero()) != std::future_status::timeout) {
    try {
      shard_ = part_.get();
    } catch (const UsageError& error) {  // during a run, the cause is not a mistake in the deck
      error_ = std::make_exception_ptr(Error(error.what()));
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  return {part_.valid() ? 1 : 0, error_ ? 1 : 0};
}

void Saver::advance(const Progress& of_all) {
  if (phase_ == Phase::none || of_all.unfinished != 0) return;
  if (of_all.failed != 0) {
    enter(Phase::none);
    if (world_.rank() == 0) checkpoint::abandon(config_.directory, state_.step);
    const auto error = std::exchange(error_, nullptr);
    grid::together(world_, [&] {
      if (error) std::rethrow_exception(error);
    });
  } else if (phase_ == Phase::shards) {
    complete();
  } else {
    enter(Phase::none);
    last_seconds_ = seconds(Clock::now() - began_);
    report();
  }
}

void Saver::finish() {
  while (phase_ != Phase::none) {
    wait_for_own_part();
    const Progress mine = progress();
    std::array<std::int64_t, 2> of_all{mine.unfinished, mine.failed};
    world_.all_reduce(std::span<std::int64_t>(of_all), grid::Reduction::maximum,
                      "agreement on a checkpoint");
    advance({of_all[0], of_all[1]});
  }
}

void Saver::wait_for_own_part() {
  std::int64_t seen = -1;
  while (part_.valid() && part_.wait_for(look_again) == std::future_status::timeout)
    if (const std::int64_t moved = moved_; moved != std::exchange(seen, moved))
      grid::Heartbeat::publish({"checkpoint", state_.step});
}

void Saver::report() const {
  const std::string folder = config_.directory + "/" + checkpoint::folder_name(state_.step);
  const Seconds waited = background_ ? held_up_ : last_seconds_;
  events::record(events::Checkpoint{folder, written_bytes_, last_seconds_, background_, waited},
                 state_.step);
  if (background_)
    say("checkpoint ", folder, " (", fixed(last_seconds_, 1),
        " s in the background, the run waited ", fixed(held_up_, 2), " s)");
  else
    say("checkpoint ", folder, " (", fixed(last_seconds_, 1), " s)");
}

}  // namespace trireme::train
