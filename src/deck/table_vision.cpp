// The keys of [vision].
#include <trireme/deck/entry.hpp>

#include <cstdint>

namespace trireme::deck {

using Int = std::int64_t;

namespace {
constexpr Int vision_size_limit = 1 << 20;  // keeps products of sizes far from 2^63
}  // namespace

void vision_keys(std::vector<Entry>& out) {
  const auto key = [&out](const char* name, KeyType type, auto VisionConfig::*member,
                          const char* help, Effect effect = Effect::model) -> Entry& {
    return out.emplace_back("vision", name, type, help, effect)
        .in(&Config::model, &ModelConfig::vision, member);
  };
  const auto size = [&](const char* name, Int VisionConfig::*member, const char* help,
                        Int most = vision_size_limit) -> Entry& {
    return key(name, KeyType::integer, member, help).at_least(0).at_most(most);
  };
  key("family", KeyType::choice, &VisionConfig::family,
      "published encoder: clip has a class token, a norm before its layers and the quick form of "
      "GELU; siglip has none of them, a bias of patches and the form by tanh")
      .words(words_of_keys<VisionFamily>())
      .otherwise(std::string("clip"));
  size("layers", &VisionConfig::layers,
       "layers of the encoder whose results the model reads; 0 means no images", 65536)
      .otherwise(Int{0});
  size("hidden", &VisionConfig::hidden, "width of the encoder's residual stream").otherwise(Int{0});
  size("heads", &VisionConfig::heads, "attention heads of the encoder").otherwise(Int{0});
  size("feed_forward", &VisionConfig::feed_forward, "inner width of its feed-forward layers",
       4 * vision_size_limit)
      .derive([](Config& c) { c.model.vision.feed_forward = 4 * c.model.vision.hidden; },
              "4 · vision.hidden");
  size("image", &VisionConfig::image, "side of an image; token files state the same", 16384)
      .unit("pixels")
      .otherwise(Int{0});
  size("patch", &VisionConfig::patch, "side of a patch, a divisor of image", 16384)
      .unit("pixels")
      .otherwise(Int{0});
  key("images", KeyType::integer, &VisionConfig::images,
      "most images of a sample; memory and time are those of this number", Effect::numbers)
      .at_least(1)
      .at_most(4096)
      .otherwise(Int{1});
}

}  // namespace trireme::deck
