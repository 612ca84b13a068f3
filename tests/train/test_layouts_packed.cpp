// Samples of packed documents: layouts against one rank, equal bits, and losses that are those of
// the documents alone.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

/// Documents of 1 to 150 tokens, or one of them all.
std::string write_documents(const TemporaryFolder& folder, std::int64_t tokens, bool one = false) {
  return write_random_tokens(
      folder.file("documents.h5"), [&](data::TokenFileWriter& writer, const auto& random) {
        while (writer.tokens() < tokens) {
          std::vector<std::int32_t> document(
              static_cast<std::size_t>(one ? tokens : 1 + random() % 150));
          for (std::int32_t& id : document)
            id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
          writer.append(document);
          writer.end_document(std::ssize(document));
        }
      });
}

class PackedLayouts : public Layouts {
 protected:
  static Outcome run_file(const data::TokenFile& file, Layout layout, const char* packing,
                          grid::Communicator& world) {
    layout.more.push_back(text("data.packing=", packing));
    return run_on(file, layout, world, 4);
  }
  Outcome run_packed(const Layout& layout, grid::Communicator& world) {
    return run_file(documents_, layout, "documents", world);
  }

  TemporaryFolder documents_folder_;
  data::TokenFile documents_{write_documents(documents_folder_, 20000)};
};

TEST_F(PackedLayouts, MatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const Family g = Family::gpt, l = Family::llama, m = Family::mistral;
  const auto with = [](int context, Layout layout) {
    layout.context = context;
    return layout;
  };
  const auto shared = [](Layout layout) {
    layout.property = "parallel.vocabulary=pipeline";
    return layout;
  };
  expect_the_answer_of_one_rank(
      {Layout{2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, g},
       Layout{1, 2, 1, "zb-h1", 1, false, false, selective, Sharding::none, adamw, l, 2},
       Layout{1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights, adamw, g}, with(2, {}),
       with(2, {1, 1, 1, "1f1b", 1, false, true, full, Sharding::none, adamw, m, 3,
                "model.window=17"}),
       shared({1, 2, 1, "1f1b", 1, false, true, none, Sharding::none, adamw, g}),
       Layout{1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, l, 3},
       Layout{1, 3, 1, "zb-v", 2, false, true, none, Sharding::none, adamw, g},
       with(3, {1, 1, 1, "1f1b", 1, false, true, none, Sharding::optimizer, adamw, l, 2}),
       Layout{2, 2, 1, "interleaved", 2, true, false, none, Sharding::none, adamw, g},
       with(4, {1, 1, 1, "1f1b", 1, false, false, none, Sharding::none, adamw, g}),
       with(2, {1, 2, 1, "gpipe", 1, false, true, selective, Sharding::none, adamw, l, 3}),
       with(2,
            {2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, m, 3, "model.window=25"}),
       shared({2, 2, 1, "gpipe", 1, true, true, none, Sharding::none, adamw, l, 2})},
      [&](const Layout& layout, grid::Communicator& world) { return run_packed(layout, world); });
}

TEST_F(PackedLayouts, SchedulesGiveTheSameBits) {
  expect_the_same_bits_of_schedules(
      [&](const Layout& layout, grid::Communicator& world) { return run_packed(layout, world); });
}

/// A file of one document of n sequences and 1 token: its pieces are the windows.
TEST_F(PackedLayouts, OneDocumentMatchesWindowsBitForBit) {
  const TemporaryFolder folder;
  const data::TokenFile file(write_documents(folder, layout_sequence * 90 + 1, true));
  for (const Family family : {Family::gpt, Family::llama}) {
    Layout layout;
    layout.family = family;
    layout.tensor = runtime().ranks() == 2 ? 2 : 1;
    layout.context = runtime().ranks() == 3 ? 3 : 1;
    layout.pipeline = runtime().ranks() == 4 ? 4 : 1;
    const Outcome windows = run_file(file, layout, "none", runtime().world());
    const Outcome packed = run_file(file, layout, "documents", runtime().world());
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(packed.trace, windows.trace);
    EXPECT_EQ(packed.weights, windows.weights);
  }
}

/// Σ of the cross entropies of packed samples is that of all documents' pieces, each alone.
TEST_F(PackedLayouts, EvaluationsSumOverSingleDocuments) {
  const std::vector<std::int32_t> bytes(257, 1);
  for (const char* family : {"gpt", "llama"}) {
    const deck::Config config = small_config(
        12, 2, runtime().ranks(),
        {"data.packing=documents", text("model.family=", family), "model.sequence=61"});
    Rig rig(config, documents_);
    const data::Windows windows(documents_, data::SampleForm(config.model));
    const std::int64_t count = 41;
    const Evaluation found = rig.engine->evaluate(windows, count, bytes);
    std::vector<data::Request> pieces;
    std::int64_t targets = 0;
    bool several = false;
    for (std::int64_t s = 0; s < count; ++s) {
      several = several || windows.packed()->pieces(s) > 2;
      for (std::int64_t i = 0; i < windows.packed()->pieces(s); ++i) {
        const auto [first, length] = windows.packed()->piece(s, i);
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(length + 1));
        documents_.read(first, tokens);
        pieces.push_back({tokens, 1});
        targets += length;
      }
    }
    EXPECT_TRUE(several);
    double expected = 0;
    for (const Score& score :
         rig.engine->score(data::Requests(std::move(pieces), config.model.sequence)))
      expected -= score.log_likelihood;
    EXPECT_EQ(found.tokens().count, targets);
    EXPECT_EQ(found.bytes, targets);
    EXPECT_NEAR(found.tokens().nats, expected, 1e-12 * expected) << family;
  }
}

}  // namespace
}  // namespace trireme::train
