// The training loop: steps, metrics, validation, checkpoints, stop requests, and events.
#include <trireme/train/trainer.hpp>

#include <trireme/base/alignment.hpp>
#include <trireme/base/clock.hpp>
#include <trireme/base/events.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/process.hpp>
#include <trireme/checkpoint/folders.hpp>
#include <trireme/deck/enums.hpp>
#include <trireme/grid/heartbeat.hpp>
#include <trireme/grid/runtime.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/optim/learning_rate.hpp>
#include <trireme/tensor/copy.hpp>
#include <trireme/tensor/region.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <string_view>
#include <utility>

namespace trireme::train {
namespace {

/// Whether the metrics of a logged step list the tokens of every expert, which may be thousands of
/// numbers.
bool lists_experts(const deck::RunConfig& run, std::int64_t step) {
  constexpr std::int64_t lines = 100;
  const std::int64_t every = run.log_every * divided_up(run.steps, run.log_every * lines);
  return step == run.steps || step % every == 0;
}

std::string layout_text(const deck::ParallelConfig& p) {
  return text("data ", p.data, p.has_servers() ? text(" + ", p.servers, " servers") : "",
              " · pipeline ", p.pipeline, " · tensor ", p.tensor, ", ", name_of(p.schedule),
              p.chunks > 1 ? text(", ", p.chunks, " chunks") : "",
              p.sequence_parallel ? ", sequence parallel" : "");
}

void add(Metrics& m, const Evaluation& e) {
  m.validation_loss = e.tokens().mean();
  for (std::size_t i = 1; i < e.losses.size(); ++i)
    m.other_validation_losses.push_back({e.losses[i].name, e.losses[i].mean()});
  if (e.bytes > 0) m.bits_per_byte = e.bits_per_byte();
}

/// Text such as "2.3456 nats per token, pair_loss 0.6789, 1.2345 bits per byte".
std::string description(const Evaluation& e) {
  std::string line = text(fixed(e.tokens().mean(), 4), " nats per ", e.tokens().counted);
  for (std::size_t i = 1; i < e.losses.size(); ++i)
    line += text(", ", e.losses[i].name, " ", fixed(e.losses[i].mean(), 4));
  return e.bytes > 0 ? text(line, ", ", fixed(e.bits_per_byte(), 4), " bits per byte") : line;
}

/// Text with three digits: "0.62", "10.7k", "3.52M".
std::string three_digits(double number) {
  constexpr std::array<std::string_view, 5> units{"", "k", "M", "G", "T"};
  if (!std::isfinite(number)) return fixed(number, 0);
  std::size_t unit = 0;
  for (; std::abs(number) >= 999.5 && unit + 1 < units.size(); ++unit) number /= 1000;
  const double size = std::abs(number);
  const int digits = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  return text(fixed(number, digits), units.at(unit));
}

/// Like three_digits(), but "4.2e-5" for positive values below 0.01.
std::string norm_text(double norm) {
  if (!(norm > 0 && norm < 0.01)) return three_digits(norm);
  const int exponent = static_cast<int>(std::floor(std::log10(norm)));
  return text(fixed(norm * std::pow(10, -exponent), 1), "e", exponent);
}

/// Durations as "0:19", "1h02m", "3d04h".
std::string short_duration(double seconds) {
  if (!(seconds < 1000 * 86400.0)) return "?";
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  const auto two = [](std::int64_t n) { return text(n < 10 ? "0" : "", n); };
  if (minutes < 60) return human_seconds(std::min(seconds, 3599.0));
  if (minutes < 24 * 60) return text(minutes / 60, "h", two(minutes % 60), "m");
  return text(minutes / (24 * 60), "d", two(minutes / 60 % 24), "h");
}

}  // namespace

std::string step_line(const Metrics& m, std::int64_t steps, double epochs, Seconds left,
                      bool ramps) {
  constexpr std::size_t most = 79;
  const std::size_t digits = text(steps).size();
  std::string step = text(m.step);
  step.insert(0, digits - std::min(digits, step.size()), ' ');
  const std::string begin = text("step ", step, "/", steps, " epoch ", three_digits(epochs));
  const std::string loss = text("  loss ", fixed(m.loss, std::abs(m.loss) < 1 ? 4 : 3));
  const std::string rate = text("  ", three_digits(m.tokens_per_second), " tok/s");
  const std::string end = text("  eta ", short_duration(left));
  std::string batch = ramps ? text(" batch ", m.global_batch) : "";
  std::string norm = text(" norm ", norm_text(m.gradient_norm));
  std::string mfu = text(" ", fixed(100 * m.flops_utilization, 0), "% MFU");
  for (std::string* part : {&mfu, &batch, &norm}) {
    const std::string line = text(begin, batch, loss, norm, rate, mfu, end);
    if (line.size() <= most) return line;
    part->clear();
  }
  return text(begin, loss, rate, end);
}

Trainer::Trainer(const TrainerInputs& parts, Engine& engine)
    : parts_(parts),
      batches_(parts_.config.batch),
      engine_(engine),
      requests_(parts_.config.run),
      saver_(parts_.config.checkpoint, parts_.world, engine, parts_.checkpoint_copy) {
  if (parts_.config.checkpoint.local_every > 0)
    local_saver_.emplace(parts_.config.checkpoint, parts_.world, engine);
}

void Trainer::start(std::optional<std::int64_t> restored, const checkpoint::RunState& kept) {
  kept_ = kept;
  saved_step_ = restored.value_or(0);
  first_step_ = saved_step_ + 1;
  if (saved_step_ == 0) restored.reset();  // no step has been logged yet
  logged_step_ = first_step_ - 1;
  if (parts_.world.rank() == 0) metrics_.emplace(parts_.config.run.directory, restored);
  peak_flops_ = parts_.world.all_reduce<double>(engine_.measure_peak(), grid::Reduction::sum,
                                                "matrix-product peak");
  say("matrix-product peak of all ranks, measured: ", fixed(peak_flops_ / 1e9, 1), " GFLOP/s (",
      engine_.description(), ")");
  events::set_step(saved_step_);
  events::Training training{peak_flops_, {}, {}, {}};
  if (metrics_ && metrics_->last_logged()) {
    training.logged_step = metrics_->last_logged()->step;
    training.logged_time = metrics_->last_logged()->time;
  }
  if (metrics_ && metrics_->last_kept()) training.kept_time = metrics_->last_kept()->time;
  events::record(training);
  if (!local_saver_) return;
  checkpoint::Attempt attempt;
  if (parts_.world.rank() == 0) attempt = {kept_.starts.back().run, kept_.starts.back().attempt};
  local_saver_->begin(attempt);
}

/// Whether a step is logged even if no checkpoint is due.
bool Trainer::is_logged(std::int64_t step) const {
  const deck::RunConfig& run = parts_.config.run;
  return step == run.steps || due(step, run.log_every) || due(step, run.evaluate_every) ||
         due(step, plan::longest_history);
}

void Trainer::write_timeline() {
  const schedule::Timeline timeline = engine_.timeline();
  if (parts_.world.rank() == 0)
    io::replace_file(parts_.config.run.directory + "/timeline.jsonl",
                     schedule::write_timeline(timeline));
}

ExitCode Trainer::run() try {
  const ExitCode code = take_steps();
  if (local_saver_) local_saver_->remove();
  requests_.end(parts_.world.rank() == 0);
  return code;
} catch (const Error& error) {
  // All ranks throw this error together, and the checkpoint in progress holds audited values.
  if (error.code() == ExitCode::wrong_numbers) saver_.finish();
  throw;
}

ExitCode Trainer::take_steps() {
  const deck::RunConfig& run = parts_.config.run;
  began_ = logged_at_ = Clock::now();
  requests_.begin_steps();
  for (std::int64_t step = first_step_; step <= run.steps; ++step) {
    const bool overlaps = parts_.config.parallel.overlaps_steps();
    const bool served = parts_.config.parallel.has_servers();
    const bool goes_on = served ? !meets_after(step) : overlaps && !ends_overlap(step);
    requests_.begin_step(step, !overlaps && !served);
    const Request request = served     ? take_served_step(step)
                            : overlaps ? take_overlapping_step(step)
                                       : take_step(step);
    // The ranks have agreed: a signal that arrives now ends the run after the next step.
    if (request.stop == 0 && step < run.steps) requests_.begin_step(step + 1, !overlaps && !served);
    events::set_step(step);
    if (goes_on) continue;
    const bool stop = request.stop != 0;
    const bool last = step == run.steps;
    save_is_due_ |=
        last || stop || request.checkpoint != 0 || due(step, parts_.config.checkpoint.every);
    local_is_due_ |= due(step, parts_.config.checkpoint.local_every);
    // A step is logged before it is saved. Unless the run ends, a checkpoint waits for a step that
    // is not skipped, so that unusable weights do not replace a good checkpoint.
    if (save_is_due_ || local_is_due_ || is_logged(step)) log_step(step);
    if (save_is_due_ && (skips_.in_row == 0 || last || stop)) {
      save(step, !last && !stop);
      save_is_due_ = local_is_due_ = false;
    } else if (local_is_due_ && skips_.in_row == 0) {
      save_locally(step);
      local_is_due_ = false;
    }
    if (stop && !last) {
      events::record(
          events::Stop{cause_of(request), static_cast<int>(ExitCode::restartable), std::nullopt});
      say("stopped early after step ", step, " of ", run.steps, "; start the same command with ",
          "checkpoint.restart=latest to continue");
      return ExitCode::restartable;
    }
  }
  end();
  if (first_step_ > run.steps)
    say("nothing to do: step ", first_step_ - 1, " of ", run.steps, " is done");
  return ExitCode::finished;
}

/// Runs a step, and agrees with all ranks on the next action.
Request Trainer::take_step(std::int64_t step) {
  const bool timed = parts_.config.run.timeline && is_logged(step);
  if (timed)
    engine_.timed_step(step, parts_.samples);
  else
    engine_.train_step(step, parts_.samples);
  if (timed) write_timeline();
  return agreement(step);
}

/// Logs a step, and evaluates if an evaluation is due. `late`: the next step has begun, so that no
/// rank may wait for another rank, and there is no evaluation.
void Trainer::log_step(std::int64_t step, bool late) {
  const bool overlaps = parts_.config.parallel.overlaps_steps();
  const StepResult found = overlaps ? engine_.result_of(step) : engine_.result();
  const auto now = overlaps ? ended_.at(static_cast<std::size_t>(step % 2)) : Clock::now();
  const deck::Config& c = parts_.config;
  const auto steps = static_cast<double>(step - logged_step_);
  const double took = seconds(now - logged_at_) - untimed_;
  const std::int64_t samples = batches_.samples(step);

  Metrics m;
  m.step = step;
  m.time = to_text(utc_now());
  m.loss = found.loss;
  m.other_losses = found.other_losses;
  if (lists_experts(c.run, step)) m.expert_tokens = found.expert_tokens;
  m.expert_loads = found.expert_loads;
  m.dropped_choices = found.dropped_choices;
  m.learning_rate = optim::learning_rate(c.optimizer, step, batches_.global(step));
  m.gradient_norm = found.gradient_norm;
  m.global_batch = batches_.global(step);
  m.tokens = samples * c.model.sequence;
  m.step_seconds = took / steps;
  m.tokens_per_second =
      static_cast<double>((samples - batches_.samples(logged_step_)) * c.model.sequence) / took;
  m.flops_utilization =
      m.tokens_per_second * parts_.architecture.model_flops_per_token() / peak_flops_;
  m.peak_bytes = late ? peak_bytes_
                      : parts_.world.all_reduce<std::int64_t>(
                            peak_resident_bytes(), grid::Reduction::maximum, "peak memory");
  m.skipped_steps = found.skips.total;
  m.loss_scale = found.skips.loss_scale;
  m.gradient_noise_scale = noise_scale_ = found.noise_scale;
  if (metrics_) metrics_->write(found.earlier);
  check_skips(m, std::exchange(skips_, found.skips));

  const bool evaluates = !late && (step == c.run.steps || due(step, c.run.evaluate_every));
  std::optional<Evaluation> evaluation;
  if (evaluates) evaluation = validate();
  if (evaluation) {
    const double nats = evaluation->tokens().nats;
    if (!std::isfinite(nats))
      fail_not_finite(text("step ", step, ": the validation loss ", nats,
                           " is not finite; lower [optimizer] learning_rate"));
    add(m, *evaluation);
  }
  if (metrics_) metrics_->write(m);
  log::progress(progress_line(m));
  if (evaluation) say("step ", step, ": validation loss ", description(*evaluation));
  if (evaluates)
    if (const std::string reason = parts_.after_evaluation(step); !reason.empty())
      fail_not_finite(text("step ", step, ": ", reason, "; lower [optimizer] learning_rate"));
  logged_step_ = step;
  logged_at_ = late ? now : Clock::now();
  untimed_ = 0;
}

/// Reports the last skipped step. Ends the run if the last maximum_skips steps were skipped.
void Trainer::check_skips(const Metrics& m, const Skips& before) {
  const deck::OptimizerConfig& o = parts_.config.optimizer;
  if (skips_.last_step > logged_step_) {
    events::SkippedStep event;
    if (!skips_.array.empty()) event.array = skips_.array;
    event.skipped = skips_.total;
    event.in_row = skips_.in_row;
    event.loss_scale_before = before.loss_scale;
    event.loss_scale_after = m.loss_scale;
    events::record(event, skips_.last_step);
    say("step ", skips_.last_step, " was skipped: its loss or gradient is not finite",
        skips_.array.empty() ? "" : text(", first in the gradient of ", skips_.array), "; ",
        skips_.total, skips_.total == 1 ? " step" : " steps", " skipped so far, ", skips_.in_row,
        " in a row", m.loss_scale ? text("; loss scale ", *m.loss_scale) : "");
  }
  if (skips_.in_row < o.maximum_skips) return;
  fail_not_finite(text(
      "step ", m.step, ": loss ", m.loss, ", gradient norm ", m.gradient_norm, "; the last ",
      skips_.in_row,
      " steps were skipped because their loss or gradient was not finite ([optimizer] ",
      "maximum_skips = ", o.maximum_skips, "); resume from an earlier checkpoint and lower ",
      "[optimizer] learning_rate (", o.learning_rate, ") or clip_norm, or warm up for longer"));
}

/// Completes the checkpoint in progress, which holds good values, and throws. Called on all ranks.
void Trainer::fail_not_finite(const std::string& message) {
  saver_.finish();
  events::record(
      events::Stop{events::StopCause::not_finite, static_cast<int>(ExitCode::failed), message});
  throw Error(message);
}

/// Logs the gradient noise scale N. With a batch of B samples, a step has the fraction B / (B + N)
/// of the progress of a step with an unlimited batch (McCandlish et al. 2018, arXiv 1812.06162).
void Trainer::say_noise_scale() const {
  if (!parts_.config.run.gradient_noise_scale || first_step_ > parts_.config.run.steps) return;
  const std::int64_t batch = batches_.global(parts_.config.run.steps);
  if (!noise_scale_) return say("gradient noise scale: not known yet; more steps are needed");
  const double ratio = static_cast<double>(batch) / *noise_scale_;
  say("gradient noise scale: about ", with_commas(std::llround(*noise_scale_)), " samples (",
      with_commas(std::llround(*noise_scale_ * static_cast<double>(parts_.config.model.sequence))),
      " tokens); with a batch of ", batch, " samples, a step has ", fixed(100 / (1 + 1 / ratio), 0),
      " % of the progress of a step with an unlimited batch");
}

/// Logs the mean speed of this job, including evaluations and checkpoints.
void Trainer::say_mean_speed() const {
  const deck::Config& c = parts_.config;
  const std::int64_t samples = batches_.samples(c.run.steps) - batches_.samples(first_step_ - 1);
  const double rate = static_cast<double>(samples * c.model.sequence) / seconds_since(began_);
  say("mean speed: ", with_commas(std::llround(rate)), " tokens/s, MFU ",
      fixed(100 * rate * parts_.architecture.model_flops_per_token() / peak_flops_, 1), " %");
}

/// Logs and records the end of a run. Collective.
void Trainer::end() const {
  say_noise_scale();
  if (first_step_ <= parts_.config.run.steps) say_mean_speed();
  const Bytes mine = peak_resident_bytes();
  const Bytes most =
      parts_.world.all_reduce<std::int64_t>(mine, grid::Reduction::maximum, "peak memory");
  events::End event{
      parts_.config.run.steps + 1 - std::min(first_step_, parts_.config.run.steps + 1),
      seconds_since(began_), std::nullopt};
  if (most > 0) event.peak_bytes = most;
  events::record(event);
  if (most > 0)
    say("peak memory of a rank: ", human_bytes(most), " resident, ", with_commas(most), " bytes");
}

/// The log line of a step. An epoch of a blend has as many samples as all of its files together.
std::string Trainer::progress_line(const Metrics& m) const {
  const deck::Config& c = parts_.config;
  std::int64_t per_epoch = 0;
  for (std::size_t i = 0; i < parts_.samples.files(); ++i) per_epoch += parts_.samples.per_epoch(i);
  const std::int64_t samples = batches_.samples(m.step);
  const auto tokens_left =
      static_cast<double>((batches_.samples(c.run.steps) - samples) * c.model.sequence);
  return step_line(m, c.run.steps, static_cast<double>(samples) / static_cast<double>(per_epoch),
                   tokens_left / m.tokens_per_second, batches_.phases().size() > 1);
}

std::optional<Evaluation> Trainer::validate() {
  if (parts_.validation == nullptr) return std::nullopt;
  grid::Heartbeat::publish({"evaluation", logged_step_});
  const deck::Config& c = parts_.config;
  std::int64_t windows = parts_.validation->count();
  if (c.run.evaluate_batches > 0)
    windows = std::min(windows, c.run.evaluate_batches * c.batch.global);
  return engine_.evaluate(*parts_.validation, windows, parts_.bytes_of_token);
}

checkpoint::RunState Trainer::state_of(std::int64_t step) const {
  checkpoint::RunState state = kept_;
  state.step = step;
  state.samples = batches_.samples(step);
  state.layout = layout_text(parts_.config.parallel);
  state.values.merge(to_values(skips_, step));
  return state;
}

void Trainer::save_locally(std::int64_t step) {
  const Region region("local checkpoint");
  const auto begin = Clock::now();
  engine_.audit_state(step);
  local_saver_->save(state_of(step));
  untimed_ += seconds(Clock::now() - begin);
}

void Trainer::save(std::int64_t step, bool goes_on) {
  const Region region("checkpoint");
  const auto begin = Clock::now();
  if (saved_step_ != step) {
    grid::together(parts_.world, [&] {
      if (parts_.world.rank() == 0) parts_.expect_folders();
    });
    engine_.audit_state(step);
    saver_.save(state_of(step), goes_on);
    saved_step_ = step;
  }
  if (!goes_on) saver_.finish();
  untimed_ += seconds(Clock::now() - begin);
}

/// On rank 0, calls expect_folders at most every half second.
void Trainer::look_for_folders() {
  const auto now = Clock::now();
  if (parts_.world.rank() != 0 || now - looked_ < std::chrono::milliseconds(500)) return;
  looked_ = now;
  try {
    parts_.expect_folders();
  } catch (const Error& error) {
    lost_folder_ = error.what();
  }
}

/// This rank's words to all ranks at a step's end: stop and checkpoint requests, the checkpoint's
/// progress (unfinished, failed), 1 if the folders are lost, 1 if the local checkpoint is
/// unfinished.
std::vector<std::int64_t> Trainer::wishes(std::int64_t step) {
  const Seconds saving = (saver_.under_way() ? 3 : 2) * saver_.expected_seconds();
  const auto mean_batch =
      static_cast<double>(batches_.samples(step) - batches_.samples(first_step_ - 1)) /
      static_cast<double>(step - first_step_ + 1);
  // Number of steps that still run if this rank requests the stop one step later.
  const deck::ParallelConfig& p = parts_.config.parallel;
  const std::int64_t steps = p.overlaps_steps() ? 3 : p.has_servers() ? 2 + agreement_lag() : 1;
  const double next_steps =
      static_cast<double>(steps) * static_cast<double>(batches_.global(step + 1)) / mean_batch;
  const Request mine = requests_.ask(parts_.world.rank() == 0, saving, next_steps);
  const Saver::Progress at = saver_.progress();
  look_for_folders();
  return {mine.stop,
          mine.checkpoint,
          at.unfinished,
          at.failed,
          lost_folder_.empty() ? 0 : 1,
          local_saver_ ? local_saver_->unfinished() : 0};
}

/// Ends the run if its folders are lost, advances checkpoints, and returns the requests. Words
/// about an earlier phase do not advance saver_.
Request Trainer::agreed(std::span<const std::int64_t> words, std::int64_t phase) {
  if (words[4] != 0)
    grid::together(parts_.world, [&] {
      if (!lost_folder_.empty()) throw Error(lost_folder_);
    });
  if (phase == saver_.phases()) saver_.advance({words[2], words[3]});
  if (local_saver_) local_saver_->advance(words[5]);
  return {words[0], words[1]};
}

Request Trainer::agreement(std::int64_t step) {
  std::vector<std::int64_t> words = wishes(step);
  parts_.world.all_reduce(std::span<std::int64_t>(words), grid::Reduction::maximum,
                          "agreement at a step's end");
  return agreed(words, saver_.phases());
}

// Overlapping steps: no rank waits for another between steps, so that actions are one step late.

/// Whether the next step must begin after this step is applied: evaluations and checkpoints need
/// the weights after this step, and another batch size needs another program.
bool Trainer::ends_overlap(std::int64_t step) const {
  const deck::Config& c = parts_.config;
  return step == c.run.steps || due(step, c.run.evaluate_every) || due(step, c.checkpoint.every) ||
         due(step, c.checkpoint.local_every) || save_is_due_ || local_is_due_ ||
         wanted_.stop != 0 || wanted_.checkpoint != 0 ||
         batches_.global(step + 1) != batches_.global(step);
}

/// Runs a step, which contains the previous step's update, and logs the previous step if that is
/// due. Returns all requests if the step ends the overlap, otherwise no request.
Request Trainer::take_overlapping_step(std::int64_t step) {
  const bool ends = ends_overlap(step);
  const auto log_last = [&](bool late) {
    if (step > first_step_ && step - 1 > logged_step_ && is_logged(step - 1))
      log_step(step - 1, late);
  };
  engine_.overlapping_step(step, parts_.samples, !ends);
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

/// Ends the agreement that the previous step began, if there is one.
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

// Parameter servers: workers meet after steps that are logged, evaluated or saved. In between, all
// ranks agree on requests without waiting for one another.

/// Number of steps from the beginning of an agreement to its end. The weights for step c + lag
/// include the updates of all workers up to step c.
std::int64_t Trainer::agreement_lag() const {
  return parts_.config.parallel.staleness + 1;
}

/// Whether all updates of the step are applied before the next step begins.
bool Trainer::meets_after(std::int64_t step) const {
  const deck::Config& c = parts_.config;
  if (is_logged(step) || due(step, c.checkpoint.every)) return true;
  return c.parallel.replay.empty() &&
         (save_is_due_ || wanted_.stop != 0 || wanted_.checkpoint != 0);
}

Request Trainer::take_served_step(std::int64_t step) {
  const bool meets = meets_after(step);
  engine_.overlapping_step(step, parts_.samples, !meets);
  if (!meets) {
    begin_late_agreement(step);
    if (std::ssize(late_agreements_) > agreement_lag()) end_late_agreement();
    return {};
  }
  while (!late_agreements_.empty()) end_late_agreement();
  Request request = agreement(step);
  request.stop = std::max(request.stop, wanted_.stop);
  request.checkpoint = std::max(request.checkpoint, wanted_.checkpoint);
  wanted_ = {};
  return request;
}

void Trainer::begin_late_agreement(std::int64_t step) {
  LateAgreement& begun = late_agreements_.emplace_back();
  begun.phase = saver_.phases();
  begun.words = wishes(step);
  const std::int64_t n = std::ssize(begun.words);
  if (late_words_.extent(0) == 0) {
    late_memory_ = Arena("agreements", (agreement_lag() + 1) * n * 8);
    late_words_ = late_memory_.take<std::int64_t>((agreement_lag() + 1) * n);
  }
  const std::int64_t place = step % (agreement_lag() + 1);
  begun.sent = View1<std::int64_t>(late_words_.data() + place * n, begun.words.size());
  copy_to_device<std::int64_t>(exec_, begun.sent, begun.words);
  begun.request =
      parts_.world.start_all_reduce<std::int64_t>(exec_, begun.sent, grid::Reduction::maximum);
}

void Trainer::end_late_agreement() {
  LateAgreement ended = std::move(late_agreements_.front());
  late_agreements_.pop_front();
  parts_.world.wait(ended.request, "agreement at a step's end");
  copy_to_host<std::int64_t>(exec_, ended.words, ended.sent,
                             "train/end_late_agreement reads the requests");
  const Request found = agreed(ended.words, ended.phase);
  wanted_.stop = std::max(wanted_.stop, found.stop);
  wanted_.checkpoint = std::max(wanted_.checkpoint, found.checkpoint);
}

}  // namespace trireme::train
