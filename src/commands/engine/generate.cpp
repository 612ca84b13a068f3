#include <trireme/base/log.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/engine.hpp>
#include <trireme/commands/restart.hpp>
#include <trireme/commands/session.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/train/generator.hpp>

namespace trireme::commands {
namespace {

/// Prints the samples one after another; several samples are separated by lines with their numbers.
void print(const std::vector<std::vector<std::string>>& of_ranks, std::int64_t samples) {
  const auto ranks = static_cast<std::int64_t>(of_ranks.size());
  for (std::int64_t i = 0; i < samples; ++i) {
    if (samples > 1) say("---- sample ", i + 1, " of ", samples);
    say(of_ranks[static_cast<std::size_t>(i % ranks)][static_cast<std::size_t>(i / ranks)]);
  }
}

}  // namespace

ExitCode generate(grid::Runtime& runtime, const GenerateOptions& options) {
  Session session =
      open_session(runtime, options.deck, options.overrides, Ranks::all_data_parallel);
  const deck::Config& config = session.config();
  runtime.together([&] {
    check_usage(!config.model.predicts_masked_tokens(), session.deck.cite("model", "objective"),
                ": a model that predicts masked tokens, such as bert, cannot generate text; use a "
                "model with objective = \"next_token\", such as gpt or llama");
  });
  const auto tokenizer = tokenizer_of(session.deck);

  const std::string folder = find_model(runtime, session.deck, options.checkpoint);
  std::vector<std::int32_t> prompt;
  std::unique_ptr<train::Generator> generator;
  runtime.together([&] {
    prompt.push_back(tokenizer->end_of_document());  // a document's beginning
    tokenizer->encode(options.prompt, prompt);
    for (const std::int32_t id : prompt)
      check_usage(id < config.model.vocabulary, "the prompt has token ", id, ", the model only ",
                  config.model.vocabulary);
    generator = train::make_generator(config, session.architecture);
    generator->load(checkpoint::Reader(folder, checkpoint::Opening::manifest));
  });

  // Rank i mod ranks writes sample i, whose text depends only on (seed, i).
  const train::Sampling sampling{options.temperature, options.top_k,
                                 static_cast<std::uint64_t>(options.seed), tokenizer->vocabulary()};
  std::vector<std::vector<std::string>> texts(static_cast<std::size_t>(runtime.ranks()));
  for (std::int64_t first = 0; first < options.samples; first += runtime.ranks()) {
    std::string mine;
    runtime.together([&] {
      const std::int64_t i = first + runtime.rank();
      if (i >= options.samples) return;
      const auto ids = generator->generate(prompt, options.tokens, tokenizer->end_of_document(),
                                           sampling, static_cast<std::uint32_t>(i));
      mine = options.prompt;
      tokenizer->decode_after(prompt, ids, mine);
    });
    const auto all = runtime.world().gather(mine, 0, "generated texts");
    for (std::size_t r = 0; r < all.size(); ++r) texts[r].push_back(all[r]);
  }
  if (runtime.rank() == 0) print(texts, options.samples);
  expect_output_written(runtime);
  return ExitCode::finished;
}

}  // namespace trireme::commands
