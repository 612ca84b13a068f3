// Documents with images: layouts against one rank, and equal bits of schedules.
#include "train/layouts.hpp"

namespace trireme::train {
namespace {

constexpr std::int32_t image_token = 5;
/// Images of 6 × 6 pixels have 4 tokens.
constexpr const char* clip_of_two =
    "vision.layers=2 vision.hidden=20 vision.heads=4 vision.feed_forward=27 vision.image=6 "
    "vision.patch=3 vision.images=2";
constexpr const char* siglip_of_one =
    "vision.family=siglip vision.layers=3 vision.hidden=28 vision.heads=7 vision.image=6 "
    "vision.patch=3 vision.images=3";

/// Each square of 3 × 3 of an image's 6 × 6 patches is one of its 4 tokens. The windows are
/// shorter and longer than an image.
constexpr const char* gemma3_of_two =
    "vision.family=gemma3 vision.layers=3 vision.hidden=20 vision.heads=4 vision.feed_forward=27 "
    "vision.image=6 vision.patch=1 vision.pool=3 vision.images=2 model.window=3 "
    "model.full_attention_every=2";
constexpr const char* gemma3_of_three =
    "vision.family=gemma3 vision.layers=2 vision.hidden=28 vision.heads=7 vision.image=6 "
    "vision.patch=1 vision.pool=3 vision.images=3 model.window=9 model.full_attention_every=3";

/// Documents of up to 26 tokens with up to 2 images.
std::string write_documents(const TemporaryFolder& folder) {
  const std::string path = folder.file("images.h5");
  data::TokenFileWriter writer(path, "bytes", 257, {}, data::ImageForm{6, 0, image_token, 4, 0});
  std::uint64_t state = 88172645463325252ull;
  const auto random = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<std::int64_t>(state >> 33);
  };
  const auto append = [&](std::int64_t most) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(random() % most + 1));
    for (std::int32_t& id : ids)
      id = static_cast<std::int32_t>('a' + random() % 5 * (random() % 5));
    writer.append(ids);
  };
  for (int i = 0; i < 200; ++i) {
    append(6);
    for (std::int64_t image = random() % 3; image > 0; --image) {
      writer.append(std::vector<std::int32_t>(4, image_token), false);
      std::vector<std::uint8_t> pixels(6 * 6 * 3);
      for (std::uint8_t& value : pixels) value = static_cast<std::uint8_t>(random());
      writer.append_image(pixels);
      append(6);
    }
    writer.end_document(10);
  }
  writer.commit("test");
  return path;
}

class ImageLayouts : public Layouts {
 protected:
  Outcome run_images(Layout layout, grid::Communicator& world) {
    layout.family =
        layout.property.starts_with("vision.family=gemma3") ? Family::gemma3 : Family::llama;
    if (layout.property.empty()) layout.property = clip_of_two;
    return run_on(images_, layout, world, layout.steps);
  }

  TemporaryFolder images_folder_;
  data::TokenFile images_{write_documents(images_folder_)};
};

