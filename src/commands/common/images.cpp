// Compares how images became pixels and tokens: in token files, and in a checkpoint's training.
#include <trireme/commands/images.hpp>

#include <trireme/base/check.hpp>

#include <utility>
#include <vector>

namespace trireme::commands {
namespace {

constexpr const char* token_key = "image_token";

/// The strings of a form, and their names among the values of a checkpoint.
constexpr std::pair<const char*, std::string data::ImageForm::*> words_of_form[] = {
    {"image_fit", &data::ImageForm::fit},
    {"image_resampling", &data::ImageForm::resampling},
    {"image_begin", &data::ImageForm::begin},
    {"image_end", &data::ImageForm::end}};

bool differ(const std::string& now, const std::string& before) {
  return !now.empty() && !before.empty() && now != before;
}

[[noreturn]] void refuse(const std::string& path, const ImageDifference& found,
                         const std::string& others) {
  throw UsageError(text(path, ": its images ", found.verb, " ", found.now, ", but those of ",
                        others, " ", found.before, "; ", found.remedy));
}

}  // namespace

std::optional<ImageDifference> image_difference(const data::ImageForm& now,
                                                const data::ImageForm& before) {
  if (differ(now.fit, before.fit))
    return ImageDifference{"became squares with", "--image-fit " + now.fit,
                           "with --image-fit " + before.fit,
                           "tokenize with --image-fit " + before.fit};
  if (differ(now.resampling, before.resampling))
    return ImageDifference{"were resized by the method", now.resampling, "by " + before.resampling,
                           "tokenize with the version of trireme that made the others"};
  if (now.token >= 0 && before.token >= 0 && now.token != before.token)
    return ImageDifference{"are written as token", text(now.token), text("as token ", before.token),
                           "tokenize with the same tokenizer and --image-token"};
  return std::nullopt;
}

std::optional<data::ImageForm> images_of(const TrainingData& training,
                                         const data::TokenSource* validation) {
  std::vector<const data::TokenSource*> files;
  for (const auto& file : training.files) files.push_back(file.get());
  if (validation != nullptr) files.push_back(validation);
  std::optional<data::ImageForm> all;
  std::string path;
  for (const data::TokenSource* file : files) {
    const auto images = file->images();
    if (!images) continue;
    if (!all) {
      all = data::ImageForm{0, 0, images->token, 0, 0, "", "", images->begin, images->end};
      path = file->path();
    }
    if (const auto found = image_difference(*images, *all)) refuse(file->path(), *found, path);
    if (all->fit.empty()) all->fit = images->fit;
    if (all->resampling.empty()) all->resampling = images->resampling;
  }
  return all;
}

data::ImageForm images_of(const std::map<std::string, std::string>& values) {
  data::ImageForm images;
  const auto token = values.find(token_key);
  images.token = token == values.end() ? -1 : std::stoll(token->second);
  for (const auto& [key, word] : words_of_form)
    if (const auto found = values.find(key); found != values.end()) images.*word = found->second;
  return images;
}

void set_images(std::map<std::string, std::string>& values, const data::ImageForm& images) {
  values.erase(token_key);
  if (images.token >= 0) values[token_key] = std::to_string(images.token);
  for (const auto& [key, word] : words_of_form) {
    values.erase(key);
    if (!(images.*word).empty()) values[key] = images.*word;
  }
}

void expect_same_images(const data::TokenSource& file, const data::ImageForm& trained,
                        const std::string& folder) {
  const auto images = file.images();
  if (!images) return;
  if (const auto found = image_difference(*images, trained))
    refuse(file.path(), *found, "checkpoint " + folder);
}

}  // namespace trireme::commands
