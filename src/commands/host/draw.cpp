// `trireme draw`: writes the timeline of the deck's schedule, the schedule as a program, or a
// drawing of the ring of a context axis.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/commands/drawing.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/commands/resolve.hpp>
#include <trireme/deck/checks.hpp>
#include <trireme/installation/this_installation.hpp>
#include <trireme/io/atomic_file.hpp>
#include <trireme/plan/program.hpp>
#include <trireme/schedule/draw.hpp>
#include <trireme/schedule/generate.hpp>
#include <trireme/schedule/text_format.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

namespace trireme::commands {
namespace {

struct DrawOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 0;
  std::string output;
  std::string format;
  std::string measured;
  bool ring = false;
};

enum class Format : std::uint8_t { text, svg, trace, program };

constexpr std::array<std::string_view, 4> format_names{"text", "svg", "trace", "program"};

/// The format that --format names, or else the extension of the output file; text by default.
Format format_of(const DrawOptions& options) {
  const std::string ending = std::filesystem::path(options.output).extension().string();
  if (options.format.empty()) {
    if (ending == ".svg") return Format::svg;
    if (ending == ".json") return Format::trace;
    return Format::text;
  }
  const auto found = std::ranges::find(format_names, options.format);
  check(found != format_names.end(), "draw --format ", options.format);
  return static_cast<Format>(found - format_names.begin());
}

/// Writes `content` to the file or to standard output. Under a launcher, only one process writes.
void deliver(const DrawOptions& options, std::string content) {
  if (!options.output.empty()) {
    if (is_first_process())
      io::write_output(options.output, content, "; choose another file with -o");
    return;
  }
  while (content.ends_with('\n')) content.pop_back();
  log::line(content);
}

std::string render(const Drawing& drawing, Format format) {
  const schedule::DrawOptions options = drawing.options();
  switch (format) {
    case Format::text:
      return schedule::text_chart(drawing.predicted, options);
    case Format::svg:
      return schedule::svg(drawing.predicted, options);
    case Format::trace:
      return schedule::perfetto_trace(drawing.predicted, options);
    case Format::program:
      break;
  }
  return "";
}

/// Draws the ring of attention of a context group.
void draw_ring(const DrawOptions& options, const deck::Config& c, Format format) {
  check_usage(c.parallel.context > 1, "--ring draws the ring of a context axis, but ",
              "parallel.context is 1; set it to 2 or more, or leave out --ring");
  check_usage(format == Format::text || format == Format::svg, "--ring has no format ",
              format_names[static_cast<std::size_t>(format)], "; choose text or svg");
  const schedule::Picture picture = schedule::ring_picture(
      {c.model.sequence, static_cast<int>(c.parallel.context), c.model.causal(), c.model.window});
  deliver(options, format == Format::svg ? svg(picture) : text_chart(picture));
  if (!options.output.empty()) say(picture.panels.front().line);
}

void draw(const DrawOptions& options) {
  const plan::Machine machine = installation::this_machine();
  const deck::Deck deck =
      deck_for_ranks(options.deck, options.overrides, options.ranks, machine, false).deck;
  const Format format = format_of(options);
  if (options.ring) return draw_ring(options, deck.config, format);
  if (format == Format::program) {
    check_usage(!deck.config.parallel.overlaps_steps(), deck.cite("parallel", "schedule"),
                " has no program of one step, which --format program writes; choose another "
                "schedule or format");
    deliver(options, schedule::write_program(plan::step_program(deck.config, machine)));
    return;
  }
  const bool named = !options.measured.empty();
  const Drawing drawing =
      make_drawing(deck, machine,
                   named ? options.measured : deck.config.run.directory + "/timeline.jsonl", named);
  if (!drawing.warning.empty()) log::warn(drawing.warning);
  deliver(options, render(drawing, format));
  if (!options.output.empty()) say(drawing.idle());
}

}  // namespace

void add_draw(CLI::App& app) {
  const auto options = std::make_shared<DrawOptions>();
  CLI::App* command =
      app.add_subcommand("draw", "Draw the schedule's timeline, predicted and measured");
  add_deck_arguments(*command, options->deck, options->overrides);
  command
      ->add_option("--ranks", options->ranks,
                   "Number of ranks; default: the product of the deck's axes")
      ->check(CLI::Range(std::int64_t{1}, deck::ranks_limit));
  command->add_option("-o,--output", options->output, "Output file; default: print text")
      ->type_name("FILE");
  command
      ->add_option("--format", options->format,
                   "text; svg; trace, for ui.perfetto.dev; program, for parallel.program. Default: "
                   "from the extension of FILE (.svg: svg, .json: trace), else text")
      ->check(CLI::IsMember({"text", "svg", "trace", "program"}))
      ->type_name("FORMAT");
  command
      ->add_option(
          "--measured", options->measured,
          "Timeline of a run with run.timeline=true; default: timeline.jsonl in run.directory")
      ->type_name("FILE");
  command->add_flag(
      "--ring", options->ring,
      "Draw a forward pass of attention over the context axis instead of the schedule");
  command->footer(
      "Examples:\n  trireme draw inputs/gpt_1t.toml parallel.pipeline=4 batch.global=48 -o "
      "schedule.svg\n  trireme draw my.toml parallel.context=4 --ring");
  command->callback([options] { draw(*options); });
}

}  // namespace trireme::commands
