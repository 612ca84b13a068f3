// Samples of one document with its images.
#include <trireme/data/image_documents.hpp>

#include <trireme/base/check.hpp>
#include <trireme/base/text.hpp>

#include <algorithm>
#include <array>

namespace trireme::data {

std::int64_t place_image_rows(const deck::VisionConfig& vision, std::int64_t token,
                              std::span<const std::int32_t> inputs, std::span<std::int32_t> rows) {
  const std::int64_t tokens = vision.tokens(), projected = vision.projected_rows();
  const std::int64_t before = projected - tokens;
  std::int64_t found = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != token) continue;
    const std::int64_t image = found / tokens;
    rows[i] = static_cast<std::int32_t>(image * projected + before + found % tokens);
    ++found;
  }
  return found;
}

void place_key_ends(std::span<const std::int32_t> rows, std::span<std::int32_t> ends) {
  for (std::size_t i = rows.size(); i-- > 0;) {
    const bool continues = rows[i] >= 0 && i + 1 < rows.size() && rows[i + 1] >= 0;
    ends[i] = continues ? ends[i + 1] : static_cast<std::int32_t>(i + 1);
  }
}

ImageDocuments::ImageDocuments(const TokenSource& file, const deck::VisionConfig& vision,
                               std::int64_t sequence)
    : file_(file), vision_(vision), sequence_(sequence), form_(file.images()) {
  const std::string& path = file.path();
  if (form_) {
    check_usage(form_->size == vision.image, path, ": its images have sides of ", form_->size,
                " pixels, but [vision] image = ", vision.image, "; choose image = ", form_->size,
                ", or tokenize with --images ", vision.image);
    check_usage(form_->tokens_per_image == vision.tokens(), path, ": an image has ",
                form_->tokens_per_image, " tokens, but [vision] image = ", vision.image,
                vision.pools() ? ", patch = " : " and patch = ", vision.patch,
                vision.pools() ? text(" and pool = ", vision.pool) : "", " give ", vision.tokens(),
                vision.pools() ? " squares of patches" : " patches",
                "; tokenize with --image-tokens ", vision.tokens());
    check_usage(form_->most_per_document <= vision.images, path, " has samples with ",
                form_->most_per_document, " images, but [vision] images = ", vision.images,
                "; choose images = ", form_->most_per_document);
    check(file.has_mask(), path, ": has images, but all tokens count in the loss");
  }
  std::vector<std::int64_t> offsets(numbers_at_a_time);
  std::int64_t longest = 0;
  for (std::int64_t first = 0; first < file.documents();) {
    const std::int64_t count =
        std::min<std::int64_t>(std::ssize(offsets) - 1, file.documents() - first);
    const auto some = std::span(offsets).first(static_cast<std::size_t>(count) + 1);
    file.read_document_offsets(first, some);
    for (std::size_t i = 0; i + 1 < some.size(); ++i)
      longest = std::max(longest, some[i + 1] - some[i]);
    first += count;
  }
  check_usage(longest <= sequence + 1, path, ": its longest document has ", longest,
              " tokens, but a sample of [model] sequence = ", sequence, " has room for ",
              sequence + 1, "; choose sequence = ", longest - 1, ", or shorten documents");
}

auto ImageDocuments::tokens_of(std::int64_t sample) const -> Range {
  check(sample >= 0 && sample < samples(), file_.path(), ": sample ", sample, " of ", samples());
  std::array<std::int64_t, 2> offsets;
  file_.read_document_offsets(sample, offsets);
  return {offsets[0], offsets[1] - offsets[0]};
}

auto ImageDocuments::images_of(std::int64_t sample) const -> Range {
  if (!form_) return {};
  std::array<std::int64_t, 2> offsets;
  file_.read_document_images(sample, offsets);
  return {offsets[0], offsets[1] - offsets[0]};
}

double ImageDocuments::padding() const {
  const auto room = static_cast<double>(samples() * sequence_);
  return 1 - static_cast<double>(file_.tokens() - samples()) / room;
}

std::string ImageDocuments::description() const {
  return text(with_commas(samples()), " documents with ", with_commas(form_ ? form_->images : 0),
              " images, ", fixed(100 * padding(), 1), " % padding");
}

std::int64_t ImageDocuments::tokens(std::int64_t sample) const {
  return std::max<std::int64_t>(0, tokens_of(sample).count - 1);
}

std::int64_t ImageDocuments::counted(std::int64_t sample) const {
  const auto [first, count] = tokens_of(sample);
  return count > 1 ? file_.counted(first + 1, count - 1) : 0;
}

void ImageDocuments::read(std::int64_t sample, const Fields& fields) const {
  const auto [first, count] = tokens_of(sample);
  std::ranges::fill(fields.inputs, 0);
  std::ranges::fill(fields.targets, uncounted);
  std::ranges::fill(fields.rows, -1);
  std::ranges::fill(fields.pixels, 0);
  if (count < 2) return;
  const auto n = static_cast<std::size_t>(count - 1);
  check(n <= fields.inputs.size(), file_.path(), ": document ", sample, " has ", count, " tokens");
  const auto inputs = fields.inputs.first(n), targets = fields.targets.first(n);
  file_.read(first, inputs);
  file_.read(first + 1, targets);
  file_.mask(first + 1, targets);
  const Range images = images_of(sample);
  check(images.count <= vision_.images, file_.path(), ": document ", sample, " has ", images.count,
        " images");
  if (!fields.rows.empty()) read_rows(sample, inputs, images.count, fields.rows);
  if (images.count == 0 || fields.pixels.empty()) return;
  const auto bytes = static_cast<std::size_t>(images.count * vision_.pixel_bytes());
  check(bytes <= fields.pixels.size() * 4, file_.path(), ": room for ", fields.pixels.size() * 4,
        " bytes of ", images.count, " images");
  file_.read_images(images.first, {reinterpret_cast<std::uint8_t*>(fields.pixels.data()), bytes});
}

void ImageDocuments::read_rows(std::int64_t sample, std::span<const std::int32_t> inputs,
                               std::int64_t images, std::span<std::int32_t> rows) const {
  const std::int64_t tokens = vision_.tokens();
  const std::int64_t found = form_ ? place_image_rows(vision_, form_->token, inputs, rows) : 0;
  check(found == images * tokens, file_.path(), ": document ", sample, " has ", found,
        " image tokens, expected ", tokens, " for each of ", images, " images");
}

}  // namespace trireme::data
