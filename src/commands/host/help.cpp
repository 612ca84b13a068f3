#include <trireme/base/check.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/deck/deck.hpp>
#include <trireme/plan/machine_file.hpp>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace trireme::commands {
namespace {

struct HelpOptions {
  std::string topic;
  bool markdown = false;
};

void help(const CLI::App& app, const HelpOptions& options) {
  if (options.topic == "deck") {
    std::cout << (options.markdown ? deck::reference_markdown() : deck::reference_text());
    return;
  }
  if (options.topic == "machine") {
    std::cout << (options.markdown ? plan::machine_markdown() : plan::machine_text());
    return;
  }
  check_usage(!options.markdown, "--markdown is for `trireme help deck` and `help machine`");
  if (options.topic.empty()) {
    std::cout << app.help();
    return;
  }
  std::vector<std::string> topics{"deck", "machine"};
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    topics.push_back(command->get_name());
    if (command->get_name() != options.topic) continue;
    std::cout << command->help();
    return;
  }
  const std::string best = nearest(options.topic, topics);
  throw UsageError(
      text("no help on ", options.topic, "; ",
           best.empty() ? "the topics are " + join(topics, ", ") : "did you mean " + best + "?"));
}

}  // namespace

void add_help(CLI::App& app) {
  const auto options = std::make_shared<HelpOptions>();
  CLI::App* command = app.add_subcommand(
      "help", "List the keys of a deck or of a machine file, or show the help of a command");
  command->add_option("TOPIC", options->topic, "deck, machine, or a command")->type_name("");
  command->add_flag("--markdown", options->markdown, "Print the keys as Markdown");
  command->footer("Examples:\n  trireme help deck\n  trireme help machine\n  trireme help train");
  command->callback([&app, options] { help(app, *options); });
}

}  // namespace trireme::commands
