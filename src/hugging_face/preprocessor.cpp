// Compares a folder's image processor with the images of token files.
#include <trireme/hugging_face/preprocessor.hpp>

#include <trireme/base/text.hpp>
#include <trireme/hugging_face/complaints.hpp>
#include <trireme/hugging_face/config_key.hpp>
#include <trireme/hugging_face/kept_files.hpp>
#include <trireme/hugging_face/strict_json.hpp>
#include <trireme/io/input_file.hpp>

#include <array>
#include <cmath>
#include <filesystem>

namespace trireme::hugging_face {
namespace {

using Colours = std::array<double, 3>;

/// The normalisations of CLIP's and of SigLIP's image processor.
constexpr Colours clip_mean{0.48145466, 0.4578275, 0.40821073};
constexpr Colours clip_deviation{0.26862954, 0.26130258, 0.27577711};
constexpr Colours half{0.5, 0.5, 0.5};
constexpr int bilinear = 2, bicubic = 3;
/// Gemma 3's image processor, whose resampling is bilinear unless the file says otherwise.
constexpr const char* gemma3_processor = "Gemma3";

/// An image processor, and the file and object that describe it.
struct Processor {
  json members;
  std::string path;
};

Processor parse_processor(const std::string& image_processor, const std::string& processor,
                          const std::string& folder) {
  for (const std::string name : {image_processor_name, processor_name}) {
    const std::string path = folder + "/" + name;
    const std::string& content = name == image_processor_name ? image_processor : processor;
    if (content.empty()) continue;
    json file = parse_strict(content, path, {32, "the file", "; correct or remove it"});
    if (name == image_processor_name) return {std::move(file), path};
    if (json part = member_of(file, "image_processor"); part.is_object())
      return {std::move(part), path};
  }
  return {};
}

bool is_true(const json& members, const char* name, bool otherwise) {
  const json value = member_of(members, name);
  return value.is_null() ? otherwise : value == true;
}

bool are_near(const json& values, const Colours& expected) {
  if (!values.is_array() || values.size() != expected.size()) return false;
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!values[i].is_number() || std::abs(values[i].get<double>() - expected[i]) > 1e-6)
      return false;
  return true;
}

/// Whether a size is a square of this side: one number, or height and width.
bool is_square(const json& size, std::int64_t side) {
  return size == side || (member_of(size, "height") == side && member_of(size, "width") == side);
}

void check_normalisation(const json& members, bool clip, Complaints& complaints) {
  const json type = member_of(members, "image_processor_type");
  const bool of_siglip =
      type.is_string() && (type.get<std::string>().starts_with("Siglip") ||
                           type.get<std::string>().starts_with(gemma3_processor));
  const auto expect = [&](const char* name, const Colours& expected, const Colours& otherwise) {
    json value = member_of(members, name);
    if (value.is_null()) value = otherwise;
    if (!are_near(value, expected))
      complaints.add(name, " = ", shortened(value.dump()), ", expected ", json(expected).dump());
  };
  expect("image_mean", clip ? clip_mean : half, of_siglip ? half : clip_mean);
  expect("image_std", clip ? clip_deviation : half, of_siglip ? half : clip_deviation);
  for (const char* name : {"do_rescale", "do_normalize"})
    if (!is_true(members, name, true))
      complaints.add(name, " = ", member_of(members, name).dump(), ", expected true");
  const json factor = member_of(members, "rescale_factor");
  if (!factor.is_null() && (!factor.is_number() || std::abs(factor.get<double>() * 255 - 1) > 1e-6))
    complaints.add("rescale_factor = ", shortened(factor.dump()), ", expected 1/255");
}

}  // namespace

ImagePreparation image_preparation(const std::string& folder, const deck::VisionConfig& vision) {
  const auto content = [&](const char* name) {
    constexpr std::int64_t most = 1 << 20;
    const std::string path = folder + "/" + name;
    std::error_code ignored;
    return std::filesystem::exists(path, ignored) ? io::read_text_file(path, most) : "";
  };
  return image_preparation(content(image_processor_name), content(processor_name), folder, vision);
}

ImagePreparation image_preparation(const std::string& image_processor, const std::string& processor,
                                   const std::string& folder, const deck::VisionConfig& vision) {
  const bool clip = vision.family == VisionFamily::clip;
  ImagePreparation out{clip ? "crop" : "stretch", ""};
  const auto [members, path] = parse_processor(image_processor, processor, folder);
  if (path.empty()) return out;
  Complaints complaints;
  check_normalisation(members, clip, complaints);
  complaints.raise(
      text(path, ": normalises pixels in another way than Trireme does for family = \"",
           name_of(vision.family), "\" of [vision]"),
      "such a model cannot be imported; correct or remove the file only if the weights "
      "were trained with the expected values");
  const std::int64_t side = vision.image;
  const json size = member_of(members, "size"), crop = member_of(members, "crop_size");
  const json type = member_of(members, "image_processor_type");
  const bool of_gemma3 = type.is_string() && type.get<std::string>().starts_with(gemma3_processor);
  json resample = member_of(members, "resample");
  if (resample.is_null()) resample = of_gemma3 ? bilinear : bicubic;
  const bool resized = is_true(members, "do_resize", true) && !is_true(members, "do_pad", false) &&
                       !is_true(members, "do_pan_and_scan", false) && resample == bicubic;
  const bool cropped = is_true(members, "do_center_crop", clip);
  const bool crops = cropped && is_square(crop, side) &&
                     (size == side || member_of(size, "shortest_edge") == side);
  const bool stretches = is_square(size, side) && (!cropped || is_square(crop, side));
  if (resized && (crops || stretches)) {
    out.fit = crops ? "crop" : "stretch";
    out.is_stated = true;
    return out;
  }
  json steps = json::object();
  for (const char* name :
       {"do_resize", "size", "do_center_crop", "crop_size", "do_pad", "do_pan_and_scan"})
    if (const json value = member_of(members, name); !value.is_null()) steps[name] = value;
  steps["resample"] = resample;
  out.warning =
      text(path, " prepares images with ", steps.dump(), ", but `trireme tokenize --images ", side,
           "` does not; to train and evaluate with the same pixels, give images of ", side, " × ",
           side, " pixels that are prepared so already, which it keeps");
  return out;
}

std::string image_processor_text(const deck::VisionConfig& vision, const std::string& fit) {
  if (fit != "crop" && fit != "stretch") return "";
  const bool clip = vision.family == VisionFamily::clip;
  const bool crops = fit == "crop";
  const std::int64_t side = vision.image;
  const nlohmann::ordered_json square{{"height", side}, {"width", side}};
  nlohmann::ordered_json out{
      // SigLIP's processor cannot crop; CLIP's can do both.
      {"image_processor_type", clip || crops ? "CLIPImageProcessor" : "SiglipImageProcessor"},
      {"do_convert_rgb", true},
      {"do_resize", true},
      {"size", crops ? nlohmann::ordered_json{{"shortest_edge", side}} : square},
      {"resample", bicubic}};
  if (clip || crops) {
    out["do_center_crop"] = crops;
    out["crop_size"] = square;
  }
  out["do_rescale"] = true;
  out["rescale_factor"] = 1.0 / 255;
  out["do_normalize"] = true;
  out["image_mean"] = clip ? clip_mean : half;
  out["image_std"] = clip ? clip_deviation : half;
  return out.dump(2) + "\n";
}

}  // namespace trireme::hugging_face
