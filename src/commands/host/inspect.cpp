#include <trireme/base/check.hpp>
#include <trireme/base/log.hpp>
#include <trireme/checkpoint/reader.hpp>
#include <trireme/commands/host.hpp>
#include <trireme/data/token_file.hpp>
#include <trireme/data/tokenizer.hpp>

#include <CLI/CLI.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace trireme::commands {
namespace {

namespace fs = std::filesystem;

struct InspectOptions {
  std::string path;
  bool verify = false;
  bool decode = false;
};

/// False if nobody reads any more.
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

/// The text of all documents, one directly after the other.
void decode(const std::string& path) {
  ::signal(SIGPIPE, SIG_IGN);
  const data::TokenFile file(path);
  const auto tokenizer = data::make_tokenizer(file.tokenizer());
  check(tokenizer->vocabulary() == file.vocabulary(), path, ": has a vocabulary of ",
        file.vocabulary(), ", its tokenizer '", file.tokenizer(), "' one of ",
        tokenizer->vocabulary());
  std::vector<std::int32_t> ids(1 << 16);
  std::string content;
  for (std::int64_t at = 0; at < file.tokens(); at += std::ssize(ids)) {
    const auto part = std::span(ids).first(
        static_cast<std::size_t>(std::min(std::ssize(ids), file.tokens() - at)));
    file.read(at, part);
    content.clear();
    tokenizer->decode(part, content);
    if (!write_to_stdout(content)) return;
  }
}

void inspect_tokens(const InspectOptions& options) {
  const data::TokenFile file(options.path);
  const auto& header = file.header();
  std::string sources = file.sources();
  for (std::size_t at = sources.find('\n'); at != std::string::npos;
       at = sources.find('\n', at + 1))
    sources.insert(at + 1, 12, ' ');
  say("file        ", options.path, ", ", human_bytes(header.file_bytes));
  say("format      token file, version ", header.version);
  say("tokenizer   ", file.tokenizer());
  say("vocabulary  ", with_commas(file.vocabulary()), " ids of ", header.token_bytes, " bytes");
  say("tokens      ", with_commas(file.tokens()));
  say("documents   ", with_commas(file.documents()));
  say("text        ", with_commas(file.text_bytes()), " bytes");
  say("sources     ", sources);
  say("checksum    ", header.tokens_digest.hex(), " (XXH3-128 of the tokens)");
  if (!options.verify) return;
  file.verify();
  say("verified    every byte agrees with its checksum");
}

void inspect_checkpoint(const std::string& folder, bool verify) {
  const auto manifest = checkpoint::read_manifest(folder);
  checkpoint::verify_sizes(folder, manifest);
  std::int64_t bytes = 0;
  for (const auto& file : manifest.files) bytes += file.bytes;
  say("folder      ", folder, ", ", human_bytes(bytes), " in ", manifest.files.size(), " files");
  say("format      checkpoint, version ", manifest.format, ", written by ", manifest.library);
  say("step        ", with_commas(manifest.step));
  say("samples     ", with_commas(manifest.samples));
  std::size_t width = 0;
  for (const auto& array : manifest.arrays) width = std::max(width, array.name.size());
  say("arrays      ", manifest.arrays.size());
  std::int64_t elements = 0;
  for (const auto& array : manifest.arrays) {
    elements += array.elements();
    say("  ", array.name, std::string(width - array.name.size() + 2, ' '), name_of(array.dtype),
        "  ", checkpoint::shape_text(array.shape), "  ", human_bytes(array.bytes()));
  }
  say("elements    ", with_commas(elements), " in all arrays");
  if (!verify) return;
  checkpoint::verify(folder, manifest);
  say("verified    every byte agrees with its checksum");
}

void inspect(const InspectOptions& options) {
  check_usage(fs::exists(options.path), options.path, ": no such file or folder");
  if (!fs::is_directory(options.path)) {
    if (options.decode)
      decode(options.path);
    else
      inspect_tokens(options);
    return;
  }
  check_usage(!options.decode, options.path, ": is a folder; --decode takes a token file");
  if (fs::exists(options.path + "/manifest.json")) {
    inspect_checkpoint(options.path, options.verify);
    return;
  }
  const auto newest = checkpoint::latest(options.path);
  check_usage(newest.has_value(), options.path,
              ": is neither a checkpoint nor a folder with whole checkpoints");
  inspect_checkpoint(*newest, options.verify);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* command = app.add_subcommand("inspect", "What a token file or a checkpoint holds");
  const auto options = std::make_shared<InspectOptions>();
  command
      ->add_option("PATH", options->path,
                   "Token file, checkpoint folder, or folder of checkpoints (its latest)")
      ->required()
      ->type_name("");
  auto* verify =
      command->add_flag("--verify", options->verify, "Read every byte against its checksum");
  command
      ->add_flag("--decode", options->decode,
                 "Write the text of a token file, nothing between its documents")
      ->excludes(verify);
  command->footer(
      "Examples:\n"
      "  trireme inspect --verify runs/tiny/checkpoints/step_00000100\n"
      "  trireme inspect --decode validation.h5 | gzip -9 | wc -c");
  command->callback([options] { inspect(*options); });
}

}  // namespace trireme::commands
