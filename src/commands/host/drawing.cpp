#include <trireme/commands/drawing.hpp>

#include <trireme/architecture/architecture.hpp>
#include <trireme/architecture/shard.hpp>
#include <trireme/base/check.hpp>
#include <trireme/plan/cost.hpp>
#include <trireme/plan/machine_file.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/plan/recompute.hpp>
#include <trireme/schedule/machine.hpp>

#include <filesystem>

namespace trireme::commands {
namespace {

bool same_shape(const schedule::ProgramLayout& a, const schedule::ProgramLayout& b) {
  return a.map() == b.map() && a.micro_batches == b.micro_batches && a.steps == b.steps;
}

std::string shape_text(const schedule::ProgramLayout& layout) {
  return text(layout.ranks, " pipeline ranks, ", layout.chunks,
              layout.placement == StagePlacement::v ? " chunks in a V and " : " chunks and ",
              layout.micro_batches, " micro-batches",
              layout.overlaps_steps() ? " without a flush" : "");
}

/// Reads a run's timeline into drawing.measured. A file that is missing or does not match `layout`
/// is a UsageError with `must_fit`; otherwise a mismatch only sets drawing.warning.
void add_measured(Drawing& drawing, const std::string& path, bool must_fit,
                  const schedule::ProgramLayout& layout) {
  if (!must_fit && !std::filesystem::exists(path)) return;
  schedule::Timeline timeline = schedule::read_timeline(
      plan::read_text_file(path, path, "; a run with run.timeline=true writes one"), path);
  if (same_shape(timeline.layout, layout)) {
    drawing.measured = std::move(timeline);
    return;
  }
  const std::string message = text(path, " was measured with ", shape_text(timeline.layout),
                                   ", but the deck has ", shape_text(layout));
  check_usage(!must_fit, message, "; draw with the deck and overrides of that run");
  drawing.warning = message + "; only the prediction is drawn";
}

}  // namespace

std::string Drawing::idle() const {
  const std::string share = percent(predicted.idle_share());
  if (!measured) return text("idle ", share, " predicted from the FLOPs of each stage");
  return text("idle ", percent(measured->idle_share()), " measured, ", share,
              " predicted from the mean measured time of each stage's passes");
}

schedule::DrawOptions Drawing::options() const {
  schedule::DrawOptions options;
  options.schedule = schedule;
  options.measured = measured ? &*measured : nullptr;
  options.seconds = measured.has_value();
  return options;
}

Drawing make_drawing(const deck::Deck& deck, const plan::Machine& machine,
                     const std::string& measured, bool must_fit) {
  const deck::Config& c = deck.config;
  const schedule::Program program = plan::step_program(c, machine);
  Drawing drawing;
  drawing.schedule =
      c.parallel.reads_program() ? c.parallel.program : std::string(name_of(c.parallel.schedule));
  add_measured(drawing, measured, must_fit, program.layout);
  schedule::Cost cost;
  if (drawing.measured) {
    cost = schedule::mean_costs(*drawing.measured);
  } else {
    const auto a = architecture::describe(c.model);
    cost = plan::flop_cost(plan::stage_flops(a, c.parallel));
  }
  drawing.predicted = schedule::simulate(program, cost).timeline;
  return drawing;
}

}  // namespace trireme::commands
