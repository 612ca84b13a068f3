// `trireme inspect`: shows and verifies checkpoints and token files, compares checkpoints, and
// decodes token files.
#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/base/utf8.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/checkpoint/verify.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/commands/options.hpp>
#include <trireme/data/megatron_file.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/tokenizer.hpp>
#include <trireme/io/atomic_file.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <sstream>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct InspectOptions {
  std::vector<std::string> paths;
  bool verify = false;
  bool diff = false;
  bool decode = false;
  std::string tokenizer;  ///< path; "": the path that the token file stores
  std::string json;       ///< file, or "-" for standard output
};

/// If `wanted`, suppresses output during the object's lifetime.
class Silence {
 public:
  explicit Silence(bool wanted) { log::set_speaking(spoke_ && !wanted); }
  ~Silence() { log::set_speaking(spoke_); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  bool spoke_ = log::speaking();
};

/// Prints one line, without the control characters that names in files may contain.
template <class... Parts>
void show(const Parts&... parts) {
  say(printable(text(parts...)));
}

/// Writes all bytes. Returns false if the reader has closed the pipe.
bool write_to_stdout(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto put = ::write(STDOUT_FILENO, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EPIPE) return false;
    check(put >= 0, "cannot write to standard output: ", std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

/// The tokenizer of a token file, from the path `elsewhere` or, if it is "", from the path that the
/// file stores. A path that does not exist is also searched in the file's folder. UsageError if the
/// tokenizer is not found, cannot be used or does not match the file.
std::unique_ptr<data::Tokenizer> tokenizer_of(const data::TokenSource& file,
                                              const std::string& elsewhere) {
  data::TokenizerSource source = file.tokenizer_source();
  if (!elsewhere.empty()) source.path = elsewhere;
  check_usage(!source.path.empty(), file.path(), " does not name its tokenizer; give it with ",
              "--tokenizer PATH");
  const auto folder = fs::path(file.path()).parent_path();
  for (const auto& place : {folder / source.path, folder / fs::path(source.path).filename()})
    if (source.path != "bytes" && !fs::exists(source.path) && fs::exists(place))
      source.path = place.string();
  check_usage(source.path == "bytes" || fs::exists(source.path), file.path(),
              " was made with the tokenizer ", file.tokenizer(), ", which is no longer in ",
              source.path, "; give its path with --tokenizer PATH");
  std::unique_ptr<data::Tokenizer> tokenizer;
  try {
    tokenizer = data::make_tokenizer(source);
  } catch (const UsageError& error) {  // the file may name a token that does not exist
    throw UsageError(text(file.path(), ": its tokenizer cannot be used: ", error.what()));
  }
  check_usage(file.tokenizer().empty() || tokenizer->name() == file.tokenizer(), file.path(),
              " was made with the tokenizer ", file.tokenizer(), ", but ", source.path, " is ",
              tokenizer->name(), "; give the right tokenizer's path with --tokenizer PATH");
  return tokenizer;
}

/// Ids without all but the first of the copies of each image's token.
std::vector<std::int32_t> with_one_token_per_image(std::span<const std::int32_t> ids,
                                                   const std::optional<data::ImageForm>& images) {
  std::vector<std::int32_t> out;
  std::int64_t copies = 0;
  for (const std::int32_t id : ids)
    if (!images || id != images->token || copies++ % images->tokens_per_image == 0)
      out.push_back(id);
  return out;
}

/// Writes one line of JSON per document: the parts of the document whose tokens count in the loss,
/// and the other parts. The text has the name of the image token once per image.
void decode_masked(const data::TokenSource& file, const data::Tokenizer& tokenizer) {
  std::array<std::int64_t, 2> place{};
  for (std::int64_t document = 0; document < file.documents(); ++document) {
    file.read_document_offsets(document, place);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(place[1] - place[0]));
    file.read(place[0], ids);
    std::vector<std::int32_t> mask = ids;
    file.mask(place[0], mask);
    auto parts = nlohmann::ordered_json::array();
    for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
      const bool counted = mask[begin] != data::uncounted;
      while (end < ids.size() && (mask[end] != data::uncounted) == counted) ++end;
      std::string words;
      const std::span<const std::int32_t> all(ids);
      tokenizer.decode_after(
          all.first(begin),
          with_one_token_per_image(all.subspan(begin, end - begin), file.images()), words);
      parts.push_back({{"counted", counted}, {"tokens", end - begin}, {"text", words}});
    }
    const std::string line =
        parts.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    if (!write_to_stdout(line)) return;
  }
}

/// Writes the text of all documents to standard output; for a file with a mask, see
/// decode_masked().
void decode(const std::string& path, const std::string& elsewhere) {
  ::signal(SIGPIPE, SIG_IGN);
  const auto file = data::open_tokens(path);
  const auto tokenizer = tokenizer_of(*file, elsewhere);
  file->verify_bytes();  // before any text is written to a pipe
  if (file->has_mask()) return decode_masked(*file, *tokenizer);
  const auto decoder = tokenizer->decoder();
  std::vector<std::int32_t> ids(1 << 16);
  std::string content;
  for (std::int64_t at = 0; at < file->tokens(); at += std::ssize(ids)) {
    const auto part = std::span(ids).first(
        static_cast<std::size_t>(std::min(std::ssize(ids), file->tokens() - at)));
    file->read(at, part);
    content.clear();
    decoder->feed(part, content);
    if (!write_to_stdout(content)) return;
  }
  content.clear();
  decoder->finish(content);
  write_to_stdout(content);
}

ordered_json inspect_megatron(const data::MegatronFile& file, bool verify) {
  show("file        ", file.path(), " and .bin, ", human_bytes(file.tokens() * file.token_bytes()));
  show("format      Megatron-LM token file, ids of ", file.token_bytes(), " bytes");
  show("tokens      ", with_commas(file.tokens()));
  show("sequences   ", with_commas(file.sequences()));
  show("documents   ", with_commas(file.documents()));
  ordered_json out{{"kind", "Megatron-LM token file"},
                   {"path", file.path()},
                   {"token_bytes", file.token_bytes()},
                   {"tokens", file.tokens()},
                   {"sequences", file.sequences()},
                   {"documents", file.documents()},
                   {"verified", verify}};
  if (!verify) return out;
  file.verify();
  show("verified    sequences and documents are in order (the format has no checksums)");
  return out;
}

std::string fit_text(const data::ImageForm& images) {
  if (images.fit.empty()) return "";
  return text(", with --image-fit ", images.fit, " and ", images.resampling);
}

/// The form of the file's images; null without images.
ordered_json images_json(const data::TokenFile& file) {
  const auto images = file.images();
  if (!images) return nullptr;
  return {{"count", images->images},
          {"distinct", file.header().stored_images},
          {"size", images->size},
          {"token", images->token},
          {"tokens_per_image", images->tokens_per_image},
          {"most_per_document", images->most_per_document},
          {"fit", images->fit},
          {"resampling", images->resampling},
          {"begin", images->begin},
          {"end", images->end}};
}

ordered_json inspect_tokens(const std::string& path, bool verify) {
  const auto opened = data::open_tokens(path);
  if (const auto* megatron = dynamic_cast<const data::MegatronFile*>(opened.get()))
    return inspect_megatron(*megatron, verify);
  const auto& file = dynamic_cast<const data::TokenFile&>(*opened);
  const auto& header = file.header();
  std::istringstream sources(file.sources());
  std::vector<std::string> names;
  for (std::string name; std::getline(sources, name);) names.push_back(name);
  show("file        ", path, ", ", human_bytes(header.file_bytes));
  show("format      token file, version ", header.version);
  show("tokenizer   ", file.tokenizer());
  if (const auto source = file.tokenizer_source(); source.path != "bytes")
    show("            ", source.path,
         source.end_of_document.empty() ? ""
                                        : text(", documents end with ", source.end_of_document));
  show("vocabulary  ", with_commas(file.vocabulary()), " ids of ", header.token_bytes, " bytes");
  show("tokens      ", with_commas(file.tokens()));
  if (file.has_mask())
    show("counted     ", with_commas(header.counted), " tokens count in the loss");
  show("documents   ", with_commas(file.documents()));
  if (const auto images = file.images())
    show("images      ", with_commas(images->images),
         header.stored_images < images->images
             ? text(" (", with_commas(header.stored_images), " distinct)")
             : "",
         " of ", images->size, " x ", images->size, " pixels, at most ", images->most_per_document,
         " in a document, each for ", images->tokens_per_image, " tokens of id ", images->token,
         fit_text(*images));
  show("text        ", with_commas(file.text_bytes()), " bytes");
  for (std::size_t i = 0; i < names.size(); ++i)
    show(i == 0 ? "sources     " : "            ", names[i]);
  show("checksum    ", header.tokens_digest.hex(), " (XXH3-128 of the tokens)");
  const auto source = file.tokenizer_source();
  ordered_json out{{"kind", "token file"},
                   {"path", path},
                   {"bytes", header.file_bytes},
                   {"version", header.version},
                   {"tokenizer", file.tokenizer()},
                   {"tokenizer_path", source.path},
                   {"end_of_document", source.end_of_document},
                   {"vocabulary", file.vocabulary()},
                   {"token_bytes", header.token_bytes},
                   {"tokens", file.tokens()},
                   {"counted", file.has_mask() ? header.counted : file.tokens()},
                   {"documents", file.documents()},
                   {"text_bytes", file.text_bytes()},
                   {"sources", names},
                   {"images", images_json(file)},
                   {"checksum", header.tokens_digest.hex()},
                   {"verified", verify}};
  if (!verify) return out;
  file.verify();
  show("verified    all checksums match");
  return out;
}

/// Prints the arrays and adds them to `out`.
void say_arrays(const checkpoint::Manifest& manifest, ordered_json& out) {
  std::size_t width = 0;
  for (const auto& array : manifest.arrays) width = std::max(width, array.name.size());
  std::vector<std::int64_t> slices(manifest.arrays.size());
  for (const auto& shard : manifest.shards)
    for (const auto& slice : shard.slices) ++slices[slice.array];
  show("arrays      ", manifest.arrays.size());
  std::int64_t elements = 0;
  for (std::size_t a = 0; a < manifest.arrays.size(); ++a) {
    const auto& array = manifest.arrays[a];
    elements += array.elements();
    show("  ", padded(array.name, width), "  ", name_of(array.dtype), "  ",
         checkpoint::shape_text(array.shape), "  ", human_bytes(array.bytes()),
         slices[a] > 1 ? text(" in ", slices[a], " slices") : "");
    out["arrays"].push_back({{"name", array.name},
                             {"dtype", name_of(array.dtype)},
                             {"shape", array.shape},
                             {"bytes", array.bytes()},
                             {"slices", slices[a]}});
  }
  out["elements"] = elements;
  show("elements    ", with_commas(elements), " in all arrays");
}

ordered_json inspect_checkpoint(const std::string& folder, bool verify) {
  const auto manifest = checkpoint::read_manifest(folder);
  checkpoint::verify_outline(folder, manifest);
  show("folder      ", folder, ", ", human_bytes(manifest.bytes()), " in ",
       manifest.files.size() + manifest.shards.size(), " files and the manifest");
  show("format      checkpoint, version ", checkpoint::known_format, ", written by ",
       manifest.library);
  show("step        ", with_commas(manifest.step));
  show("samples     ", with_commas(manifest.samples));
  if (!manifest.layout.empty()) show("layout      ", manifest.layout);
  for (const auto& [name, value] : manifest.values) show("state       ", name, " = ", value);
  show("shards      ", manifest.shards.size());
  for (const auto& shard : manifest.shards)
    show("  ", shard.name, "  ", human_bytes(shard.bytes), "  ", shard.slices.size(), " slices");
  ordered_json out{{"kind", "checkpoint"},
                   {"path", folder},
                   {"bytes", manifest.bytes()},
                   {"version", checkpoint::known_format},
                   {"library", manifest.library},
                   {"step", manifest.step},
                   {"samples", manifest.samples},
                   {"layout", manifest.layout},
                   {"state", manifest.values},
                   {"shards", ordered_json::array()},
                   {"arrays", ordered_json::array()},
                   {"verified", verify}};
  for (const auto& shard : manifest.shards)
    out["shards"].push_back(
        {{"name", shard.name}, {"bytes", shard.bytes}, {"slices", shard.slices.size()}});
  say_arrays(manifest, out);
  if (!verify) return out;
  checkpoint::verify(folder, manifest);
  show("verified    all checksums match");
  return out;
}

ordered_json diff(const std::string& first, const std::string& second) {
  const checkpoint::Reader a(checkpoint::checkpoint_folder(first));
  const checkpoint::Reader b(checkpoint::checkpoint_folder(second));
  show("first       ", a.folder(), ", step ", with_commas(a.state().step));
  show("second      ", b.folder(), ", step ", with_commas(b.state().step));
  const auto differences = checkpoint::compare(a, b);
  std::size_t width = 0;
  for (const auto& array : differences) width = std::max(width, array.name.size());
  std::size_t equal = 0;
  ordered_json out{{"kind", "difference"},
                   {"first", {{"path", a.folder()}, {"step", a.state().step}}},
                   {"second", {{"path", b.folder()}, {"step", b.state().step}}},
                   {"arrays", ordered_json::array()}};
  for (const auto& array : differences) {
    const std::string name = padded(array.name, width);
    if (!array.only.empty())
      show("  ", name, "  ", array.only);
    else if (array.different > 0)
      show("  ", name, "  ", with_commas(array.different), " of ", with_commas(array.elements),
           " elements differ, largest absolute difference ", array.largest_absolute, ", relative ",
           array.largest_relative);
    else
      ++equal;
    out["arrays"].push_back({{"name", array.name},
                             {"only", array.only},
                             {"elements", array.elements},
                             {"different", array.different},
                             {"largest_absolute", array.largest_absolute},
                             {"largest_relative", array.largest_relative}});
  }
  show("equal       ", equal, " of ", differences.size(), " arrays, bit for bit");
  out["equal"] = equal;
  return out;
}

void inspect(const InspectOptions& options) {
  for (const auto& path : options.paths)
    check_usage(data::tokens_exist(path), path, ": no such file or folder");
  check_usage(options.diff == (options.paths.size() == 2),
              options.diff ? "--diff compares two checkpoints, but one path is given"
                           : "two paths are given; to compare two checkpoints, add --diff");
  const std::string& path = options.paths.front();
  const bool folder = fs::is_directory(path);
  check_usage(options.diff || !folder || !options.decode, path,
              ": is a folder; --decode takes a token file");
  if (options.decode) return decode(path, options.tokenizer);
  const auto look = [&] {
    const Silence silence(options.json == "-");  // the JSON is then the output
    if (options.diff) return diff(path, options.paths.back());
    return folder ? inspect_checkpoint(checkpoint::checkpoint_folder(path), options.verify)
                  : inspect_tokens(path, options.verify);
  };
  const ordered_json facts = look();
  if (!options.json.empty())
    io::write_json(options.json, facts.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* command =
      app.add_subcommand("inspect", "Show, verify or compare checkpoints and token files");
  const auto options = std::make_shared<InspectOptions>();
  command
      ->add_option("PATH", options->paths,
                   "Token file, checkpoint folder, or folder of checkpoints (its latest)")
      ->required()
      ->expected(1, 2)
      ->type_name("");
  auto* verify =
      command->add_flag("--verify", options->verify, "Read all bytes and verify their checksums");
  auto* difference =
      command
          ->add_flag("--diff", options->diff,
                     "Compare two checkpoints: different elements and largest difference per array")
          ->excludes(verify);
  auto* decoding =
      command
          ->add_flag("--decode", options->decode,
                     "Print the text of a token file, without separators between documents; for a "
                     "file with a mask, one line of JSON per document with its counted parts")
          ->excludes(verify)
          ->excludes(difference);
  command
      ->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer for --decode; default: the path stored in the token file")
      ->type_name("PATH")
      ->needs(decoding);
  add_json_option(*command, options->json, "the facts");
  decoding->excludes("--json");
  command->footer(
      "Examples:\n"
      "  trireme inspect --verify runs/tiny/checkpoints/step_00000100\n"
      "  trireme inspect --diff step_00000100 step_00000200\n"
      "  trireme inspect --decode validation.h5 | gzip -9 | wc -c");
  command->callback([options] { inspect(*options); });
}

}  // namespace trireme::commands
