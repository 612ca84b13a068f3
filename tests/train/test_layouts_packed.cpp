// Samples of packed documents: layouts against one rank, equal bits, and losses that are those of
// the documents alone.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

/// Documents of 1 to 150 tokens, or one of them all.
std::string write_documents(const TemporaryFolder& folder, std::int64_t tokens, bool one = false) {
  const std::string path = folder.file("documents.h5");
  data::TokenFileWriter writer(path, "bytes", 257);
  std::uint64_t state = 88172645463325252ull;
  const auto random = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::int64_t>(state >> 33);
  };
  while (writer.tokens() < tokens) {
    std::vector<std::int32_t> document(static_cast<std::size_t>(one ? tokens : 1 + random() % 150));
    for (std::int32_t& id : document)
      id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
    writer.append(document);
    writer.end_document(std::ssize(document));
  }
  writer.commit("test");
  return path;
}

class PackedLayouts : public Layouts {
 protected:
  Outcome run_file(const data::TokenFile& file, const Layout& layout, const char* packing,
                   grid::Communicator& world) {
    std::vector<std::string> overrides = layout.overrides();
    overrides.push_back(text("data.packing=", packing));
    const deck::Config config = small_config(12, layout.data == 3 ? 2 : 1, world.size(), overrides);
    Rig rig(config, file, world);
    Outcome outcome;
    outcome.trace = rig.run(1, 4);
    outcome.weights = weights_of(whole_arrays(*rig.worker, world));
    return outcome;
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
  for (const Layout& layout :
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
        with(2, {2, 1, 1, "1f1b", 1, true, true, none, Sharding::none, adamw, m, 3,
                 "model.window=40"}),
        shared({2, 2, 1, "gpipe", 1, true, true, none, Sharding::none, adamw, l, 2})}) {
    if (layout.tensor * layout.pipeline * layout.data * layout.context != runtime().ranks())
      continue;
    SCOPED_TRACE(layout.name());
    const Outcome found = run_packed(layout, runtime().world());
    if (runtime().rank() > 0) continue;
    Layout one;
    one.tied = layout.tied;
    one.family = layout.family;
    one.key_value_heads = layout.key_value_heads;
    if (layout.property.starts_with("model.")) one.property = layout.property;
    const auto self = grid::Communicator::self();
    const Outcome expected = run_packed(one, *self);
    expect_the_same(found, expected);
  }
}

TEST_F(PackedLayouts, SchedulesGiveTheSameBits) {
  if (runtime().ranks() != 2) return;
  const Outcome expected = run_packed({1, 2, 1, "1f1b"}, runtime().world());
  for (const char* schedule : {"gpipe", "zb-h1"}) {
    const Outcome found = run_packed({1, 2, 1, schedule}, runtime().world());
    if (runtime().rank() > 0) continue;
    EXPECT_EQ(found.trace, expected.trace) << schedule;
    EXPECT_EQ(found.weights, expected.weights) << schedule;
  }
}

/// A file of one document of 61 n + 1 tokens: its pieces are the windows.
TEST_F(PackedLayouts, OneDocumentMatchesWindowsBitForBit) {
  const TemporaryFolder folder;
  const data::TokenFile file(write_documents(folder, 61 * 90 + 1, true));
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
    const data::Windows windows(documents_, config.model.sequence, config.model.packing);
    const std::int64_t count = 41;
    const Evaluation found = rig.worker->evaluate(windows, count, bytes);
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
         rig.worker->score(data::Requests(std::move(pieces), config.model.sequence)))
      expected -= score.log_likelihood;
    EXPECT_EQ(found.tokens().count, targets);
    EXPECT_EQ(found.bytes, targets);
    EXPECT_NEAR(found.tokens().nats, expected, 1e-12 * expected) << family;
  }
}

}  // namespace
}  // namespace trireme::train