TEST_F(ImageLayouts, MatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const auto of = [](const char* property, Layout layout) {
    layout.property = property;
    return layout;
  };
  const auto with_experts = [](Layout layout) {  // which padding does not choose
    layout.trained = {"experts.number=5", "experts.feed_forward=24"};
    return layout;
  };
  const auto with_frozen = [](const char* arrays, Layout layout) {
    layout.trained = {text("optimizer.frozen=", arrays)};
    return layout;
  };
  const auto with_adapters = [](const char* kind, const char* parts, Layout layout) {
    layout.trained = {text("adapter.kind=", kind), "adapter.rank=3", "adapter.dropout=0.2",
                      text("adapter.parts=", parts),
                      "adapter.targets=attention.query,attention.key_value,attention.output,"
                      "feed_forward.up,feed_forward.down"};
    return layout;
  };
  expect_the_answer_of_one_rank(
      {of(clip_of_two, {2, 1, 1, "1f1b", 1, true, true}),
       of(clip_of_two, {2, 1, 1, "1f1b", 1, false, true, selective}),
       of(siglip_of_one, {1, 2, 1, "zb-h1", 1, false, false, selective}),
       of(clip_of_two, {1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights}),
       of(siglip_of_one, {3, 1, 1, "1f1b", 1, true, false}),
       of(clip_of_two, {3, 1, 1, "1f1b", 1, false, false, full}),
       of(clip_of_two, {1, 3, 1, "zb-v", 2, false, true}),
       of(clip_of_two, {1, 1, 3, "1f1b", 1, false, true, none, Sharding::optimizer, lamb}),
       of(clip_of_two, {2, 2, 1, "interleaved", 2, true, false, full}),
       of(clip_of_two, {2, 2, 1, "interleaved", 4, true, true}),
       of(siglip_of_one, {1, 4, 1, "zb-v", 2, false, true, full}),
       of(siglip_of_one, {4, 1, 1, "1f1b", 1, true, true, none, Sharding::none, muon}),
       of(siglip_of_one, {1, 2, 2, "1f1b", 1, false, false, none, Sharding::gradients}),
       of(clip_of_two, {2, 3, 1, "zb-v", 2, true, false, selective}),
       of(clip_of_two, {3, 2, 1, "interleaved", 2, false, true, full}),
       of(siglip_of_one, {2, 3, 2, "1f1b", 1, true, true, none, Sharding::optimizer}),
       with_experts({2, 1, 1, "1f1b", 1, true, false}),
       with_experts({1, 3, 1, "zb-h1", 1, false, true}),
       with_adapters("lora", "vision", {2, 1, 1, "1f1b", 1, true, true}),
       with_adapters("dora", "vision,layers", {1, 2, 1, "zb-h1", 1, false, false}),
       with_adapters("dora", "vision", {3, 1, 1, "1f1b", 1, false, true, full}),
       with_adapters("lora", "vision,layers",
                     {1, 1, 3, "1f1b", 1, false, true, none, Sharding::weights}),
       with_adapters("lora", "vision,layers", {2, 2, 1, "zb-v", 2, true, true}),
       with_frozen("vision", {1, 2, 1, "1f1b", 1, false, true}),
       with_frozen("vision", {2, 1, 1, "1f1b", 1, true, false, full}),
       with_frozen("vision,embedding,layers,final_norm,output",
                   {1, 3, 1, "zb-h1", 1, false, false}),
       with_frozen("vision,embedding", {2, 2, 1, "zb-h1", 1, true, false, selective})},
      [&](const Layout& layout, grid::Communicator& world) { return run_images(layout, world); });
}

/// All ranks of the tensor axis have all rows of the projector.
TEST_F(ImageLayouts, ImagesWhoseTokensSeeOneAnotherMatchOneRank) {
  using enum OptimizerKind;
  using enum Recompute;
  const auto of = [](const char* property, Layout layout) {
    layout.property = property;
    return layout;
  };
  const auto with_frozen = [](const char* arrays, Layout layout) {
    layout.trained = {text("optimizer.frozen=", arrays)};
    layout.property = gemma3_of_two;
    return layout;
  };
  expect_the_answer_of_one_rank(
      {of(gemma3_of_two, {2, 1, 1, "1f1b", 1, true, true}),
       of(gemma3_of_three, {2, 1, 1, "1f1b", 1, false, true, selective}),
       of(gemma3_of_two, {1, 2, 1, "zb-h1", 1, false, false, full}),
       of(gemma3_of_three, {1, 1, 2, "1f1b", 1, false, true, full, Sharding::weights}),
       of(gemma3_of_two, {3, 1, 1, "1f1b", 1, true, true, selective}),
       of(gemma3_of_three, {1, 3, 1, "zb-v", 2, false, true}),
       of(gemma3_of_two, {1, 1, 3, "1f1b", 1, false, true, none, Sharding::gradients, lamb}),
       of(gemma3_of_two, {2, 2, 1, "interleaved", 2, true, false, full}),
       of(gemma3_of_three, {4, 1, 1, "1f1b", 1, true, true, none, Sharding::none, muon}),
       of(gemma3_of_three, {2, 1, 2, "1f1b", 1, true, true, selective, Sharding::optimizer}),
       of(gemma3_of_two, {1, 4, 1, "zb-h1", 1, false, true}),
       of(gemma3_of_two, {2, 3, 1, "zb-v", 2, true, false, selective}),
       with_frozen("vision", {1, 2, 1, "1f1b", 1, false, true}),
       with_frozen("vision", {2, 1, 1, "1f1b", 1, true, true, full}),
       with_frozen("vision,embedding,layers,final_norm,output",
                   {1, 3, 1, "zb-h1", 1, false, false})},
      [&](const Layout& layout, grid::Communicator& world) { return run_images(layout, world); });
}

TEST_F(ImageLayouts, SchedulesGiveTheSameBits) {
  expect_the_same_bits_of_schedules(
      [&](const Layout& layout, grid::Communicator& world) { return run_images(layout, world); });
  expect_the_same_bits_of_schedules([&](Layout layout, grid::Communicator& world) {
    layout.property = gemma3_of_two;
    return run_images(layout, world);
  });
}

}  // namespace
}  // namespace trireme::train
