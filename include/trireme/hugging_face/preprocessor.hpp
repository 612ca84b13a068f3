#pragma once

#include <trireme/deck/config.hpp>

#include <string>

/// Preparation of images by transformers' image processor of a folder, compared with `trireme
/// tokenize --images` and the model's own normalisation.
namespace trireme::hugging_face {

struct ImagePreparation {
  std::string fit;         ///< "crop" or "stretch", for --image-fit
  std::string warning;     ///< a step of the folder's processor that no --image-fit does; "": none
  bool is_stated = false;  ///< whether a file of the folder says that it is `fit`
};

/// Reads preprocessor_config.json, or the image_processor of processor_config.json. Without these
/// files: the form of the encoder's family. UsageError if the file's normalisation of pixels is
/// another one than that of the family, because the model would then see other values.
ImagePreparation image_preparation(const std::string& folder, const deck::VisionConfig& vision);
/// The same of the contents of image_processor_name and processor_name, as files of `folder`, in
/// messages; "": no such file.
ImagePreparation image_preparation(const std::string& image_processor, const std::string& processor,
                                   const std::string& folder, const deck::VisionConfig& vision);

/// A preprocessor_config.json of transformers' image processor that prepares images as
/// `trireme tokenize --image-fit FIT`; "" for pad, which no processor of the families does.
std::string image_processor_text(const deck::VisionConfig& vision, const std::string& fit);

}  // namespace trireme::hugging_face
