#pragma once

#include <trireme/commands/resolve.hpp>
#include <trireme/data/token_source.hpp>

#include <map>
#include <optional>
#include <string>

/// How images became pixels and tokens, as token files and checkpoints state it: the members
/// `token`, `fit`, `resampling`, `begin` and `end` of data::ImageForm. The others are 0 in forms of
/// several files and of checkpoints.
namespace trireme::commands {

/// A difference between two forms of images, as parts of a message: "images VERB NOW, but others
/// BEFORE; REMEDY".
struct ImageDifference {
  std::string verb, now, before, remedy;
};

/// The first difference between values that both forms state; a token of −1 and "" state nothing.
std::optional<ImageDifference> image_difference(const data::ImageForm& now,
                                                const data::ImageForm& before);

/// The form of the images of token files; std::nullopt if no file has images. UsageError if two
/// files differ. The texts around images are those of the first file with images.
std::optional<data::ImageForm> images_of(const TrainingData& training,
                                         const data::TokenSource* validation = nullptr);

/// The form in the values of a checkpoint's run; a token of −1 and "" for what they do not state.
data::ImageForm images_of(const std::map<std::string, std::string>& values);
/// Replaces the form in the values.
void set_images(std::map<std::string, std::string>& values, const data::ImageForm& images);

/// UsageError if a token file has images that became pixels or tokens in another way than those of
/// `trained`, the form of the checkpoint in `folder`.
void expect_same_images(const data::TokenSource& file, const data::ImageForm& trained,
                        const std::string& folder);

}  // namespace trireme::commands
